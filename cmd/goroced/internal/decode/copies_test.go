package decode

import (
	"bytes"
	"strings"
	"testing"

	"github.com/goroce/goroce/cmd/goroced/internal/term"
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/trace/capfile"
	"github.com/goroce/goroce/wire"
)

// bothWays returns a file like those of `goroced capture`: each packet is on the interface "x sent" or "x received".
func bothWays(t *testing.T, packets ...directed) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := capfile.NewWriter(&b, capfile.IPv4, "x", "")
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range packets {
		at := ib.Instant(i) * 1000
		if err := w.Write(&capfile.Packet{At: at, Link: capfile.IPv4, Data: p.ip, Dir: p.dir}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

type directed struct {
	dir capfile.Direction
	ip  []byte
}

// TestCopies: a packet that is sent and received on one host is one packet; what is received more often than it was
// sent, and what is sent again, is reported.
func TestCopies(t *testing.T) {
	send := func(psn ib.PSN) []byte { return ipPacket(outer(), transport(outer(), wire.RCSendOnly, psn, 4)) }
	out := func(psn ib.PSN) directed { return directed{capfile.Sent, send(psn)} }
	in := func(psn ib.PSN) directed { return directed{capfile.Received, send(psn)} }
	damaged := in(2)
	damaged.ip[len(damaged.ip)-8] ^= 1
	for _, c := range []struct {
		name             string
		packets          []directed
		roce, copies     int
		problems, wrongs int
	}{
		{"faultless", []directed{out(1), in(1), out(2), out(3), in(2), in(3)}, 3, 3, 0, 0},
		{"the receiver's thread was first", []directed{in(1), out(1), in(2), in(3), out(2), out(3)}, 3, 3, 0, 0},
		{"the peer is another host", []directed{in(1), in(2)}, 2, 0, 0, 0},
		{"the network makes a duplicate", []directed{out(1), in(1), in(1), out(2), in(2)}, 3, 2, 1, 0},
		{"another host sends again", []directed{in(1), in(1)}, 2, 0, 1, 0},
		{"lost and sent again", []directed{out(1), out(1), in(1)}, 2, 1, 1, 0},
		{"arrived and sent again", []directed{out(1), in(1), out(1), in(1)}, 2, 2, 1, 0},
		{"damaged on the way", []directed{out(1), in(1), out(2), damaged}, 3, 1, 1, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			text, sum := run(t, bothWays(t, c.packets...), Options{Terminal: term.Terminal{Width: 240}})
			if sum.Packets != len(c.packets) || sum.RoCE != c.roce || sum.Copies != c.copies ||
				sum.Problems != c.problems || sum.ICRC.Wrong != c.wrongs {
				t.Errorf("%+v, want %d packets: RoCE %d, copies %d, problems %d, wrong %d\n%s", sum, len(c.packets),
					c.roce, c.copies, c.problems, c.wrongs, text)
			}
			lines, _, _ := strings.Cut(text, "\n\n")
			if n := strings.Count(lines, "\n"); n != c.roce {
				t.Errorf("%d lines of packets, want %d:\n%s", n, c.roce, text)
			}
		})
	}
	text, _ := run(t, bothWays(t, out(1), in(1)), Options{Verbose: true})
	if !strings.Contains(text, "the same packet as #1, received") {
		t.Error(text)
	}
	text, _ = run(t, bothWays(t, out(1), in(1)), Options{JSON: true})
	if !strings.Contains(text, `"direction":"received","copy_of":1`) {
		t.Error(text)
	}
}

// TestCopiesForgotten: memory for copies is bounded.
func TestCopiesForgotten(t *testing.T) {
	var c copies
	p := packet{located: true, dir: capfile.Received}
	for i := range 3 * copiesKeep {
		p.num, p.frame.Transport = i+1, []byte{byte(i), byte(i >> 8), byte(i >> 16)}
		if of := c.add(&p); of != 0 {
			t.Fatalf("packet %d is a copy of %d, want none", p.num, of)
		}
	}
	if n := len(c.seen) + len(c.old); n > 2*copiesKeep {
		t.Errorf("%d packets are remembered, want at most %d", n, 2*copiesKeep)
	}
}
