package rsocket

import (
	"net/netip"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// Options configure a connection. The defaults are those of librdmacm's rsockets.
type Options struct {
	// ReceiveBuffer is how many bytes the peer may send before they are read; it is offered in halves. SendBuffer is
	// how many bytes may be written before the peer acknowledges them. Each is 4 KiB to 1 GiB, rounded up to a multiple
	// of 4 KiB (default 128 KiB).
	ReceiveBuffer int
	SendBuffer    int

	// SendQueue and ReceiveQueue are how many messages may be outstanding in each direction: 16 to 32768, limited by
	// the device (default 384).
	SendQueue    int
	ReceiveQueue int

	// Inline is the largest size that Write passes to the device inline instead of through the send buffer: 24 up to
	// the device's limit (default 64).
	Inline int

	// MapSlots is how many buffers the peer may map at a time for WriteAt of this end: up to 128, or a multiple of 256
	// up to 32512, to which it is rounded up (default 0).
	MapSlots int

	// KeepAlive is how long a connection may be idle before an empty message checks whether the peer is still there
	// (default 15 s). Negative disables it: then Read does not notice that a peer has disappeared.
	KeepAlive time.Duration

	// Linger limits the time that Close takes in the background (default 10 s).
	Linger time.Duration

	// AckTimeout is the 5-bit code of the local ACK timeout of both ends, as in
	// rdmacm.Config.
	AckTimeout int

	// PathMTU is the largest path MTU to ask for, or to accept, as in rdmacm.Config.
	PathMTU ib.MTU

	// Local is the source address and port of Dial; a zero address or port is chosen.
	Local netip.AddrPort

	// Backlog is how many requests may wait for a Listener (default 128).
	Backlog int
	// OnRefuse is called for each request that a Listener has rejected or lost, with the reason. It may be called from
	// several goroutines at once.
	OnRefuse func(remote netip.AddrPort, err error)
}

// Limits and defaults of Options.
const (
	minBuffer, maxBuffer, defaultBuffer = 4 << 10, 1 << 30, 128 << 10
	minQueue, maxQueue, defaultQueue    = 16, 1 << 15, 384
	minInline, defaultInline            = mapEntryLen, 64
	maxMapSlots                         = 127 << 8

	defaultKeepAlive = 15 * time.Second
	defaultLinger    = 10 * time.Second
)

// resolve fills in defaults and checks the values against the device.
func (o Options) resolve(a *ib.DeviceAttr) (Options, error) {
	queue := min(maxQueue, a.MaxQPWR)
	for _, c := range []struct {
		name             string
		field            *int
		deflt, low, high int
		allowed          string
	}{
		{"ReceiveBuffer", &o.ReceiveBuffer, defaultBuffer, minBuffer, maxBuffer, "4 KiB to 1 GiB"},
		{"SendBuffer", &o.SendBuffer, defaultBuffer, minBuffer, maxBuffer, "4 KiB to 1 GiB"},
		{"SendQueue", &o.SendQueue, min(defaultQueue, queue), minQueue, queue,
			"16 to 32768, and to DeviceAttr.MaxQPWR"},
		{"ReceiveQueue", &o.ReceiveQueue, min(defaultQueue, queue), minQueue, queue,
			"16 to 32768, and to DeviceAttr.MaxQPWR"},
		{"Inline", &o.Inline, min(defaultInline, a.MaxInline), minInline, a.MaxInline, "24 to DeviceAttr.MaxInline"},
		{"MapSlots", &o.MapSlots, 0, 0, maxMapSlots, "0 to 32512"},
	} {
		if *c.field == 0 {
			*c.field = c.deflt
		}
		if *c.field < c.low || *c.field > c.high {
			return o, driver.Refuse("rsocket", c.name, *c.field, c.allowed, ib.ErrInvalid)
		}
	}
	o.ReceiveBuffer = roundUp(o.ReceiveBuffer, minBuffer)
	o.SendBuffer = roundUp(o.SendBuffer, minBuffer)
	if o.MapSlots > 128 {
		o.MapSlots = roundUp(o.MapSlots, 256)
	}
	if o.KeepAlive == 0 {
		o.KeepAlive = defaultKeepAlive
	}
	if o.Linger == 0 {
		o.Linger = defaultLinger
	}
	return o, nil
}

func roundUp(n, to int) int { return (n + to - 1) / to * to }
