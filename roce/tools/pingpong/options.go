package pingpong

import (
	"fmt"
	"io"
	"time"

	"github.com/goroce/goroce/ib"
)

// Options of Run. Start from Defaults.
type Options struct {
	Host string // where the server is; "" makes this end the server
	Port int    // TCP port of the server

	IBPort   int    // always 1
	GIDIndex int    // local address; -1 takes the one that the TCP connection uses
	Size     int    // bytes of a message
	MTU      ib.MTU // path MTU
	RxDepth  int    // receives to keep posted
	Iters    int    // messages that each end sends
	SL       int    // service level; RoCEv2 packets have no place for it
	Events   bool   // sleep until completions arrive, rather than poll first
	Check    bool   // check the data

	AckTimeout int // code t of the local ACK timeout, 4.096 us * 2^t
	RetryCount int // how often a packet is sent again before the peer counts as gone

	// Timeout bounds the TCP connection, the meeting over it, and each wait for
	// the next message. A server waits for its client without limit.
	Timeout time.Duration

	Out io.Writer // what the C tool prints
	Log io.Writer // advice for people; may be nil
}

// Defaults returns the C tool's defaults.
func Defaults() Options {
	return Options{Port: 18515, IBPort: 1, GIDIndex: -1, Size: 4096, MTU: ib.MTU1024, RxDepth: 500, Iters: 1000,
		AckTimeout: 14, RetryCount: 7, Timeout: 10 * time.Second, Out: io.Discard}
}

// MaxSize bounds a message: what it takes in memory is twice as much.
const MaxSize = 1 << 30

// check refuses what cannot work, before anybody is bothered.
func (o *Options) check(dev ib.Device) error {
	attr := dev.Attr()
	port, err := dev.QueryPort(o.IBPort)
	if err != nil {
		return err
	}
	for _, c := range []struct {
		attr            string
		value, min, max int
	}{
		{"Port", o.Port, 0, 65535},
		{"Size", o.Size, 1, min(MaxSize, int(port.MaxMsgSize))},
		{"RxDepth", o.RxDepth, 1, min(attr.MaxQPWR, attr.MaxCQE-1)},
		{"Iters", o.Iters, 1, 1<<31 - 1},
		{"SL", o.SL, 0, 15},
		{"AckTimeout", o.AckTimeout, 1, 31},
		{"RetryCount", o.RetryCount, 0, 7},
	} {
		if c.value < c.min || c.value > c.max {
			return refuse(c.attr, c.value, fmt.Sprintf("%d to %d", c.min, c.max))
		}
	}
	switch {
	case !o.MTU.Valid():
		return refuse("MTU", o.MTU, "256, 512, 1024, 2048, 4096")
	case o.MTU > port.ActiveMTU:
		return refuse("MTU", o.MTU, fmt.Sprintf("at most %d, which is what the packets of %s carry; the peer must use the same",
			port.ActiveMTU, port.NetIf))
	case o.Timeout <= 0:
		return refuse("Timeout", o.Timeout, "more than 0")
	}
	return nil
}

func refuse(attr string, value any, allowed string) error {
	return &ib.AttrError{Op: "pingpong", Attr: attr, Value: value, Allowed: allowed, Err: ib.ErrInvalid}
}

// ackTimeout is the local ACK timeout.
func (o *Options) ackTimeout() time.Duration { return 4096 * time.Nanosecond << o.AckTimeout }
