package script

import (
	"errors"
	"io/fs"
	"reflect"
	"strings"
	"testing"
)

// TestLessons runs every script twice: asking QPs for many packets at a time, and for
// one.
func TestLessons(t *testing.T) {
	if len(Names()) == 0 {
		t.Fatal("there are no scripts")
	}
	for _, name := range Names() {
		t.Run(name, func(t *testing.T) {
			s, err := Load(name)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Run(nil); err != nil {
				t.Error(err)
			}
			if s.delaysACKs() {
				return // whether an ACK follows other packets in a batch depends on the batch size
			}
			if err := s.run(nil, 1); err != nil {
				t.Errorf("one packet at a time: %v", err)
			}
		})
	}
}

func (s *Script) delaysACKs() bool {
	for _, l := range s.lines {
		if strings.Contains(l.text, "ack-delay=") {
			return true
		}
	}
	return false
}

// TestRunRepeats checks that the same inputs give the same outputs.
func TestRunRepeats(t *testing.T) {
	for _, name := range Names() {
		var runs [2][]Step
		for i := range runs {
			s, err := Load(name)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Run(func(step Step) { runs[i] = append(runs[i], step) }); err != nil {
				t.Fatal(err)
			}
		}
		if len(runs[0]) == 0 || !reflect.DeepEqual(runs[0], runs[1]) {
			t.Errorf("%s: %d steps, then %d other ones; want the same ones", name, len(runs[0]), len(runs[1]))
		}
	}
}

