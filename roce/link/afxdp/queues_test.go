package afxdp

import (
	"encoding/binary"
	"testing"

	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/tests/linktest"
)

const flows, frames = 8, 20 // frames of each

// passFlows sends flows, which arrive in order each.
func passFlows(t *testing.T, a, b link.Link) {
	t.Helper()
	var next, want [flows]uint32
	var out []link.Run
	for i := range flows * 4 {
		r := linktest.NewRun(a, b, &next[i%flows], frames/4, 1040, 0)
		r.SrcPort = 0xC000 + uint16(i%flows)
		out = append(out, r)
	}
	linktest.SendAll(t, a, out)
	for _, r := range linktest.Collect(t, b, flows*frames) {
		flow := r.SrcPort - 0xC000
		if psn := binary.BigEndian.Uint32(r.Buf[8:]) & 0xFFFFFF; psn != want[flow] {
			t.Errorf("flow %d has PSN %d, want %d", flow, psn, want[flow])
		}
		want[flow]++
	}
}

// A link serves all queues of the interface, which share the memory: each flow has
// one and stays in order. What comes by others takes the way through the kernel.
func TestQueues(t *testing.T) {
	na, nb := linktest.NewVeth(t, 1500)
	for _, n := range []*linktest.Namespace{na, nb} {
		n.Command(t, "ethtool", "-L", n.IfName, "rx", "2", "tx", "2")
	}
	for _, tt := range []struct {
		name   string
		o      Options
		queues int
	}{
		{"all", Options{}, 2},
		{"generic", Options{Generic: true}, 2},
		{"the first", Options{Queues: 1}, 1},
		{"no more than there are", Options{Queues: 7}, 2},
	} {
		a, b := open(t, na, Options{}, na.Addr4), open(t, nb, tt.o, nb.Addr4)
		if len(a.queues) != 2 || len(b.queues) != tt.queues {
			t.Fatalf("%s: %d and %d queues, want 2 and %d", tt.name, len(a.queues), len(b.queues), tt.queues)
		}
		if note := a.Caps().Note; note != "native XDP, copy mode, 2 queues" {
			t.Errorf("note %q, want %q", note, "native XDP, copy mode, 2 queues")
		}
		linktest.Meet(t, a, b)
		byRings, byKernel := b.byRings()
		passFlows(t, a, b)
		r, k := b.byRings()
		if r, k = r-byRings, k-byKernel; r != flows*frames*tt.queues/2 || r+k != flows*frames {
			t.Errorf("%s: %d frames came by the rings and %d through the kernel; want %d and %d", tt.name, r, k,
				flows*frames*tt.queues/2, flows*frames*(2-tt.queues)/2)
		}
		_, _ = a.Close(), b.Close()
	}
}

// An interface may have fewer queues to send than to receive.
func TestFewerSendQueues(t *testing.T) {
	na, nb := linktest.NewVeth(t, 1500)
	na.Command(t, "ethtool", "-L", na.IfName, "rx", "2", "tx", "1")
	a, b := open(t, na, Options{}, na.Addr4), open(t, nb, Options{}, nb.Addr4)
	linktest.Meet(t, a, b)
	if len(a.queues) != 2 {
		t.Errorf("%d queues, want 2", len(a.queues))
	}
	passFlows(t, a, b)
	passFlows(t, b, a)
}
