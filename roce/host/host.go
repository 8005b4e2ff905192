package host

import (
	"fmt"
	"io"
	"net/netip"
	"sync"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/wrap"
)

// DevicePrefix precedes the network interface in names of devices: goroce_eth0.
const DevicePrefix = "goroce_"

// Options configure a device. The zero value opens the interface of the default route.
type Options struct {
	// Link is "udp", "rawsock", "afxdp" or "auto"; "" stands for "auto".
	Link string

	// NetIf is the network interface whose addresses the device has, including later ones. Addrs are the addresses
	// themselves, in GID order; IPv6 link-local ones need a zone. The device then has no others, and has each for as
	// long as it exists. At most one of NetIf and Addrs may be set. Without either, the interface is that of the
	// default route or else the only one that is up besides loopback.
	NetIf string
	Addrs []netip.Addr

	// Shards is the number of loops of the device, each with a goroutine and a link of its own: a power of two up to
	// link.MaxShards. 0 means one for each four processors (GOMAXPROCS), at most 4, or 1 if the link cannot have
	// more: rawsock never can, afxdp has at most one for each queue of the interface. The link's note tells the number
	// unless it is 1. See roce.OpenShards for how QPs are distributed.
	Shards int

	// Fault has the faults of a bad network: see wrap.Fault and wrap.Corrupt. The seed is for the first shard; those of
	// the others are derived from it. OnDrop is never called concurrently.
	Fault wrap.FaultConfig

	// FlushRxe sends FLUSH with the ICRC that rdma_rxe computes, which covers the headers twice. Other peers drop it.
	// Both kinds are accepted.
	FlushRxe bool

	// Pcap receives a pcapng capture of all frames. It is complete when the device is closed; Close then returns the
	// first error of writing.
	Pcap io.Writer
	// Trace is called for each frame, on goroutines of the device, never concurrently.
	Trace func(*wrap.Event)

	// Live, if not nil, can capture the device's traffic, and apply faults to it, from the return of Open until the
	// device is closed.
	Live *Live

	// OnAddress, if not nil, is called with the error each time that an address of the interface could not be added to
	// the device. It is called on one goroutine.
	OnAddress func(error)

	// OnNetIf, if it is not nil, is told when the network interface is gone, with index 0,
	// and when there is one of its name again. It is called on one goroutine.
	OnNetIf func(name string, index int)

	// Device adjusts the device. Its name is that of the interface behind
	// DevicePrefix, unless it says otherwise.
	Device roce.Options
}

// Open opens a device. Its port is active while the network interface is up, has a carrier, and has any of the
// addresses. When addresses come and go the GID table changes, which raises ib.EventGIDChange; the interface's MTU
// determines the active MTU. An address that cannot be used yet is tried again after the next event of any interface or
// address of the host.
//
// If another program uses RoCEv2 on an address, the error is a *port.Error. If the link was chosen by name, and needs a
// privilege that the process does not have, it is a *CapabilityError.
func Open(o Options) (roce.Device, error) {
	dev, err := open(o)
	if err != nil {
		return nil, fmt.Errorf("open RDMA device: %w", err)
	}
	return dev, nil
}

func open(o Options) (roce.Device, error) {
	addrs, err := addresses(&o)
	if err != nil {
		return nil, err
	}
	if n := o.Shards; n < 0 || n > link.MaxShards || n&(n-1) != 0 {
		return nil, driver.Refuse("choose link", "Shards", n,
			fmt.Sprintf("0, or a power of two up to %d", link.MaxShards),
			ib.ErrInvalid)
	}
	h := &hearing{}
	links, err := openLinks(o.Link, addrs, o.Shards, h)
	if err != nil {
		return nil, err
	}
	if o.Device.Name == "" {
		o.Device.Name = DevicePrefix + links[0].Caps().NetIf
	}
	var live *liveDevice
	if o.Live != nil {
		live = &liveDevice{name: o.Device.Name}
	}
	if err := stackAll(links, o, live); err != nil {
		closeAll(links)
		return nil, err
	}
	paths, err := newPaths()
	if err != nil {
		closeAll(links)
		return nil, err
	}
	w := &watched{Link: links[0], paths: paths}
	links[0] = w
	if o.Device.Route == nil {
		o.Device.Route = w.paths.find
	}
	if o.Device.Source == nil {
		o.Device.Source = w.paths.source
	}
	dev, err := roce.OpenShards(links, o.Device)
	if err != nil {
		closeAll(links)
		return nil, err
	}
	h.dev.Store(&dev)
	if err := w.watch(dev, &o); err != nil {
		_ = dev.Close()
		return nil, err
	}
	if live != nil {
		o.Live.add(live)
	}
	return dev, nil
}

func closeAll(links []link.Link) {
	for _, l := range links {
		_ = l.Close()
	}
}

// seedStep is the difference between the seeds of two shards: 2^64 over the golden ratio, an odd number whose bits look
// random.
const seedStep = 0x9E3779B97F4A7C15

// stackAll puts the wrappers around each link, including those of live unless it is nil. Callbacks that links share are
// serialized.
func stackAll(links []link.Link, o Options, live *liveDevice) error {
	var mu sync.Mutex
	if trace := o.Trace; trace != nil && len(links) > 1 {
		o.Trace = func(e *wrap.Event) {
			mu.Lock()
			defer mu.Unlock()
			trace(e)
		}
	}
	if onDrop := o.Fault.OnDrop; onDrop != nil && len(links) > 1 {
		o.Fault.OnDrop = func(now ib.Instant, r *link.Run, frame []byte) {
			mu.Lock()
			defer mu.Unlock()
			onDrop(now, r, frame)
		}
	}
	var capture *wrap.Capturer
	for i := range links {
		l := wrap.Loopback(links[i])
		if o.Trace != nil {
			l = wrap.Trace(l, o.Trace)
		}
		if o.Pcap != nil {
			if err := record(&capture, l, o.Pcap); err != nil {
				return err
			}
			l = capture
		}
		links[i] = addFaults(live.tapped(l), &o, live)
		o.Fault.Seed += seedStep
	}
	return nil
}

// record puts a Capturer around l: the first one, or one that writes to the same file.
func record(capture **wrap.Capturer, l link.Link, w io.Writer) (err error) {
	if *capture != nil {
		*capture = (*capture).Beside(l)
		return nil
	}
	*capture, err = wrap.Pcap(l, w, time.Time{})
	return err
}

// addFaults puts the seal around l, and the faults above and below it, in the order that package link requires.
func addFaults(l link.Link, o *Options, live *liveDevice) link.Link {
	if o.Fault.Corrupt > 0 {
		l = wrap.Corrupt(l, o.Fault)
	}
	l = live.corrupted(l)
	if o.FlushRxe {
		l = wrap.SealForRxe(l)
	} else {
		l = wrap.Seal(l)
	}
	l = live.ruled(l)
	if !o.Fault.Perfect() {
		l = wrap.Fault(l, o.Fault)
	}
	return l
}
