package roce_test

import (
	"errors"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/wire"
)

// serving is a call of Serve or Unserve, and what it returns.
type serving struct {
	do       func(id, mask uint64, gid ib.GID) error
	id, mask uint64
	gid      ib.GID
	want     error
}

func checkServing(t *testing.T, calls []serving) {
	t.Helper()
	for i, c := range calls {
		err := c.do(c.id, c.mask, c.gid)
		if !errors.Is(err, c.want) {
			t.Errorf("call %d with %#x/%#x at %v: %v, want %v", i, c.id, c.mask, c.gid, err, c.want)
		}
		var attr *ib.AttrError
		if err != nil && !errors.As(err, &attr) {
			t.Errorf("call %d: %v is no *ib.AttrError", i, err)
		}
	}
}

const space = ^uint64(0xFFFF) // the mask of one

// TestServe: a service ID is one QP's.
func TestServe(t *testing.T) {
	w := newWorld(t, 1, 64, plain)
	p, q := w.newManager(w.a), w.newManager(w.a)
	all := ib.GID{}
	checkServing(t, []serving{
		{p.Serve, 0x1060001, allBits, all, nil},
		{p.Serve, 0x1060001, allBits, all, nil},
		{q.Serve, 0x1060001, allBits, all, ib.ErrBusy},
		{q.Serve, 0x1060002, allBits, all, nil},
		{p.Serve, 0x1060000, space, all, ib.ErrBusy}, // port 2 of it is q's
		{q.Serve, 0x1060000, space, all, ib.ErrBusy},
		{q.Unserve, 0x1060001, allBits, all, ib.ErrInvalid},
		{q.Unserve, 0x1060000, space, all, ib.ErrInvalid},
		{q.Unserve, 0x1060002, allBits, all, nil},
		{q.Unserve, 0x1060002, allBits, all, ib.ErrInvalid},
		{p.Serve, 0x106BEEF, space, all, nil}, // all of its own
		{q.Serve, 0x1060003, allBits, all, ib.ErrBusy},
		{q.Serve, 0x1070003, allBits, all, nil},
		{p.Unserve, 0x1060000, space, all, nil},
		{q.Serve, 0x1060003, allBits, all, nil},
		{p.Unserve, 0x1060001, allBits, all, nil},
		{q.Serve, 0x1060001, allBits, all, ib.ErrBusy}, // announced twice
		{p.Unserve, 0x1060001, allBits, all, nil},
		{q.Serve, 0x1060001, allBits, all, nil},
		{p.Serve, 1, 0, all, ib.ErrInvalid},
		{p.Serve, 1, ^uint64(0xFF), all, ib.ErrInvalid},
		{w.newQP(w.a, ib.QPInit{Type: ib.UD}).(ib.ServiceQP).Serve, 1, allBits, all, ib.ErrNotSupported},
	})
	must(t, q.Close())
	if err := q.Serve(5, allBits, all); !errors.Is(err, ib.ErrClosed) {
		t.Errorf("Serve of a closed QP: %v", err)
	}
	must(t, p.Serve(0x1060003, allBits, all)) // was q's
	for i := range uint64(1<<14 - 1) {
		must(t, p.Serve(i<<20, allBits, all))
	}
	if err := p.Serve(0x1060004, allBits, all); !errors.Is(err, ib.ErrLimit) {
		t.Errorf("one more than the limit: %v", err)
	}
}

// TestServeByAddress: QPs may serve one service ID at an address each, and nobody else at
// all of them then.
func TestServeByAddress(t *testing.T) {
	w := newWorld(t, 1, 64, plain)
	all, second, foreign := ib.GID{}, gid(3), gid(4)
	must(t, w.a.dev.SetAddresses([]ib.GID{gidA, second}))
	p, q := w.newManager(w.a), w.newManager(w.a)
	checkServing(t, []serving{
		{p.Serve, 0x1110001, allBits, gidA, nil},
		{q.Serve, 0x1110001, allBits, gidA, ib.ErrBusy},
		{q.Serve, 0x1110001, allBits, all, ib.ErrBusy},
		{q.Serve, 0x1110001, allBits, second, nil},
		{p.Serve, 0x1110001, allBits, all, ib.ErrBusy},
		{p.Serve, 0x1110000, space, second, ib.ErrBusy},
		{p.Serve, 0x1110000, space, gidA, nil},
		{q.Serve, 0x1110002, allBits, gidA, ib.ErrBusy},
		{q.Serve, 0x1110002, allBits, all, ib.ErrBusy},
		{q.Unserve, 0x1110001, allBits, all, ib.ErrInvalid},
		{q.Unserve, 0x1110001, allBits, gidA, ib.ErrInvalid},
		{q.Unserve, 0x1110001, allBits, second, nil},
		{p.Serve, 0x1110001, allBits, all, nil}, // beside its own at gidA
		{q.Serve, 0x1110001, allBits, second, ib.ErrBusy},
		{p.Unserve, 0x1110001, allBits, all, nil},
		{q.Serve, 0x1110001, allBits, second, nil},
		{p.Serve, 1, allBits, foreign, ib.ErrInvalid},
		{p.Unserve, 1, allBits, foreign, ib.ErrInvalid},
	})
	must(t, q.Close())
	must(t, p.Serve(0x1110001, allBits, second)) // was q's
}

// TestRouteByAddress: a request goes to who serves its ID at the address that it was sent
// to. What is served at an address that is gone is in nobody's way, and there again when
// the address is.
func TestRouteByAddress(t *testing.T) {
	const service = 0x1060001
	w := newWorld(t, 1, 64, plain)
	second := gid(3)
	both := []ib.GID{gidA, second}
	must(t, w.a.dev.SetAddresses(both))
	first, p, q, b := w.newManager(w.a), w.newManager(w.a), w.newManager(w.a), w.newManager(w.b)
	must(t, p.Serve(service, allBits, gidA))
	must(t, q.Serve(service, allBits, second))
	must(t, q.Serve(service+1, allBits, ib.GID{}))
	req := func(to ib.GID, id uint32, service uint64) {
		b.say(to, wire.AttrREQ, &wire.REQ{LocalID: id, ServiceID: service})
	}
	req(gidA, 1, service)
	req(second, 2, service)
	req(gidA, 3, service+1)
	req(second, 4, service+1)
	req(gidA, 1, service)   // a copy
	req(second, 1, service) // another, with this ID
	p.wantHeard("p", "REQ 1 0", "REQ 1 0")
	q.wantHeard("q", "REQ 2 0", "REQ 3 0", "REQ 4 0", "REQ 1 0")

	must(t, w.a.dev.SetAddresses(both[:1]))
	if err := p.Serve(service, allBits, second); !errors.Is(err, ib.ErrInvalid) {
		t.Errorf("an address that is gone: %v", err)
	}
	must(t, w.a.dev.SetAddresses(both))
	req(second, 5, service)
	q.wantHeard("q, at the address that is back", "REQ 5 0")
	must(t, w.a.dev.SetAddresses(both[:1]))
	must(t, q.Unserve(service, allBits, second))
	must(t, w.a.dev.SetAddresses(both))
	req(second, 6, service)
	first.wantHeard("first, what nobody serves there", "REQ 6 0")
	p.wantHeard("p")
	q.wantHeard("q")
}
