package host

import (
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/neigh"
)

// watched is the link of a device that follows its network interface. It ends the watch
// when the device closes it.
type watched struct {
	link.Link
	stop func()
}

// watch tells the device what becomes of its interface, now and whenever that changes.
func (w *watched) watch(dev *roce.Device, o *Options) (err error) {
	index := -1 // at first
	w.stop, err = neigh.WatchLink(dev.Link().NetIf, o.Addrs, func(s neigh.LinkState) error {
		if index != -1 && s.Index != index && o.OnNetIf != nil {
			o.OnNetIf(dev.Link().NetIf, s.Index)
		}
		index = s.Index
		err := follow(dev, s)
		if err != nil && o.OnAddress != nil {
			o.OnAddress(err)
		}
		return err
	})
	return err
}

// follow tells the device the state of its interface. It fails if there is an address
// that the device cannot have yet.
func follow(dev *roce.Device, s neigh.LinkState) error {
	if s.MTU > 0 { // it is 0 when the interface is gone
		dev.SetMTU(s.MTU)
	}
	var gids []ib.GID
	for _, a := range gidOrder(s.Addrs, "") {
		gids = append(gids, ib.GIDFromAddr(a))
	}
	err := dev.SetAddresses(gids)
	dev.SetPortState(portState(s)) // who hears of it finds the addresses
	return err
}

// portState returns what an interface makes of a port. Linux's own RoCE devices
// look at the interface and its carrier (ib_core, ib_get_curr_port_state). A port
// whose addresses are all gone is of no more use than one that is down.
func portState(s neigh.LinkState) ib.PortState {
	if s.Up && len(s.Addrs) > 0 {
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
