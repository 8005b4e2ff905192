package server

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/daemon/abi"
)

// TestSharesOfGroups: of the groups of a device, and of the places in a group, a user gets as many as stay free for
// others.
func TestSharesOfGroups(t *testing.T) {
	const greedy, other = 1, 2
	group := func(i int) ib.GID { return ib.GID{0: 0xff, 14: byte(i >> 8), 15: byte(i)} }
	for _, x := range []struct {
		what  string
		enter func(g *groups, uid uint32, i int) error
		leave func(g *groups, uid uint32, i int)
	}{
		{"groups", func(g *groups, uid uint32, i int) error { return g.enter("attach", uid, group(i)) },
			func(g *groups, uid uint32, i int) { g.leave(uid, group(i)) }},
		{"places", func(g *groups, uid uint32, _ int) error { return g.enter("attach", uid, group(0)) },
			func(g *groups, uid uint32, _ int) { g.leave(uid, group(0)) }},
	} {
		t.Run(x.what, func(t *testing.T) {
			g := newGroups(ib.DeviceAttr{MaxMcastGroup: 8, MaxMcastQP: 8})
			n := 0
			for x.enter(&g, greedy, n) == nil {
				n++
			}
			if n != 4 {
				t.Errorf("the first user gets %d of 8, want 4", n)
			}
			if err := x.enter(&g, greedy, n); !errors.Is(err, ib.ErrLimit) {
				t.Errorf("one more is %v, want ErrLimit", err)
			}
			if err := x.enter(&g, other, 100); err != nil {
				t.Errorf("another user gets %v, want one", err)
			}
			for i := range n {
				x.leave(&g, greedy, i)
			}
			x.leave(&g, other, 100)
			if len(g.all) != 0 || len(g.users) != 0 || g.table.used != 0 {
				t.Errorf("%d groups, %d users and %d in use are left, want none", len(g.all), len(g.users),
					g.table.used)
			}
		})
	}
}

// TestSharesOfObjects: a user gets no more objects of a kind than stay free of the device's for others, and a QP that
// ends leaves its groups.
func TestSharesOfObjects(t *testing.T) {
	s, _ := newServer(t)
	c := newBareSession(t, s)
	c.unit.objects[pds].most = 10
	// What the user has of another device does not count here.
	s.accounts.mu.Lock()
	c.user.used[pds] += 7
	c.user.of(&unit{})[pds] += 7
	s.accounts.mu.Unlock()
	n := 0
	for ; n < 20; n++ {
		if _, err := c.answer(abi.OpAllocPD, nil, nil); err != nil {
			if !errors.Is(err, ib.ErrLimit) {
				t.Errorf("PD %d is %v, want ErrLimit", n, err)
			}
			break
		}
	}
	if n != 5 {
		t.Errorf("a user alone gets %d of 10 PDs, want 5", n)
	}
	pd := c.last
	cq := c.make(abi.OpCreateCQ, abi.Put(nil, &abi.CreateCQ{Entries: 4}))
	qp := c.make(abi.OpCreateQP, abi.Put(nil, &abi.CreateQP{PD: pd, SendCQ: cq, RecvCQ: cq, Type: uint32(ib.UD),
		MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}))
	gid := ib.GIDFromAddr(netip.MustParseAddr("239.1.1.1"))
	for range 2 {
		c.ask(abi.OpAttach, abi.Put(nil, &abi.Group{QP: qp, GID: gid}))
	}
	if used := c.unit.groups.table.used; used != 1 {
		t.Errorf("%d groups are in use after a QP has been attached twice to one, want 1", used)
	}
	c.ask(abi.OpClose, c.closing(qp))
	if used := c.unit.groups.table.used; used != 0 {
		t.Errorf("%d groups are in use after the end of the QP, want 0", used)
	}
}
