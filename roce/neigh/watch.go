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

// LinkState is the state of an interface. It is the zero value if the interface is gone.
type LinkState struct {
	Up    bool         // administratively, and with a carrier
	MTU   int          // of IP packets, in bytes
	Addrs []netip.Addr // those of the watched addresses that exist and can be used
}

func (s *LinkState) equal(o *LinkState) bool {
	return s.Up == o.Up && s.MTU == o.MTU && slices.Equal(s.Addrs, o.Addrs)
}

// WatchLink calls changed with the state of an interface: once before it returns, and then on a goroutine whenever the
// state has changed. Changes in quick succession may be reported as one. If changed returns an error, it is called
// again after the next event of any interface or address, even if the state is the same.
//
// The watched addresses are addrs, in that order, each on the interface that has it now, or on this one if none has. If
// addrs is nil they are all addresses of this interface, in the kernel's order and without zones.
//
// stop ends the watch and waits for a running call of changed. It may be called more than once, but not by changed.
func WatchLink(name string, addrs []netip.Addr, changed func(LinkState) error) (stop func(), err error) {
	w := &watch{changed: changed, ended: make(chan struct{})}
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
	index   int
	homes   []home // of the watched addresses; nil for all of the interface
	changed func(LinkState) error

	events *nl.NetlinkSocket
	ask    *netlink.Handle
	last   LinkState // the last state passed to changed
	told   bool      // changed has been called
	again  bool      // changed must be called again
	ended  chan struct{}
}

// home is where a watched address belongs.
type home struct {
	addr     netip.Addr
	index    int  // of the interface
	loopback bool // it has all addresses of its networks
}

func (w *watch) open(name string, addrs []netip.Addr) (err error) {
	if w.ask, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return err
	}
	itf, err := w.ask.LinkByName(name)
	if err != nil {
		return err
	}
	w.index = itf.Attrs().Index
	for _, a := range addrs {
		n, err := Holding(a)
		if err != nil { // it may be added later
			n = netIf(itf.Attrs())
		}
		w.homes = append(w.homes, home{a, n.Index, n.Loopback})
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
			w.last = now
			w.again = w.changed(now) != nil
		}
	}
}

func (w *watch) state() (LinkState, error) {
	itf, err := w.ask.LinkByIndex(w.index)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return LinkState{}, nil
	}
	if err != nil {
		return LinkState{}, err
	}
	have, err := w.ask.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return LinkState{}, err
	}
	a := itf.Attrs()
	return LinkState{Up: a.RawFlags&unix.IFF_LOWER_UP != 0, MTU: a.MTU, Addrs: w.held(have)}, nil
}

// held returns the watched addresses that are among those of the host.
func (w *watch) held(have []netlink.Addr) (addrs []netip.Addr) {
	if w.homes == nil {
		for i := range have {
			if a, ok := addrOf(have[i].IP); ok && have[i].LinkIndex == w.index && w.usable(&have[i], a) {
				addrs = append(addrs, a)
			}
		}
		return addrs
	}
	for _, home := range w.homes {
		there := func(a netlink.Addr) bool {
			return a.LinkIndex == home.index && w.usable(&a, home.addr) &&
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
// first call of changed, any may be in use.
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
