package packet

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/tests/linktest"
)

// TestLearnedMeanwhile: the address becomes known after the decision to hold a frame and before it is held, so no later
// notification will come.
func TestLearnedMeanwhile(t *testing.T) {
	na, nb := linktest.NewVeth(t, 1500)
	open := func(ns *linktest.Namespace, addr netip.Addr) (c *Conn) {
		err := ns.Do(func() (err error) {
			c, err = Open([]netip.Addr{addr}, Options{})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	a, b := open(na, na.Addr4), open(nb, nb.Addr4)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := a.peers.Resolve(ctx, nb.Addr4); err != nil {
		t.Fatal(err)
	}
	var psn uint32
	r := linktest.NewRun(a, b, &psn, 1, 64, 0)
	a.mu.Lock()
	held := a.hold(0, &r)
	a.mu.Unlock()
	in := make([]link.Run, 1)
	if _, err := a.Recv(0, in); err != nil || !held {
		t.Fatalf("held %v, %v; want true", held, err)
	}
	if got := linktest.Collect(t, b, 1); len(got) != 1 {
		t.Errorf("the frame still waits: %d came, want 1: %+v", len(got), a.Stats())
	}
}
