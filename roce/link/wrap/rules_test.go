package wrap_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/mem"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/wire"
)

// ruledStack returns a recorder with Rules around it, above and below a Seal.
func ruledStack(rules *wrap.Rules) (link.Link, *recorder) {
	rec := newRecorder()
	return rules.Above(wrap.Seal(rules.Below(rec))), rec
}

func add(t *testing.T, rules *wrap.Rules, r wrap.Rule) wrap.RuleStatus {
	t.Helper()
	st, err := rules.Add(r)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// only returns the range of one PSN.
func only(psn ib.PSN) *wrap.PSNRange { return &wrap.PSNRange{First: psn, Last: psn} }

// badICRCs returns the PSNs of frames whose ICRC is wrong.
func badICRCs(runs []link.Run) []int {
	bad := []int{}
	for _, r := range runs {
		for i := range r.Frames() {
			o := wire.Outer{Src: r.Src, Dst: r.Dst, SrcPort: r.SrcPort, DstPort: link.Port,
				TrafficClass: r.TrafficClass, HopLimit: r.HopLimit, FlowLabel: r.FlowLabel, ID: r.ID + uint16(i)}
			if !o.Check(r.Frame(i)) {
				bad = append(bad, int(r.Frame(i)[11]))
			}
		}
	}
	return bad
}

// Each action is applied to the frame with PSN 2 and to no other.
func TestRuleActions(t *testing.T) {
	for _, c := range []struct {
		rule  wrap.Rule
		want  []int // PSNs at once
		later []int // PSNs after 5 ms
		bad   []int // PSNs with a wrong ICRC
	}{
		{wrap.Rule{Action: wrap.ActDrop}, []int{0, 1, 3, 4}, nil, nil},
		{wrap.Rule{Action: wrap.ActDuplicate}, []int{0, 1, 2, 2, 3, 4}, nil, nil},
		{wrap.Rule{Action: wrap.ActDelay, Delay: 5 * time.Millisecond}, []int{0, 1, 3, 4}, []int{2}, nil},
		{wrap.Rule{Action: wrap.ActCorrupt, Seed: 1}, []int{0, 1, 2, 3, 4}, nil, []int{2}},
	} {
		for _, sent := range []bool{true, false} {
			c.rule.PSN, c.rule.Direction = only(2), wrap.DirIn
			if sent {
				c.rule.Direction = wrap.DirOut
			}
			var rules wrap.Rules
			l, rec := ruledStack(&rules)
			add(t, &rules, c.rule)
			wrap.Seal(rec).Send(0, []link.Run{newRun(0, 4, 64, 32)}) // seals for both directions
			sealed := rec.sent
			pass := func(now ib.Instant) []link.Run {
				if sent {
					rec.sent = nil
					if now == 0 {
						send(t, l, now, newRun(0, 4, 64, 32))
					} else if _, err := l.Recv(now, make([]link.Run, 1)); err != nil {
						t.Fatal(err)
					}
					return rec.sent
				}
				if now == 0 {
					rec.rx = sealed
				}
				in := make([]link.Run, 16)
				n, err := l.Recv(now, in)
				if err != nil {
					t.Fatal(err)
				}
				return in[:n]
			}
			got := pass(0)
			if diff := cmp.Diff(c.want, psns(got)); diff != "" {
				t.Errorf("%s %s: PSNs (-want +got): %s", c.rule.Action, c.rule.Direction, diff)
			}
			if c.rule.Action == wrap.ActCorrupt || sent {
				if bad := badICRCs(got); !slices.Equal(bad, c.bad) {
					t.Errorf("%s %s: ICRCs of %v are wrong, want %v", c.rule.Action, c.rule.Direction, bad, c.bad)
				}
			}
			if len(c.later) > 0 {
				if due := l.Deadline(); due != 5*ms {
					t.Errorf("delayed frame is due at %d, want %d", due, 5*ms)
				}
				if diff := cmp.Diff(c.later, psns(pass(5*ms))); diff != "" {
					t.Errorf("%s %s, later: PSNs (-want +got): %s", c.rule.Action, c.rule.Direction, diff)
				}
			}
			if st := rules.List()[0]; st.Matched != 1 || st.Hits != 1 {
				t.Errorf("%s %s: matched %d, hit %d, want 1", c.rule.Action, c.rule.Direction, st.Matched, st.Hits)
			}
		}
	}
}

// TestRulePath: rules that make a path: frames overtake each other, leave a bottleneck one after the other or not at
// all, are marked, cut, or lost in bursts or for their length.
func TestRulePath(t *testing.T) {
	const size = 1000 // with its outer headers a packet is somewhat longer
	slow := int64(10_000_000)
	ce := func(r link.Run) bool { return r.TrafficClass&uint8(wire.CE) == uint8(wire.CE) }
	for _, c := range []struct {
		name string
		rule wrap.Rule
		now  []int // PSNs that are passed on at once
		late []int // and within 10 ms
		hits uint64
	}{
		{"reorder", wrap.Rule{Action: wrap.ActReorder, PSN: only(2)}, []int{0, 1, 3, 2, 4, 5}, nil, 1},
		{"reorder the last", wrap.Rule{Action: wrap.ActReorder, PSN: only(5)}, []int{0, 1, 2, 3, 4}, []int{5}, 1},
		{"jitter", wrap.Rule{Action: wrap.ActDelay, Jitter: 5 * time.Millisecond, PSN: only(2), Seed: 1},
			[]int{0, 1, 3, 4, 5}, []int{2}, 1},
		{"mark", wrap.Rule{Action: wrap.ActMark}, []int{0, 1, 2, 3, 4, 5}, nil, 6},
		{"limit", wrap.Rule{Action: wrap.ActLimit, Rate: slow, Buffer: 2500 * time.Microsecond}, nil,
			[]int{0, 1, 2, 3}, 6}, // 0.8 ms each, of which three fit the buffer besides the first
		{"a black hole", wrap.Rule{Action: wrap.ActDrop, Larger: size}, nil, nil, 6},
		{"a wide one", wrap.Rule{Action: wrap.ActDrop, Larger: 2 * size}, []int{0, 1, 2, 3, 4, 5}, nil, 0},
		{"one burst", wrap.Rule{Action: wrap.ActDrop, Burst: wrap.Burst{Begin: 1, End: 1e-9}}, nil, nil, 6},
		{"bursts of one", wrap.Rule{Action: wrap.ActDrop, Burst: wrap.Burst{Begin: 1, End: 1}}, []int{1, 3, 5}, nil, 3},
	} {
		c.rule.Direction = wrap.DirOut
		var rules wrap.Rules
		l, rec := ruledStack(&rules)
		add(t, &rules, c.rule)
		send(t, l, 0, newRun(0, 6, size, 0))
		got := slices.Clone(psns(rec.sent))
		if diff := cmp.Diff(append([]int{}, c.now...), got); diff != "" {
			t.Errorf("%s: PSNs (-want +got): %s", c.name, diff)
		}
		if c.rule.Action == wrap.ActMark && slices.ContainsFunc(rec.sent, func(r link.Run) bool { return !ce(r) }) {
			t.Errorf("%s: some frames have no mark", c.name)
		}
		rec.sent = nil
		for now := ib.Instant(0); now <= 10*ms; now += ms / 10 {
			if _, err := l.Recv(now, make([]link.Run, 1)); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(append([]int{}, c.late...), psns(rec.sent)); diff != "" {
			t.Errorf("%s, later: PSNs (-want +got): %s", c.name, diff)
		}
		if bad := badICRCs(rec.sent); len(bad) > 0 {
			t.Errorf("%s: ICRCs of %v are wrong, want none", c.name, bad)
		}
		if st := rules.List()[0]; st.Hits != c.hits {
			t.Errorf("%s: %d hits, want %d", c.name, st.Hits, c.hits)
		}
	}
}

// TestRuleTruncate: a frame that was received loses its end.
func TestRuleTruncate(t *testing.T) {
	var rules wrap.Rules
	l, rec := ruledStack(&rules)
	st := add(t, &rules, wrap.Rule{Action: wrap.ActTruncate, PSN: only(1)})
	if st.Direction != wrap.DirIn {
		t.Errorf("got direction %q, want %q", st.Direction, wrap.DirIn)
	}
	wrap.Seal(rec).Send(0, []link.Run{newRun(0, 3, 64, 0)})
	rec.rx = rec.sent
	in := make([]link.Run, 8)
	n, err := l.Recv(0, in)
	if err != nil {
		t.Fatal(err)
	}
	var sizes []int
	for _, f := range linktest.Frames(in[:n]...) {
		sizes = append(sizes, len(f))
	}
	if len(sizes) != 3 || sizes[0] != sizes[2] || sizes[1] > sizes[0]-4 || rules.List()[0].Hits != 1 {
		t.Errorf("got frames of %v bytes and %+v, want the second shorter", sizes, rules.List()[0])
	}
}

// TestRuleLimitFull: a bottleneck that holds as many frames as it may loses further ones, and lets none pass.
func TestRuleLimitFull(t *testing.T) {
	var rules wrap.Rules
	l, rec := ruledStack(&rules)
	add(t, &rules, wrap.Rule{Action: wrap.ActLimit, Rate: wrap.MinRate * 100, Buffer: wrap.MaxBuffer})
	for range 100 {
		send(t, l, 0, newRun(0, 100, 64, 0))
	}
	if got := len(psns(rec.sent)); got != 0 {
		t.Errorf("%d frames passed the bottleneck at once, want none", got)
	}
}

// ack returns a run of one ACK.
func ack(psn ib.PSN, qpn ib.QPN) link.Run {
	p := wire.Packet{BTH: wire.BTH{Opcode: wire.RCAck, DestQP: qpn, PSN: psn}}
	b := append(p.AppendHeaders(nil), 0, 0, 0, 0)
	return link.Run{Src: local, Dst: peer, Size: len(b), Buf: b}
}

// Conditions select by opcode class, PSN, QP and peer.
func TestRuleConditions(t *testing.T) {
	other := peer
	other[15] = 77
	own := ib.QPN(newRun(0, 1, 64, 0).Buf[7]) // to the peer's QP, as sent
	for _, c := range []struct {
		name string
		rule wrap.Rule
		hits uint64
	}{
		{"everything", wrap.Rule{}, 6},
		{"sends", wrap.Rule{Class: "send"}, 5},
		{"acks", wrap.Rule{Class: "ack"}, 1},
		{"writes", wrap.Rule{Class: "write"}, 0},
		{"PSNs", wrap.Rule{PSN: &wrap.PSNRange{First: ib.PSNMask, Last: 1}}, 3},
		{"peer's QP", wrap.Rule{Match: wrap.Match{PeerQPN: 0x99}}, 1},
		{"own QP, which frames sent do not name", wrap.Rule{Match: wrap.Match{QPN: own}}, 0},
		{"peer", wrap.Rule{Match: wrap.Match{Peer: peer}}, 6},
		{"other peer", wrap.Rule{Match: wrap.Match{Peer: other}}, 0},
		{"received", wrap.Rule{Direction: wrap.DirIn}, 0},
		{"first two", wrap.Rule{Count: 2}, 2},
	} {
		var rules wrap.Rules
		l, _ := ruledStack(&rules)
		c.rule.Action = wrap.ActDrop
		add(t, &rules, c.rule)
		send(t, l, 0, newRun(0, 4, 64, 32), ack(ib.PSNMask, 0x99))
		if st := rules.List()[0]; st.Hits != c.hits {
			t.Errorf("%s: %d hits, want %d", c.name, st.Hits, c.hits)
		}
	}
}

// A datagram names the QP that it comes from.
func TestRuleDatagram(t *testing.T) {
	var rules wrap.Rules
	l, rec := ruledStack(&rules)
	p := wire.Packet{BTH: wire.BTH{Opcode: wire.UDSendOnly, DestQP: 5}, DETH: wire.DETH{SrcQP: 0x1234}}
	b := append(p.AppendHeaders(nil), make([]byte, 20)...)
	add(t, &rules, wrap.Rule{Action: wrap.ActDrop, Match: wrap.Match{QPN: 0x1234}})
	send(t, l, 0, link.Run{Src: local, Dst: peer, Size: len(b), Buf: b})
	if len(rec.sent) != 0 {
		t.Error("a datagram of the QP passed")
	}
}

// The seed decides which frames are affected; if it was not set, it is returned.
func TestRuleProbability(t *testing.T) {
	lost := func(seed uint64) ([]int, wrap.RuleStatus) {
		var rules wrap.Rules
		l, rec := ruledStack(&rules)
		add(t, &rules, wrap.Rule{Action: wrap.ActDrop, Probability: 0.3, Seed: seed})
		send(t, l, 0, newRun(0, 60, 64, 0))
		send(t, l, 0, newRun(60, 60, 64, 0))
		return psns(rec.sent), rules.List()[0]
	}
	got, st := lost(0)
	t.Logf("seed %d", st.Seed)
	if st.Seed == 0 || st.Matched != 120 || int(st.Hits) != 120-len(got) || st.Hits < 12 || st.Hits > 70 {
		t.Errorf("status %+v, %d passed; want 12 to 70 hits of 120, %d, and a seed", st, len(got), 120-len(got))
	}
	if again, _ := lost(st.Seed); !slices.Equal(got, again) {
		t.Errorf("the same seed lost others: %v, want %v", again, got)
	}
	if again, _ := lost(st.Seed + 1); slices.Equal(got, again) {
		t.Error("another seed lost the same")
	}
}

// A corrupted frame that the link below does not take waits for it. It is sent once, and the caller's frame is as it
// was.
func TestRuleBlocked(t *testing.T) {
	var rules wrap.Rules
	rec := newRecorder()
	rec.take = 0
	l := wrap.Seal(rules.Below(rec))
	add(t, &rules, wrap.Rule{Action: wrap.ActCorrupt, Seed: 1, PSN: only(1), Count: 1})
	out := newRun(0, 3, 64, 0)
	send(t, l, 0, out)
	if n, err := l.Send(0, []link.Run{newRun(3, 3, 64, 0)}); n != 0 || err != nil {
		t.Errorf("Send = %d, %v while frames wait, want 0", n, err)
	}
	rec.take = -1
	send(t, l, 0, out)
	if got, want := psns(rec.sent), []int{0, 1, 2, 0, 1, 2}; !slices.Equal(got, want) {
		t.Errorf("PSNs %v were sent, want %v", got, want)
	}
	if bad := badICRCs(rec.sent); !slices.Equal(bad, []int{1}) {
		t.Errorf("ICRCs of %v are wrong, want 1 only once", bad)
	}
}

func TestRuleErrors(t *testing.T) {
	drop := wrap.Rule{Action: wrap.ActDrop}
	for _, c := range []struct {
		attr, allowed string
		change        func(*wrap.Rule)
	}{
		{"Action", "duplicate", func(r *wrap.Rule) { r.Action = "explode" }},
		{"Direction", "in, out", func(r *wrap.Rule) { r.Direction = "up" }},
		{"Class", "read-response", func(r *wrap.Rule) { r.Class = "poem" }},
		{"PSN", "half", func(r *wrap.Rule) { r.PSN = &wrap.PSNRange{First: 9, Last: 8} }},
		{"PSN", "24 bits", func(r *wrap.Rule) { r.PSN = only(1 << 24) }},
		{"Delay", "10s", func(r *wrap.Rule) { r.Action = wrap.ActDelay }},
		{"Delay", "10s", func(r *wrap.Rule) { r.Action, r.Delay = wrap.ActDelay, time.Hour }},
		{"Delay", "unless", func(r *wrap.Rule) { r.Delay = 1 }},
		{"Delay", "10s", func(r *wrap.Rule) { r.Action, r.Delay = wrap.ActReorder, time.Minute }},
		{"Delay", "10s", func(r *wrap.Rule) { r.Action, r.Delay, r.Jitter = wrap.ActDelay, -1, 5 }},
		{"Jitter", "10s", func(r *wrap.Rule) { r.Action, r.Jitter = wrap.ActDelay, time.Hour }},
		{"Jitter", "unless", func(r *wrap.Rule) { r.Jitter = 1 }},
		{"Rate", "1000000 to", func(r *wrap.Rule) { r.Action = wrap.ActLimit }},
		{"Rate", "1000000 to", func(r *wrap.Rule) { r.Action, r.Rate = wrap.ActLimit, wrap.MaxRate+1 }},
		{"Rate", "unless", func(r *wrap.Rule) { r.Rate = wrap.MinRate }},
		{"Buffer", "1s", func(r *wrap.Rule) { r.Action, r.Rate, r.Buffer = wrap.ActLimit, wrap.MinRate, time.Hour }},
		{"Buffer", "unless", func(r *wrap.Rule) { r.Buffer = 1 }},
		{"Larger", "65535", func(r *wrap.Rule) { r.Larger = 1 << 16 }},
		{"Larger", "65535", func(r *wrap.Rule) { r.Larger = -1 }},
		{"Burst", "begin and its end", func(r *wrap.Rule) { r.Burst.Begin = 0.1 }},
		{"Burst", "begin and its end", func(r *wrap.Rule) { r.Burst = wrap.Burst{Begin: 0.1, End: 1.1} }},
		{"Burst", "begin and its end", func(r *wrap.Rule) { r.Burst = wrap.Burst{Begin: 0.1, End: 1, Loss: 0.5} }},
		{"Direction", "truncate", func(r *wrap.Rule) { r.Action, r.Direction = wrap.ActTruncate, wrap.DirOut }},
		{"Probability", "up to 1", func(r *wrap.Rule) { r.Probability = 1.5 }},
		{"TTL", "0 for no end", func(r *wrap.Rule) { r.TTL = -1 }},
		{"QPN", "24 bits", func(r *wrap.Rule) { r.QPN = 1 << 24 }},
		{"PeerQPN", "24 bits", func(r *wrap.Rule) { r.PeerQPN = 1 << 24 }},
	} {
		var rules wrap.Rules
		r := drop
		c.change(&r)
		_, err := rules.Add(r)
		var attr *ib.AttrError
		if !errors.As(err, &attr) || attr.Attr != c.attr || !errors.Is(err, ib.ErrInvalid) ||
			!strings.Contains(attr.Allowed, c.allowed) {
			t.Errorf("%s: error %v, want what is allowed: %q", c.attr, err, c.allowed)
		}
	}
	var rules wrap.Rules
	for range wrap.MaxRules {
		add(t, &rules, drop)
	}
	if _, err := rules.Add(drop); !errors.Is(err, ib.ErrLimit) {
		t.Errorf("rule %d: error %v, want %v", wrap.MaxRules+1, err, ib.ErrLimit)
	}
	if err := rules.Remove(3); err != nil {
		t.Error(err)
	}
	if err := rules.Remove(3); !errors.Is(err, ib.ErrInvalid) {
		t.Errorf("removed twice: error %v, want %v", err, ib.ErrInvalid)
	}
	if n := rules.Clear(); n != wrap.MaxRules-1 || len(rules.List()) != 0 {
		t.Errorf("cleared %d, %d are left; want %d and none", n, len(rules.List()), wrap.MaxRules-1)
	}
}

func TestRuleTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rules wrap.Rules
		add(t, &rules, wrap.Rule{Action: wrap.ActDrop, TTL: time.Minute})
		time.Sleep(time.Minute - 1)
		synctest.Wait()
		if len(rules.List()) != 1 {
			t.Error("the rule went too early")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if len(rules.List()) != 0 {
			t.Error("the rule is still there")
		}
	})
}

