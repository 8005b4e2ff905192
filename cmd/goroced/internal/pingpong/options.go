package pingpong

import (
	"fmt"
	"io"
	"time"

	"github.com/goroce/goroce/cmd/goroced/internal/device"
	"github.com/goroce/goroce/cmd/goroced/internal/meet"
	"github.com/goroce/goroce/cmd/goroced/internal/waiting"
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// Options of Run. Start from Defaults.
type Options struct {
	Service Service // must be the same at the peer

	Host string // host of the server; "" makes this end the server
	Port int    // TCP port of the server

	IBPort   int    // always 1
	GIDIndex int    // index of the local address; -1: the address of the TCP connection
	Size     int    // bytes of a message
	MTU      ib.MTU // path MTU; 0 with UD, where a message is one packet
	NumQP    int    // queue pairs; 1, except with SRQ
	RxDepth  int    // receives that are kept posted
	Iters    int    // messages of each end, of all queue pairs together
	SL       int    // service level; RoCEv2 packets do not carry it
	Events   bool   // sleep until completions arrive instead of polling first
	Check    bool   // check the data

	// For RC and SRQ:
	AckTimeout int // code t of the local ACK timeout, 4.096 us * 2^t
	RetryCount int // retransmissions of a packet before the peer counts as dead

	// Timeout limits the TCP connection's setup, the exchange over it, and each wait for the next message. A server
	// waits for its client without limit.
	Timeout time.Duration

	Both string      // options that the other end needs, too, for the line of a server that waits: " -c"
	Here device.Here // what a client on this machine needs, for the line of a server that waits

	Out io.Writer // output of the C tool
	// Columns is the width of Out if it is a terminal; 0 if it is not, and gets the C tool's lines.
	Columns int
	Log     io.Writer // advice for people; may be nil

	mute bool // for tests: the peer is not told of the options, as by the C tools

	// For tests in virtual time:
	yield   waiting.Yield
	network meet.Network
}

// Defaults returns the defaults of the service's C tool.
func Defaults(s Service) Options {
	t := s.traits()
	return Options{Service: s, Port: 18515, IBPort: 1, GIDIndex: -1, Size: t.size, MTU: t.mtu, NumQP: t.numQP,
		RxDepth: 500, Iters: 1000, AckTimeout: 14, RetryCount: 7, Timeout: 10 * time.Second, Out: io.Discard}
}

// MaxSize limits the size of a message, and of the memory for received messages.
const MaxSize = 1 << 30

// check refuses invalid options before the peer is contacted.
func (o *Options) check(dev ib.Device) error {
	if o.Service < 0 || int(o.Service) >= len(services) {
		return driver.Refuse("pingpong", "Service", o.Service, ServiceNames(), ib.ErrInvalid)
	}
	attr := dev.Attr()
	port, err := dev.QueryPort(o.IBPort)
	if err != nil {
		return err
	}
	receives := attr.MaxQPWR
	if o.Service.traits().shared {
		receives = attr.MaxSRQWR
	}
	for _, c := range []struct {
		attr            string
		value, min, max int
	}{
		{"Port", o.Port, 0, 65535},
		{"Size", o.Size, 1, min(MaxSize, int(port.MaxMsgSize))},
		{"NumQP", o.NumQP, 1, maxQP},
		{"RxDepth", o.RxDepth, o.NumQP, min(receives, attr.MaxCQE-o.NumQP)},
		{"Iters", o.Iters, 1, 1<<31 - 1},
		{"SL", o.SL, 0, 15},
		{"AckTimeout", o.AckTimeout, 1, 31},
		{"RetryCount", o.RetryCount, 0, 7},
	} {
		if c.value < c.min || c.value > c.max {
			return driver.Refuse("pingpong", c.attr, c.value, fmt.Sprintf("%d to %d", c.min, c.max), ib.ErrInvalid)
		}
	}
	return o.checkService(&port)
}

// checkService refuses options that are not valid for the service or the path MTU.
func (o *Options) checkService(port *ib.PortAttr) error {
	t := o.Service.traits()
	switch {
	case t.datagrams && o.MTU != 0:
		return driver.Refuse("pingpong", "MTU", o.MTU, "none with service ud, where a message is one packet",
			ib.ErrInvalid)
	case t.datagrams && o.Size > int(port.ActiveMTU):
		return driver.Refuse("pingpong", "Size", o.Size,
			fmt.Sprintf("1 to %d, which is what a packet of %s carries; the peer must use the same",
				port.ActiveMTU, port.NetIf), ib.ErrInvalid)
	case !t.datagrams && !o.MTU.Valid():
		return driver.CheckMTU("pingpong", o.MTU)
	case o.MTU > port.ActiveMTU:
		return driver.Refuse("pingpong", "MTU", o.MTU,
			fmt.Sprintf("at most %d, which is what the packets of %s carry; the peer must use the same",
				port.ActiveMTU, port.NetIf), ib.ErrInvalid)
	case o.NumQP > 1 && !t.shared:
		return driver.Refuse("pingpong", "NumQP", o.NumQP, "1, except with service srq", ib.ErrInvalid)
	case o.areas() > MaxSize/o.Size:
		return driver.Refuse("pingpong", "RxDepth", o.RxDepth,
			fmt.Sprintf("at most %d to check messages of %d bytes, as each receive then has memory of its own",
				MaxSize/o.Size, o.Size), ib.ErrInvalid)
	case o.Timeout <= 0:
		return driver.Refuse("pingpong", "Timeout", o.Timeout, "more than 0", ib.ErrInvalid)
	}
	return nil
}

// ackTimeout is the local ACK timeout.
func (o *Options) ackTimeout() time.Duration { return 4096 * time.Nanosecond << o.AckTimeout }
