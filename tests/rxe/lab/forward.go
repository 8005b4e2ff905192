package lab

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"

	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/tests/rxe/forward"
)

// The veth that replaces a guest's tap at the bridge, and its far end.
const (
	forwardPortDev = "fwdport"
	forwardDev     = "fwd"
)

// Forward puts a forwarder between the wire and a guest, counted from 1: from now on the
// conditions c apply to all RoCEv2 packets from and to that guest, each way alike. There is
// one forwarder at a time: Forward first removes the present one. With a Perfect c it does
// only that, as Reset does.
func (l *Lab) Forward(guest int, c wrap.FaultConfig) error {
	if err := l.unforward(); err != nil || c.Perfect() {
		return err
	}
	err := inside(l.WireNS, func() (err error) {
		if err := l.divert(guest); err != nil {
			return err
		}
		l.forwarded = guest
		l.forwarder, err = forward.Open(tapDev(guest), forwardDev, c)
		return err
	})
	if err != nil {
		return fmt.Errorf("lab: forwarder of guest %d: %w", guest, errors.Join(err, l.unforward()))
	}
	return nil
}

// Forwarded returns the counts since Forward for packets from the guest, and to it.
func (l *Lab) Forwarded() (from, to wrap.FaultCounts) {
	if l.forwarder == nil {
		return from, to
	}
	return l.forwarder.Counts()
}

// divert replaces a guest's tap at the bridge with a veth.
func (l *Lab) divert(guest int) error {
	bridge, err := netlink.LinkByName(bridgeDev)
	if err != nil {
		return err
	}
	tap, err := netlink.LinkByName(tapDev(guest))
	if err != nil {
		return err
	}
	if err := netlink.LinkSetNoMaster(tap); err != nil {
		return err
	}
	port := &netlink.Veth{LinkAttrs: attrs(forwardPortDev), PeerName: forwardDev}
	if err := addUp(port); err != nil {
		return err
	}
	if err := setMTU(l.mtu, forwardPortDev, forwardDev); err != nil {
		return err
	}
	far, err := netlink.LinkByName(forwardDev)
	if err != nil {
		return err
	}
	return errors.Join(netlink.LinkSetUp(far), netlink.LinkSetMaster(port, bridge))
}

// unforward removes the forwarder and restores the guest's tap.
func (l *Lab) unforward() error {
	var errs []error
	if l.forwarder != nil {
		errs = append(errs, l.forwarder.Close())
		l.forwarder = nil
	}
	if l.forwarded == 0 {
		return errors.Join(errs...)
	}
	errs = append(errs, inside(l.WireNS, func() error {
		bridge, err := netlink.LinkByName(bridgeDev)
		if err != nil {
			return err
		}
		tap, err := netlink.LinkByName(tapDev(l.forwarded))
		if err != nil {
			return err
		}
		if port, err := netlink.LinkByName(forwardPortDev); err == nil {
			if err := netlink.LinkDel(port); err != nil {
				return err
			}
		}
		return netlink.LinkSetMaster(tap, bridge)
	}))
	l.forwarded = 0
	return errors.Join(errs...)
}
