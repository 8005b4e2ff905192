package host

import (
	"fmt"
	"io"
	"net/netip"
	"sync"
	"time"

	"github.com/goroce/goroce/ib"
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

	// NetIf names the network interface whose addresses the device has, those that
	// come later, too. Addrs names the addresses themselves, in GID order; IPv6
	// link-local ones carry their zone. The device has no others then, and these for
	// as long as they are there. At most one of the two may be set. With neither it is the
	// interface of the default route or, failing that, the only one that is up
	// besides loopback.
	NetIf string
	Addrs []netip.Addr

	// Shards is how many loops the device has, each on a goroutine and a link of its
	// own: a power of two up to link.MaxShards. 0 takes one for each four processors
	// (GOMAXPROCS), 4 at most, and 1 where the link cannot have more: rawsock never
	// can, afxdp has one for each queue of the interface at most. The link's note says
	// how many there are, if it is not one. See roce.OpenShards for what belongs to
	// which.
	Shards int

	// Fault and Corrupt make the network bad on purpose: see wrap.Fault, and
	// wrap.Corrupt, whose seed is Fault.Seed and whose probability is Corrupt. The
	// seed is the first shard's; those of the others follow from it. OnDrop is never
	// called twice at a time.
	Fault   wrap.FaultConfig
	Corrupt float64

	// FlushRxe sends FLUSH with the ICRC that rdma_rxe computes for it, which
	// counts the headers twice. Other peers drop it; what arrives is taken either
	// way.
	FlushRxe bool

	// Pcap takes a pcapng capture of all frames. It is complete when the device
	// is closed, which also reports the first error in writing it.
	Pcap io.Writer
	// Trace is called for each frame, on the device's own goroutines, never twice at
	// a time.
	Trace func(*wrap.Event)

	// Live, if it is not nil, can capture and disturb the device's traffic from the time
	// when Open has returned until the device is closed.
	Live *Live

	// OnAddress, if it is not nil, is told why the device cannot have an address of its
	// interface, each time that this was tried. It is called on one goroutine.
	OnAddress func(error)

	// OnNetIf, if it is not nil, is told when the network interface is gone, with index 0,
	// and when there is one of its name again. It is called on one goroutine.
	OnNetIf func(name string, index int)

	// Device adjusts the device. Its name is that of the interface behind
	// DevicePrefix, unless it says otherwise.
	Device roce.Options
}

// Open opens a device. Its port is active while the network interface is up, has
// a carrier, and holds any of the addresses. Addresses that come and go change the GID
// table, which raises ib.EventGIDChange; the interface's MTU changes the active MTU. An
// address that cannot be used yet is tried again when the next thing happens to any
// interface or address of the host.
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
	if n := o.Shards; n < 0 || n > link.MaxShards || n&(n-1) != 0 {
		return nil, ib.Refuse("choose link", "Shards", n, fmt.Sprintf("0, or a power of two up to %d", link.MaxShards),
			ib.ErrInvalid)
	}
	links, err := openLinks(o.Link, addrs, o.Shards)
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
	w := &watched{Link: links[0]}
	links[0] = w
	dev, err := roce.OpenShards(links, o.Device)
	if err != nil {
		closeAll(links)
		return nil, err
	}
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

// seedStep is what lies between the seeds of two shards: an odd number whose bits look
// random (2^64 over the golden ratio).
const seedStep = 0x9E3779B97F4A7C15

// stackAll puts the wrappers around each link, live among them unless it is nil. What
// they share takes turns.
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
		l := wrap.Turn(links[i])
		if o.Trace != nil {
			l = wrap.Trace(l, o.Trace)
		}
		if o.Pcap != nil {
			if err := record(&capture, l, o.Pcap); err != nil {
				return err
			}
			l = capture
		}
		links[i] = disturb(live.tapped(l), &o, live)
		o.Fault.Seed += seedStep
	}
	return nil
}

// record puts a capture around l, the first one or one beside another.
func record(capture **wrap.Capturer, l link.Link, w io.Writer) (err error) {
	if *capture != nil {
		*capture = (*capture).Beside(l)
		return nil
	}
	*capture, err = wrap.Pcap(l, w, time.Time{})
	return err
}

// disturb puts the seal around l, and the faults that were or may be asked for above
// and below it, in the order that package link prescribes.
func disturb(l link.Link, o *Options, live *liveDevice) link.Link {
	if o.Corrupt > 0 {
		l = wrap.Corrupt(l, o.Fault.Seed, o.Corrupt)
	}
	l = live.corrupted(l)
	if o.FlushRxe {
		l = wrap.SealForRxe(l)
	} else {
		l = wrap.Seal(l)
	}
	l = live.ruled(l)
	if f := &o.Fault; f.Drop > 0 || f.Duplicate > 0 || f.Reorder > 0 || f.Delay > 0 {
		l = wrap.Fault(l, *f)
	}
	return l
}