// The rules end with the last Link that has them.
func TestRulesClosed(t *testing.T) {
	var rules wrap.Rules
	below := rules.Below(newRecorder())
	above := rules.Above(below)
	add(t, &rules, wrap.Rule{Action: wrap.ActDrop, TTL: time.Hour})
	for i, l := range []link.Link{below, below, above} {
		if len(rules.List()) != 1 {
			t.Errorf("%d rules are left before Close %d of 3, want 1", len(rules.List()), i+1)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	if list := rules.List(); len(list) != 0 {
		t.Errorf("rules %+v after all Links were closed, want none", list)
	}
}

// Rules are added and removed while several links run. Count applies to all links together.
func TestRulesUnderTraffic(t *testing.T) {
	const links, count = 3, 50
	var rules wrap.Rules
	st := add(t, &rules, wrap.Rule{Action: wrap.ActDrop, Count: count})
	var traffic, change sync.WaitGroup
	stop := make(chan struct{})
	lost := make([]int, links)
	for i := range links {
		l, rec := ruledStack(&rules)
		traffic.Go(func() {
			for range 200 {
				send(t, l, 0, newRun(0, 4, 64, 0))
			}
			lost[i] = 200*4 - len(psns(rec.sent))
		})
	}
	change.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			id := add(t, &rules, wrap.Rule{Action: wrap.ActCorrupt, Probability: 0.5}).ID
			rules.List()
			if err := rules.Remove(id); err != nil {
				t.Error(err)
			}
		}
	})
	traffic.Wait()
	close(stop)
	change.Wait()
	if n := lost[0] + lost[1] + lost[2]; n != count {
		t.Errorf("%d frames lost, want %d", n, count)
	}
	if got := rules.List(); len(got) != 1 || got[0].ID != st.ID || got[0].Hits != count {
		t.Errorf("rules %+v, want one with %d hits", got, count)
	}
}

// The wrappers fulfil the contract of a Link, also with rules that never apply.
func TestRulesContract(t *testing.T) {
	for _, busy := range []bool{false, true} {
		linktest.Run(t, func(testing.TB) (a, b link.Link) {
			n := mem.NewNetwork()
			stack := func(gid ib.GID) link.Link {
				rules, tap := new(wrap.Rules), new(wrap.Tap)
				if busy {
					for _, action := range []wrap.Action{wrap.ActDrop, wrap.ActCorrupt} {
						add(t, rules, wrap.Rule{Action: action, Match: wrap.Match{QPN: 0xABCDEF}})
					}
				}
				return rules.Above(wrap.Seal(rules.Below(tap.Around(n.Open([]ib.GID{gid}, mem.Options{})))))
			}
			return stack(local), stack(peer)
		})
	}
}
