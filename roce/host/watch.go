package host

import (
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/neigh"
)

// watched is the link of a device that follows its network interface. Close also ends the watch, and waits for
// running searches for path MTUs.
type watched struct {
	link.Link
	paths *paths
	stop  func()
}

// watch reports the state of the interface to the device, now and after each change.
func (w *watched) watch(dev roce.Device, o *Options) (err error) {
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

// follow reports a state of the interface to the device. It fails if there is an address that the device cannot use
// yet.
func follow(dev roce.Device, s neigh.LinkState) error {
	if s.MTU > 0 { // 0 if the interface is gone
		dev.SetMTU(s.MTU)
		dev.SetNetIf(s.Name)
	}
	var gids []ib.GID
	for _, a := range gidOrder(s.Addrs, "") {
		gids = append(gids, ib.GIDFromAddr(a))
	}
	err := dev.SetAddresses(gids)
	dev.SetPhys(physState(s), s.Speed)
	dev.SetPortState(portState(s)) // last, so that who is notified finds the new addresses
	return err
}

// portState returns the state of the port for a state of the interface. Linux's RoCE devices use the interface and its
// carrier (ib_core, ib_get_curr_port_state). Here a port is also down if it has no address left.
func portState(s neigh.LinkState) ib.PortState {
	if s.Up && len(s.Addrs) > 0 {
		return ib.PortActive
	}
	return ib.PortDown
}

// physState returns the state of the port's link, as that of rdma_rxe (rxe_query_port).
func physState(s neigh.LinkState) ib.PhysState {
	switch {
	case s.Up:
		return ib.PhysLinkUp
	case s.Enabled:
		return ib.PhysPolling
	}
	return ib.PhysDisabled
}

// Close ends the watch, if it has begun.
func (w *watched) Close() error {
	err := w.Link.Close()
	if w.stop != nil {
		w.stop()
	}
	w.paths.close()
	return err
}
