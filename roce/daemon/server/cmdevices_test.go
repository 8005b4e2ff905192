package server

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/daemon/abi"
	"github.com/goroce/goroce/roce/internal/device"
)

// cmPlace is a client of a server of two devices, which has opened the first.
type cmPlace struct {
	*bareSession
	dev   *stepped
	addrs [2]netip.Addr
}

func newCMPlace(t *testing.T) *cmPlace {
	s, dev := newSteppedDevices(t, 2)
	p := &cmPlace{bareSession: newBareSession(t, s), dev: dev}
	for i, u := range s.units {
		gids, err := u.dev.GIDs(1)
		must(t, err)
		p.addrs[i] = gids[0].GID.Addr()
	}
	return p
}

// channel opens an event channel, over all devices or, as clients do that know of none but their own, over that.
func (p *cmPlace) channel(all bool) abi.Handle {
	if all {
		return p.keepSocket(abi.OpOpenCM, abi.Put(nil, &abi.OpenCM{Flags: abi.CMAllDevices}))
	}
	return p.keepSocket(abi.OpOpenCM, nil)
}

func (p *cmPlace) id(channel abi.Handle) abi.Handle {
	return p.makes(abi.OpCreateCMID, abi.Put(nil, &abi.CreateCMID{Channel: channel, Type: uint32(ib.UD), Cookie: 1}))
}

func (p *cmPlace) bind(id abi.Handle, a netip.Addr) error {
	_, err := p.answer(abi.OpCMBind, abi.Put(nil, &abi.CMBind{ID: id,
		Addr: abi.CMAddrOf(netip.AddrPortFrom(a, servicePort))}), nil)
	return err
}

// on returns which device an ID is on, from 1 on.
func (p *cmPlace) on(id abi.Handle) uint32 {
	p.t.Helper()
	a, err := abi.Get[abi.CMIDAttr](p.ask(abi.OpCMQuery, abi.Put(nil, &abi.Object{Handle: id})))
	must(p.t, err)
	return a.Device
}

// asked has an ID ask for the service at an address, and returns the new ID of the request on a channel; 0 if none
// comes.
func (p *cmPlace) asked(at netip.Addr, channel abi.Handle) abi.Handle {
	p.t.Helper()
	id := p.id(p.channel(true))
	to := abi.CMAddrOf(netip.AddrPortFrom(at, servicePort))
	p.ask(abi.OpCMResolveAddr, abi.Put(nil, &abi.CMResolve{ID: id, Remote: to}))
	p.ask(abi.OpCMResolveRoute, abi.Put(nil, &abi.CMResolve{ID: id}))
	p.ask(abi.OpCMConnect, abi.Put(nil, &abi.CMConnect{ID: id}))
	for range 4 {
		p.dev.step()
	}
	ev, err := abi.Get[abi.CMEvent](p.ask(abi.OpCMEvent, abi.Put(nil, &abi.Object{Handle: channel})))
	must(p.t, err)
	return ev.ID
}

// TestCMDevices: IDs of a channel over all devices are on the one that has their address, and a listener without one
// takes requests to each of them.
func TestCMDevices(t *testing.T) {
	p := newCMPlace(t)
	ch := p.channel(true)
	for i, a := range p.addrs {
		id := p.id(ch)
		must(t, p.bind(id, a))
		if got, want := p.on(id), uint32(i+1); got != want {
			t.Errorf("an ID with address %v is on device %d, want %d", a, got, want)
		}
		p.ask(abi.OpClose, p.closing(id))
	}
	l := p.id(ch)
	must(t, p.bind(l, netip.IPv4Unspecified()))
	p.ask(abi.OpCMListen, abi.Put(nil, &abi.CMListen{ID: l}))
	for i, a := range p.addrs {
		id := p.asked(a, ch)
		if id == 0 {
			t.Fatalf("no request came in at %v", a)
		}
		if got, want := p.on(id), uint32(i+1); got != want {
			t.Errorf("a request to %v is on device %d, want %d", a, got, want)
		}
		if err := p.bind(p.id(ch), a); !errors.Is(err, ib.ErrAddrInUse) {
			t.Errorf("another ID at %v: %v, want %v", a, err, ib.ErrAddrInUse)
		}
	}
	listener, err := lookup[*device.CMID](p.session, abi.OpCMQuery, "ID", l)
	must(t, err)
	if got, want := p.srv.devicesOf(listener), []string{"dev0", "dev1"}; !slices.Equal(got, want) {
		t.Errorf("the listener is listed on %q, want %q", got, want)
	}
	p.ask(abi.OpClose, p.closing(l))
	for _, a := range p.addrs {
		if err := p.bind(p.id(ch), a); err != nil {
			t.Errorf("after the end of the listener its port at %v: %v", a, err)
		}
	}
}

// TestCMDevicesUnasked: IDs of a client that does not ask for all devices are on its own, and do not migrate to
// channels over all.
func TestCMDevicesUnasked(t *testing.T) {
	p := newCMPlace(t)
	ch := p.channel(false)
	id := p.id(ch)
	if err := p.bind(id, p.addrs[1]); !errors.Is(err, ib.ErrNoAddr) {
		t.Errorf("the address of the other device: %v, want %v", err, ib.ErrNoAddr)
	}
	must(t, p.bind(id, netip.IPv4Unspecified()))
	p.ask(abi.OpCMListen, abi.Put(nil, &abi.CMListen{ID: id}))
	if got := p.asked(p.addrs[1], ch); got != 0 {
		t.Error("a request to the other device came in")
	}
	if got := p.asked(p.addrs[0], ch); got == 0 {
		t.Error("no request to its device came in")
	}
	_, err := p.answer(abi.OpCMMigrate, abi.Put(nil, &abi.CMValue{ID: id, Value: int64(p.channel(true))}), nil)
	if !errors.Is(err, ib.ErrForeign) {
		t.Errorf("migration to a channel over all devices: %v, want %v", err, ib.ErrForeign)
	}
}

// TestCMDevicesLimits: what a user may have is counted over all devices, and given back for each.
func TestCMDevicesLimits(t *testing.T) {
	p := newCMPlace(t)
	p.srv.SetLimits(Limits{}, Limits{CM: CMLimits{IDs: 4, Listeners: 2}})
	ch := p.channel(true)
	before := p.srv.Usage()[0].Amount["heap"]
	for round := range 2 {
		var ids []abi.Handle
		for range 2 {
			id := p.id(ch)
			ids = append(ids, id)
			p.ask(abi.OpCMListen, abi.Put(nil, &abi.CMListen{ID: id}))
		}
		id := p.id(ch)
		ids = append(ids, id)
		if _, err := p.answer(abi.OpCMListen, abi.Put(nil, &abi.CMListen{ID: id}), nil); !errors.Is(err, ib.ErrLimit) {
			t.Errorf("round %d: a third listener: %v, want %v", round, err, ib.ErrLimit)
		}
		for _, id := range ids {
			p.ask(abi.OpClose, p.closing(id))
		}
		if got := p.srv.Usage()[0].Amount["heap"]; got != before {
			t.Errorf("round %d: %d bytes are booked after the end of all IDs, want %d", round, got, before)
		}
	}
}
