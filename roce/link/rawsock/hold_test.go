package rawsock

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/linktest"
)

// TestLearnedMeanwhile: the address is learned after a frame was found to have to
// wait, and before it does: nobody will tell of it again.
func TestLearnedMeanwhile(t *testing.T) {
	na, nb := linktest.NewVeth(t, 1500)
	open := func(ns *linktest.Namespace, addr netip.Addr) (l link.Link) {
		err := ns.Do(func() (err error) {
			l, err = Open([]netip.Addr{addr}, Options{})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	a, b := open(na, na.Addr4), open(nb, nb.Addr4)
	c := a.(*conn)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := c.peers.Resolve(ctx, nb.Addr4); err != nil {
		t.Fatal(err)
	}
	var psn uint32
	r := linktest.NewRun(a, b, &psn, 1, 64, 0)
	c.mu.Lock()
	held := c.hold(0, &r)
	c.mu.Unlock()
	in := make([]link.Run, 1)
	if _, err := a.Recv(0, in); err != nil || !held {
		t.Fatalf("held %v, %v", held, err)
	}
	if n, _ := b.Recv(0, in); n != 1 {
		t.Errorf("the frame still waits: %+v", a.Stats())
	}
}
