package host

import (
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/wrap"
)

// DevicePrefix begins the names of devices, before that of their network
// interface: goroce_eth0.
const DevicePrefix = "goroce_"

// Options say what device to open. The zero value opens the interface of the
// default route.
type Options struct {
	// Link is "udp", "rawsock", "afxdp" or "auto", which "" stands for.
	Link string

	// NetIf names the network interface whose addresses the device has. Addrs
	// names the addresses themselves, in GID order; IPv6 link-local ones carry
	// their zone. At most one of the two may be set. With neither it is the
	// interface of the default route or, failing that, the only one that is up
	// besides loopback.
	NetIf string
	Addrs []netip.Addr

	// Fault and Corrupt make the network bad on purpose: see wrap.Fault, and
	// wrap.Corrupt, whose seed is Fault.Seed and whose probability is Corrupt.
	Fault   wrap.FaultConfig
	Corrupt float64

	// FlushRxe sends FLUSH with the ICRC that rdma_rxe computes for it, which
	// counts the headers twice. Other peers drop it; what arrives is taken either
	// way.
	FlushRxe bool

	// Pcap takes a pcapng capture of all frames. It is complete when the device
	// is closed, which also reports the first error in writing it.
	Pcap io.Writer
	// Trace is called for each frame. It runs on the device's own goroutine.
	Trace func(*wrap.Event)

	// Device adjusts the device. Its name is that of the interface behind
	// DevicePrefix, unless it says otherwise.
	Device roce.Options
}

// Open opens a device. Its port is active while the network interface is up, has
// a carrier, and holds any of the addresses.
//
// An address that another program speaks RoCEv2 on is a *port.Error; a link that
// needs a privilege which the process lacks, and which was asked for by name, is a
// *CapabilityError.
func Open(o Options) (*roce.Device, error) {
	dev, err := open(o)
	if err != nil {
		return nil, fmt.Errorf("open RDMA device: %w", err)
	}
	return dev, nil
}

func open(o Options) (*roce.Device, error) {
	addrs, err := addresses(&o)
	if err != nil {
		return nil, err
	}
	l, err := openLink(o.Link, addrs)
	if err != nil {
		return nil, err
	}
	if o.Device.Name == "" {
		o.Device.Name = DevicePrefix + l.Caps().NetIf
	}
	if l, err = stack(l, &o); err != nil {
		return nil, err
	}
	w := &watched{Link: l}
	dev, err := roce.Open(w, o.Device)
	if err != nil {
		_ = w.Close()
		return nil, err
	}
	if err := w.watch(dev); err != nil {
		_ = dev.Close()
		return nil, err
	}
	return dev, nil
}

// stack puts the wrappers around l, in the order that package link prescribes.
// On an error it closes l.
func stack(l link.Link, o *Options) (link.Link, error) {
	l = wrap.Turn(l)
	if o.Trace != nil {
		l = wrap.Trace(l, o.Trace)
	}
	if o.Pcap != nil {
		capture, err := wrap.Pcap(l, o.Pcap, time.Time{})
		if err != nil {
			_ = l.Close()
			return nil, err
		}
		l = capture
	}
	if o.Corrupt > 0 {
		l = wrap.Corrupt(l, o.Fault.Seed, o.Corrupt)
	}
	if o.FlushRxe {
		l = wrap.SealForRxe(l)
	} else {
		l = wrap.Seal(l)
	}
	if f := &o.Fault; f.Drop > 0 || f.Duplicate > 0 || f.Reorder > 0 || f.Delay > 0 {
		l = wrap.Fault(l, *f)
	}
	return l, nil
}
