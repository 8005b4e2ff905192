package server

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/daemon/abi"
)

// makes has a session make an object by a request, and returns its handle.
func (c *bareSession) makes(op abi.Op, body []byte) abi.Handle {
	c.t.Helper()
	r, err := c.answer(op, body, nil)
	must(c.t, err)
	o, err := abi.Get[abi.Object](r.body)
	must(c.t, err)
	return o.Handle
}

// TestCMScope: a request with a scope is about an ID, or a membership, on that channel, or it does nothing.
func TestCMScope(t *testing.T) {
	s, _ := newServer(t)
	c := newBareSession(t, s)
	gids, err := c.unit.dev.GIDs(1)
	must(t, err)
	a, b := c.makes(abi.OpOpenCM, nil), c.makes(abi.OpOpenCM, nil)
	id := c.makes(abi.OpCreateCMID, abi.Put(nil, &abi.CreateCMID{Channel: a, Space: uint32(ib.PortSpaceUDP),
		Type: uint32(ib.UD), Cookie: 1}))
	addr := abi.CMAddrOf(netip.AddrPortFrom(gids[0].GID.Addr(), 0))
	_, err = c.answer(abi.OpCMBind, abi.Put(nil, &abi.CMBind{ID: id, Addr: addr}), nil)
	must(t, err)
	group := abi.CMAddrOf(netip.MustParseAddrPort("239.1.2.3:0"))
	member := c.makes(abi.OpCMJoin, abi.Put(nil, &abi.CMBind{ID: id, Addr: group, Cookie: 2}))

	query := func(h abi.Handle) []byte { return abi.Put(nil, &abi.Object{Handle: h}) }
	for _, step := range []struct {
		what  string
		op    abi.Op
		body  []byte
		scope abi.CMScope
		want  error
	}{
		{"an ID on its channel", abi.OpCMQuery, query(id), abi.CMScope{Channel: a}, nil},
		{"an ID on another channel", abi.OpCMQuery, query(id), abi.CMScope{Channel: b}, ib.ErrInvalid},
		{"an ID on no channel", abi.OpCMQuery, query(id), abi.CMScope{Channel: id}, ib.ErrInvalid},
		{"a channel", abi.OpCMQuery, query(a), abi.CMScope{Channel: a}, ib.ErrClosed},
		{"no object", abi.OpCMQuery, query(1 << 20), abi.CMScope{Channel: a}, ib.ErrClosed},
		{"a membership as an ID", abi.OpClose, c.closing(member), abi.CMScope{Channel: a}, ib.ErrClosed},
		{"an ID as a membership", abi.OpClose, c.closing(id), abi.CMScope{Channel: a, Membership: 1}, ib.ErrClosed},
		{"a membership on another channel", abi.OpClose, c.closing(member), abi.CMScope{Channel: b, Membership: 1},
			ib.ErrInvalid},
		{"an ID moved from another channel", abi.OpCMMigrate, abi.Put(nil, &abi.CMValue{ID: id, Value: int64(b)}),
			abi.CMScope{Channel: b}, ib.ErrInvalid},
		{"an ID moved from its channel", abi.OpCMMigrate, abi.Put(nil, &abi.CMValue{ID: id, Value: int64(b)}),
			abi.CMScope{Channel: a}, nil},
		{"a membership on the channel that its ID has left", abi.OpClose, c.closing(member),
			abi.CMScope{Channel: a, Membership: 1}, ib.ErrInvalid},
		{"a membership that has moved with its ID", abi.OpClose, c.closing(member),
			abi.CMScope{Channel: b, Membership: 1}, nil},
		{"an ID that has moved", abi.OpClose, c.closing(id), abi.CMScope{Channel: b}, nil},
		{"an ID that is closed", abi.OpClose, c.closing(id), abi.CMScope{Channel: b}, ib.ErrClosed},
	} {
		if _, err := c.answer(step.op, abi.Put(step.body, &step.scope), nil); !errors.Is(err, step.want) {
			t.Errorf("%s: %v, want %v", step.what, err, step.want)
		}
	}
}

// TestCMScopeShort: bodies of every length, with and without a scope, are answered.
func TestCMScopeShort(t *testing.T) {
	s, _ := newServer(t)
	c := newBareSession(t, s)
	a := c.makes(abi.OpOpenCM, nil)
	whole := abi.Put(abi.Put(nil, &abi.Object{Handle: 1 << 20}), &abi.CMScope{Channel: a})
	for n := range len(whole) {
		if _, err := c.answer(abi.OpCMQuery, whole[:n], nil); err == nil {
			t.Errorf("%d bytes are taken for an ID, want an error", n)
		}
	}
}
