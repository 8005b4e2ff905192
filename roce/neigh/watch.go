package neigh

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// LinkState is what may change about an interface while it is in use. It is all
// zero once the interface is gone.
type LinkState struct {
	Up   bool // administratively, and with a carrier
	MTU  int  // of IP packets, in bytes
	Held int  // how many of the addresses in question it holds
}

// WatchLink calls changed with the state of an interface, of which addrs are the
// addresses in question: once before it returns, then whenever the state is
// another, from one goroutine. Changes that follow one another fast may be seen as
// one. stop ends the watch and waits for a call that is under way; it may be called
// more than once, but not by changed.
func WatchLink(name string, addrs []netip.Addr, changed func(LinkState)) (stop func(), err error) {
	w := &watch{addrs: addrs, changed: changed, ended: make(chan struct{})}
	if err := w.open(name); err != nil {
		w.close()
		return nil, fmt.Errorf("watch interface %s: %w", name, err)
	}
	changed(w.last)
	go w.run()
	return sync.OnceFunc(func() {
		w.events.Close()
		<-w.ended
	}), nil
}

// watch waits for the kernel to say that something has changed about any interface
// or address, and looks what.
type watch struct {
	index   int
	addrs   []netip.Addr
	changed func(LinkState)

	events *nl.NetlinkSocket
	ask    *netlink.Handle
	last   LinkState // as changed was told
	ended  chan struct{}
}

func (w *watch) open(name string) (err error) {
	if w.ask, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return err
	}
	itf, err := w.ask.LinkByName(name)
	if err != nil {
		return err
	}
	w.index = itf.Attrs().Index
	w.events, err = nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR)
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

// run ends when stop closes the socket.
func (w *watch) run() {
	defer close(w.ended)
	defer w.close()
	for {
		// ENOBUFS: changes came too fast, and some are lost. The others tell.
		if _, _, err := w.events.Receive(); err != nil && !errors.Is(err, unix.ENOBUFS) {
			return
		}
		// If the state changes while it is asked for, the answer is an error, and
		// another message on its way.
		if now, err := w.state(); err == nil && now != w.last {
			w.last = now
			w.changed(now)
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
	have, err := w.ask.AddrList(itf, netlink.FAMILY_ALL)
	if err != nil {
		return LinkState{}, err
	}
	a := itf.Attrs()
	s := LinkState{Up: a.RawFlags&unix.IFF_LOWER_UP != 0, MTU: a.MTU}
	for _, addr := range w.addrs {
		for _, h := range have {
			if holds(h.IPNet, addr.WithZone("").Unmap(), a.Flags&net.FlagLoopback != 0) {
				s.Held++
				break
			}
		}
	}
	return s, nil
}