// wrongScripts are scripts with one error each, and the text of the failure.
var wrongScripts = []struct{ name, steps, want string }{
	{"unclaimed packet", `
 setup
 post send 1 len=10
 nothing`, "unclaimed before this step, us: > SEND Only psn=100 AckReq 1[0:10]"},
	{"unclaimed completion", `
 setup
 post send 1 len=10
 > SEND Only psn=100 AckReq 1[0:10]
 < ACK psn=100 msn=1`, "at the end: unclaimed before this step, us: wc send 1 SUCCESS"},
	{"unclaimed event", `
 setup
 modify SQD notify
 modify RTS`, "event SQ_DRAINED"},
	{"memory that changed", `
 setup
 region R len=64
 < WRITE Only psn=500 AckReq to=R+8 len=4 9[0:4]
 > ACK psn=500 msn=1`, "memory changed that no step claims: memory at R+8"},
	{"memory that did not", `
 setup
 region R len=64
 mem R+8 = 9[0:4]`, "memory at R+8 is"},
	{"bytes of the wrong place", `
 setup
 post send 1 len=1024 sges=2
 > SEND Only psn=100 AckReq 1[8:1032]`, "the payload differs; what came: > SEND Only psn=100 AckReq 1[0:1024]"},
	{"opcode", `
 setup
 post send 1 len=10
 > WRITE Only psn=100 AckReq 1[0:10]`, "the opcode differs"},
	{"PSN", `
 setup
 post send 1 len=10
 > SEND Only psn=101 AckReq 1[0:10]`, "the PSN is not 101 but 100"},
	{"AckReq", `
 setup
 post send 1 len=10
 > SEND Only psn=100 1[0:10]`, "the AckReq is not false but true"},
	{"RETH", `
 setup
 region peer P len=10
 post write 1 len=10 to=P+0
 > WRITE Only psn=100 AckReq to=P+1 len=10 1[0:10]`, "the RETH is not"},
	{"MSN", `
 setup
 < WRITE Only psn=500 AckReq len=0
 > ACK psn=500 msn=0`, "the MSN is not 0 but 1"},
	{"credits", `
 setup
 < WRITE Only psn=500 AckReq len=0
 > ACK psn=500 msn=1 credits=1`, "the syndrome is not ACK, 1 credits but ACK, 0 credits"},
	{"no packet", `
 setup
 > SEND Only psn=100 AckReq`, "no packet came"},
	{"status", `
 setup
 post send 1 len=10
 modify ERR
 wc send 1 SUCCESS`, "what came: wc send 1 WR_FLUSH_ERR"},
	{"length of a completion", `
 setup
 post recv 1 len=10
 < SEND Only psn=500 9[0:10]
 wc recv 1 SUCCESS len=9 data=9[0:10]`, "what came: wc recv 1 SUCCESS len=10"},
	{"data of a completion", `
 setup
 post recv 1 len=10
 < SEND Only psn=500 9[0:10]
 wc recv 1 SUCCESS len=10 data=9[0:9]`, "memory at recv1+9"},
	{"state", `
 setup
 state ERR`, "the state is RTS"},
	{"timer", `
 setup
 timer 5us`, "the deadline is in none"},
	{"deadline on the way", `
 setup
 post send 1 len=10
 > SEND Only psn=100 AckReq 1[0:10]
 advance 70ms`, "a deadline lies on the way, after 67.108864ms"},
	{"refusal that does not come", `
 setup
 modify SQD refused State`, `the error should say "State", but it is: <nil>`},
	{"word that means nothing", `
 setup
 post send 1 len=10 urgent`, `"urgent" means nothing here`},
	{"step that is none", `
 setup
 sleep 10ms`, `"sleep" is no step`},
	{"no side", `
 connect
 post send 1 len=10`, "which side?"},
	{"no scene", `
 post send 1 len=10`, "a script begins with setup or connect"},
	{"packet that stays on the wire", `
 connect
 left post send 1 len=10
 >~ SEND Only psn=100 AckReq 1[0:10]`, "a delayed packet never arrived"},
	{"counter", `
 setup
 count GhostResponse 1`, "it is 0"},
	{"service", `
 setup service=rd`, `"rd" is no service`},
	{"packet of another service", `
 setup service=uc
 > READ Request psn=100`, "UC has no such packet"},
	{"AckReq of an unreliable connection", `
 setup service=uc
 post send 1 len=10
 > SEND Only psn=100 AckReq 1[0:10]`, "the AckReq is not true but false"},
	{"Q_Key", `
 setup service=ud
 ah 1
 post send 1 len=10 ah=1 qkey=7
 > SEND Only psn=100 ah=1 qkey=8 1[0:10]`, "the DETH is not"},
	{"address handle", `
 setup service=ud
 ah 1
 ah 2
 post send 1 len=10 ah=1 qkey=7
 > SEND Only psn=100 ah=2 qkey=7 1[0:10]`, "the address handle is not 2 but 1; what came: > SEND Only psn=100 ah=1 from=0x11 dest=0x22 qkey=0x7"},
	{"destination", `
 setup service=ud
 ah 1
 post send 1 len=10 ah=1 qkey=7 dest=0x33
 > SEND Only psn=100 ah=1 qkey=7 1[0:10]`, "the destination QP is not 34 but 51"},
	{"sender of a datagram", `
 setup service=ud qkey=7
 post recv 1 len=50
 < SEND Only psn=0 from=0x33 qkey=7 9[0:10]
 wc recv 1 SUCCESS len=50 data=GRH[0:40],9[0:10]`, "what came: wc recv 1 SUCCESS from=0x33 len=50"},
	{"GRH of a datagram", `
 setup service=ud qkey=7
 post recv 1 len=50
 < SEND Only psn=0 qkey=7 9[0:10]
 wc recv 1 SUCCESS len=50 data=GRH[0:8],9[0:10]`, "memory at recv1+8"},
	{"SRQ of a packet", `
 setup service=xrc
 post send 1 len=10 srq=7
 > SEND Only psn=100 AckReq srq=8 1[0:10]`, "the SRQ is not 8 but 7; what came: > SEND Only psn=100 AckReq srq=7"},
	{"SRQ of a completion", `
 setup service=xrc-tgt
 srq 7
 srq 8
 post recv 1 len=10 srq=7
 < SEND Only psn=500 srq=7 9[0:10]
 wc recv 1 SUCCESS srq=8 len=10 data=9[0:10]`, "no completion came"},
	{"unclaimed completion of an SRQ", `
 setup service=xrc-tgt
 srq 7
 post recv 1 len=10 srq=7
 < SEND Only psn=500 srq=7 9[0:10]`, "us: wc recv 1 SUCCESS srq=7 len=10"},
	{"unclaimed event of an SRQ", `
 setup shared=4
 limit 1`, "us: event SRQ_LIMIT_REACHED"},
	{"credits where there are none", `
 setup
 < WRITE Only psn=500 AckReq len=0
 > ACK psn=500 msn=1 credits=none`, "the syndrome is not ACK but ACK, 0 credits"},
	{"level of a FLUSH", `
 setup
 region peer P len=8
 post flush 1 to=P+0 len=8 level=global
 > FLUSH psn=100 AckReq to=P+0 len=8 level=persistent`, "the FETH is not"},
	{"extent of a FLUSH", `
 setup
 region peer P len=8
 post flush 1 to=P+0 level=global extent=region
 > FLUSH psn=100 AckReq to=P+0 level=global`, "level=global extent=region"},
	{"persistence", `
 setup
 region R len=8 late
 persisted R 1`, "it was 0 times"},
	{"no QP of two", `
 setup qps=2
 < SEND Only psn=500 9[0:10]`, "which side? first or second"},
	{"completion of the other QP", `
 setup qps=2 shared=4
 first post recv 1 len=10
 second < SEND Only psn=500 9[0:10]
 first wc recv 1 SUCCESS len=10 data=9[0:10]`, "no completion came"},
	{"pace of a congestion control", `
 setup congestion=dcqcn
 pace 9999`, "it is 10000 Mb/s"},
	{"unknown congestion control", `
 setup congestion=reno`, "cubic or dcqcn"},
	{"window that was not bound", `
 setup
 region R len=64 access=bind
 mw W
 post bind 1 mw=W to=R+0 len=64 access=write`, "us: wc bind 1 SUCCESS"},
}

// TestScriptsCanFail checks that a wrong script fails, and says where it is wrong.
func TestScriptsCanFail(t *testing.T) {
	const head = "# T\ngroup: g\n\nWhy.\n\n"
	for _, c := range wrongScripts {
		s, err := Parse("t", head+c.steps)
		if err == nil {
			err = s.Run(nil)
		}
		var f *Failure
		if !errors.As(err, &f) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want: %s", c.name, err, c.want)
		}
	}
}

// TestParseRefuses checks that parse refuses malformed scripts.
func TestParseRefuses(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "the first line"},
		{"T\n", "the first line"},
		{"# T\n\nWhy.\n", "a script has a paragraph"},
		{"# T\ngroup: g\n\n setup\n", "a script has a paragraph"},
		{"# T\ngroup: g\n\nWhy.\n", "a script has a paragraph"},
		{"# T\ngroup: g\n\nWhy.\n\n setup\n -- more\n", "a reason goes on here"},
		{"# T\ngroup: g\nrule: rxe\n\nWhy.\n\n setup\n", "whose rule it is: IBTA, Linux, goroce"},
	} {
		if _, err := Parse("t", c.text); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v; want: %s", c.text, err, c.want)
		}
	}
	if _, err := Load("no-such-rule"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Load of a script that does not exist: %v, want %v", err, fs.ErrNotExist)
	}
}
