//go:build linux

package main

import (
	"log/slog"
	"slices"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce"
)

// portSeen is what was last seen of a device's port.
type portSeen struct {
	state ib.PortState
	mtu   ib.MTU
	gids  []ib.GIDEntry
	since time.Time // it is in the state
}

// observe looks at a device's port after an event, and logs what has changed.
func (d *daemon) observe(dev roce.Device) {
	attr, err := dev.QueryPort(1)
	if err != nil {
		return // it is being closed
	}
	gids, err := dev.GIDs(1)
	if err != nil {
		return
	}
	name := dev.Attr().Name
	d.portsMu.Lock()
	defer d.portsMu.Unlock()
	was, known := d.ports[name]
	is := portSeen{attr.State, attr.ActiveMTU, gids, was.since}
	if was.state != is.state {
		is.since = time.Now()
	}
	d.ports[name] = is
	if known {
		was.logChange(d.log.With("device", name, "netif", dev.Link().NetIf), &is)
	}
}

// since returns when a port went to the state that it is in.
func (d *daemon) since(name string) time.Time {
	d.portsMu.Lock()
	defer d.portsMu.Unlock()
	return d.ports[name].since
}

// logChange says what is new.
func (p *portSeen) logChange(log *slog.Logger, is *portSeen) {
	switch {
	case p.state == is.state:
	case is.state == ib.PortActive:
		log.Info("the port is active")
	default:
		log.Warn("the port is down: its interface is down, has no carrier or none of its addresses")
	}
	if p.mtu != is.mtu {
		log.Info("the active MTU has changed", "was", int(p.mtu), "is", int(is.mtu))
	}
	for _, e := range p.gids {
		if !slices.ContainsFunc(is.gids, func(o ib.GIDEntry) bool { return o.GID == e.GID }) {
			log.Info("an address is gone", "gid_index", e.Index, "address", e.GID.Addr())
		}
	}
	for _, e := range is.gids {
		if !slices.ContainsFunc(p.gids, func(o ib.GIDEntry) bool { return o.GID == e.GID }) {
			log.Info("an address has come", "gid_index", e.Index, "address", e.GID.Addr())
		}
	}
}
