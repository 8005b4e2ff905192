package host

import (
	"net/netip"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/neigh"
)

// watched is the link of a device whose port state follows its network interface.
// It ends the watch when the device closes it.
type watched struct {
	link.Link
	stop func()
}

// watch tells the device the state of its port, now and whenever it changes.
func (w *watched) watch(dev *roce.Device) (err error) {
	caps := dev.Link()
	addrs := make([]netip.Addr, len(caps.Local))
	for i, g := range caps.Local {
		addrs[i] = g.Addr()
	}
	w.stop, err = neigh.WatchLink(caps.NetIf, addrs, func(s neigh.LinkState) { dev.SetPortState(portState(s)) })
	return err
}

// portState returns what an interface makes of a port. Linux's own RoCE devices
// look at the interface and its carrier (ib_core, ib_get_curr_port_state). A port
// whose addresses are all gone is of no more use than one that is down.
func portState(s neigh.LinkState) ib.PortState {
	if s.Up && s.Held > 0 {
		return ib.PortActive
	}
	return ib.PortDown
}

// Close ends the watch, unless it never began.
func (w *watched) Close() error {
	err := w.Link.Close()
	if w.stop != nil {
		w.stop()
	}
	return err
}
