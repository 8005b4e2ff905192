package mem_test

import (
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/mem"
	"github.com/goroce/goroce/tests/linktest"
)

var (
	gidA = ib.GID{10: 0xFF, 11: 0xFF, 12: 10, 15: 1}
	gidB = ib.GID{10: 0xFF, 11: 0xFF, 12: 10, 15: 2}
	gidX = ib.GID{10: 0xFF, 11: 0xFF, 12: 10, 15: 9}
)

func TestContract(t *testing.T) {
	open := func(testing.TB) (a, b link.Link) {
		n := mem.NewNetwork()
		return n.Open([]ib.GID{gidA}, mem.Options{}), n.Open([]ib.GID{gidB}, mem.Options{})
	}
	linktest.Run(t, open)
	linktest.Addresses(t, open, gidX)
}

// In virtual time one goroutine owns all links: what was sent is there.
func TestAtOnce(t *testing.T) {
	n := mem.NewNetwork()
	a, b := n.Open([]ib.GID{gidA}, mem.Options{}), n.Open([]ib.GID{gidX, gidB}, mem.Options{})
	var next uint32
	r := linktest.NewRun(a, b, &next, 3, 64, 0)
	r.Dst, r.ID = gidB, 7
	if k, err := a.Send(0, []link.Run{r}); k != 1 || err != nil {
		t.Fatal(k, err)
	}
	in := make([]link.Run, 4)
	k, err := b.Recv(0, in)
	if k != 1 || err != nil {
		t.Fatalf("Recv: %d, %v; want 1 run", k, err)
	}
	if got := in[0]; got.Dst != gidB || got.ID != 7 || !got.KnownID || got.Frames() != 3 {
		t.Errorf("received %+v, want 3 frames of ID 7 to %v", got, gidB)
	}
}

func TestOverflow(t *testing.T) {
	n := mem.NewNetwork()
	a, b := n.Open([]ib.GID{gidA}, mem.Options{}), n.Open([]ib.GID{gidB}, mem.Options{QueueRuns: 3, QueueBytes: 1000})
	var next uint32
	for range 5 {
		linktest.SendAll(t, a, []link.Run{linktest.NewRun(a, b, &next, 2, 200, 0)})
	}
	linktest.Collect(t, b, 4)
	if s := b.Stats(); s.RxOverflow != 6 || s.RxFrames != 4 {
		t.Errorf("receiver counts %+v, want 4 frames received and 6 lost", s)
	}
}

// A link that is closed is no member any more: nothing piles up there.
func TestClosedMember(t *testing.T) {
	n := mem.NewNetwork()
	a, b := n.Open([]ib.GID{gidA}, mem.Options{}), n.Open([]ib.GID{gidB}, mem.Options{QueueRuns: 1})
	group := linktest.NewGroup(a)
	if err := b.Join(group); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		linktest.SendAll(t, a, []link.Run{linktest.NewDatagram(a, group, 64)})
	}
	if s := b.Stats(); s.RxOverflow != 0 {
		t.Errorf("%d frames had no room in a closed link, want none", s.RxOverflow)
	}
}

func TestNobodyThere(t *testing.T) {
	n := mem.NewNetwork()
	a, b := n.Open([]ib.GID{gidA}, mem.Options{}), n.Open([]ib.GID{gidB}, mem.Options{})
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	var next uint32
	linktest.SendAll(t, a, []link.Run{linktest.NewRun(a, b, &next, 2, 64, 0)})
	if s := a.Stats(); s.TxErrors != 2 || s.TxFrames != 0 {
		t.Errorf("sender counts %+v, want 2 frames lost", s)
	}
}
