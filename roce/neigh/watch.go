package neigh

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// LinkState is what may change about an interface while it is in use. It is all
// zero while the interface is gone.
type LinkState struct {
	Name    string       // as it is now
	Index   int          // another one when the interface was deleted and made again
	Enabled bool         // administratively
	Up      bool         // enabled, and with a carrier
	Speed   int          // Mb/s; 0 if it is not known
	MTU     int          // of IP packets, in bytes
	Addrs   []netip.Addr // those of the watched addresses that exist and can be used
}

func (s *LinkState) equal(o *LinkState) bool {
	return s.Name == o.Name && s.Index == o.Index && s.Enabled == o.Enabled && s.Up == o.Up && s.Speed == o.Speed &&
		s.MTU == o.MTU && slices.Equal(s.Addrs, o.Addrs)
}

// WatchLink calls changed with the state of an interface: once before it returns, then whenever
// the state has changed, from one goroutine. Changes in quick succession may be seen as one. The
// watch follows an interface that is renamed. If the interface is deleted, the watch follows the
// next one of that name; changed is then always called with the zero LinkState in between. If
// changed returns an error it is called again after the next event of any interface or address,
// even if the state is the same.
//
// The watched addresses are addrs, in that order, each on the interface that has it now, or on this one if none has. If
// addrs is nil they are all addresses of this interface, in the kernel's order and without zones.
//
// stop ends the watch and waits for a running call of changed. It may be called more than once, but not by changed.
func WatchLink(name string, addrs []netip.Addr, changed func(LinkState) error) (stop func(), err error) {
	w := &watch{changed: changed, speeds: noNetdevice, ended: make(chan struct{})}
	if err := w.open(name, addrs); err != nil {
		w.close()
		return nil, fmt.Errorf("watch interface %s: %w", name, err)
	}
	w.told = true
	w.again = changed(w.last) != nil
	go w.run()
	return sync.OnceFunc(func() {
		w.events.Close()
		<-w.ended
	}), nil
}

// watch waits until the kernel reports a change of any interface or address, and then compares the state.
type watch struct {
	itf     itf
	homes   []home // of the addresses in question, nil for all of the interface
	changed func(LinkState) error

	events *nl.NetlinkSocket
	ask    *netlink.Handle
	speeds netdevice
	last   LinkState // the last state passed to changed
	told   bool      // changed has been called
	again  bool      // changed must be called again
	ended  chan struct{}
}

// itf is an interface, which may be deleted and made again.
type itf struct {
	name  string
	index int
}

// home is a watched address and the interface that has it.
type home struct {
	addr     netip.Addr
	itf      itf
	loopback bool // the interface has the whole of its networks
}

func (w *watch) open(name string, addrs []netip.Addr) (err error) {
	if w.ask, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return err
	}
	if w.speeds, err = newNetdevice(); err != nil {
		return err
	}
	have, err := w.ask.LinkByName(name)
	if err != nil {
		return err
	}
	w.itf = itf{name, have.Attrs().Index}
	for _, a := range addrs {
		n, err := Holding(a)
		if err != nil { // it may come
			n = netIf(have.Attrs())
		}
		w.homes = append(w.homes, home{a, itf{n.Name, n.Index}, n.Loopback})
	}
	w.events, err = nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR,
		unix.RTNLGRP_IPV6_IFADDR)
	if err != nil {
		return fmt.Errorf("subscribe to changes: %w", err)
	}
	w.last, err = w.state()
	return err
}

func (w *watch) close() {
	if w.events != nil {
		w.events.Close()
	}
	if w.ask != nil {
		w.ask.Close()
	}
	w.speeds.close()
}

// run returns when stop closes the socket.
func (w *watch) run() {
	defer close(w.ended)
	defer w.close()
	for {
		// ENOBUFS: there were too many events, and some were lost. The others suffice.
		if _, _, err := w.events.Receive(); err != nil && !errors.Is(err, unix.ENOBUFS) {
			return
		}
		// If the state changes while it is being read, the result is an error, and another event follows.
		if now, err := w.state(); err == nil && (w.again || !now.equal(&w.last)) {
			w.tell(now)
		}
	}
}

// tell tells the state.
func (w *watch) tell(now LinkState) {
	if w.last.Index != 0 && now.Index != 0 && now.Index != w.last.Index {
		_ = w.changed(LinkState{}) // it has been gone for a moment
	}
	w.last = now
	w.again = w.changed(now) != nil
}

// find returns the interface as it is, by name if it is another one now; nil if there is none.
func (w *watch) find(i *itf) (netlink.Link, error) {
	have, err := w.ask.LinkByIndex(i.index)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		have, err = w.ask.LinkByName(i.name)
	}
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	*i = itf{have.Attrs().Name, have.Attrs().Index}
	return have, nil
}

func (w *watch) state() (LinkState, error) {
	itf, err := w.find(&w.itf)
	if itf == nil || err != nil {
		return LinkState{}, err
	}
	for i := range w.homes {
		if _, err := w.find(&w.homes[i].itf); err != nil {
			return LinkState{}, err
		}
	}
	have, err := w.ask.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return LinkState{}, err
	}
	a := itf.Attrs()
	return LinkState{Name: a.Name, Index: a.Index, Enabled: a.RawFlags&unix.IFF_UP != 0,
		Up: a.RawFlags&unix.IFF_LOWER_UP != 0, Speed: w.speeds.speed(a.Name), MTU: a.MTU, Addrs: w.held(have)}, nil
}

// held returns the watched addresses that are among those of the host.
func (w *watch) held(have []netlink.Addr) (addrs []netip.Addr) {
	if w.homes == nil {
		for i := range have {
			if a, ok := addrOf(have[i].IP); ok && have[i].LinkIndex == w.itf.index && w.usable(&have[i], a) {
				addrs = append(addrs, a)
			}
		}
		return addrs
	}
	for _, home := range w.homes {
		there := func(a netlink.Addr) bool {
			return a.LinkIndex == home.itf.index && w.usable(&a, home.addr) &&
				holds(a.IPNet, home.addr.WithZone("").Unmap(), home.loopback)
		}
		if slices.ContainsFunc(have, there) {
			addrs = append(addrs, home.addr)
		}
	}
	return addrs
}

// usable reports whether an address can be used. When a carrier is back, Linux runs duplicate address detection again,
// and keeps the address in GID tables meanwhile (roce_gid_mgmt.c); so an address that was usable stays so. Before the
// first call of changed, a tentative address counts as usable, because the device may have been opened with it.
func (w *watch) usable(h *netlink.Addr, a netip.Addr) bool {
	return usable(h) || h.Flags&unix.IFA_F_DADFAILED == 0 && (!w.told || slices.Contains(w.last.Addrs, a))
}

// Usable returns the addresses that a socket can be bound to, without zones. Addresses are left out if duplicate
// address detection has not finished or has failed.
func Usable(have []netlink.Addr) []netip.Addr {
	var addrs []netip.Addr
	for i := range have {
		if a, ok := addrOf(have[i].IP); ok && usable(&have[i]) {
			addrs = append(addrs, a)
		}
	}
	return addrs
}

func usable(a *netlink.Addr) bool { return a.Flags&(unix.IFA_F_TENTATIVE|unix.IFA_F_DADFAILED) == 0 }
