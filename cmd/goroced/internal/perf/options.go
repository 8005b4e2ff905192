package perf

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/goroce/goroce/ib"
)

// Options of Run. Start from Defaults. What is marked (both) must be the same at
// both ends: nothing of it goes over the wire.
type Options struct {
	Op      Op      // (both)
	Test    Test    // (both)
	Service Service // (both)

	Host string // where the server is; "" makes this end the server
	Port int    // TCP port of the server, or with CM rdma_cm's
	CM   bool   // meet and connect by rdma_cm, not over TCP (both); the C tools do not with UC

	GIDIndex int    // local address; -1 takes the one that the TCP connection uses
	MTU      ib.MTU // path MTU, 0 for the port's; the smaller of both ends' is used

	Size     int           // bytes of a message (both)
	All      bool          // all sizes from 2 to Size or, with Size 0, to 8 MiB, in powers of two (both)
	Iters    int           // messages of each queue pair and size, each way (both)
	Duration time.Duration // run for so long instead, and measure its middle half (both)
	NumQP    int           // queue pairs (both)

	Bidirectional bool // both ends send; BW only (both)

	TxDepth  int // requests in flight of a queue pair
	RxDepth  int // receives to keep posted on a queue pair; Send only
	CQMod    int // a completion is asked for each so many requests; 0 chooses
	PostList int // requests to post at a time; 0 as many as there is room for
	Inline   int // messages up to this size are copied into the request

	// Outstanding is how many READs or atomics a queue pair has in flight; 0 takes the most that
	// the device can. Read and Atomic only.
	Outstanding int
	AtomicOp    AtomicOp // Atomic only
	Events      bool     // sleep until completions arrive, rather than poll

	AckTimeout int // RC: code t of the local ACK timeout, 4.096 us * 2^t
	RetryCount int // RC: how often a packet is sent again before the peer counts as gone

	// Timeout bounds the TCP connection, each message of the meeting, and how long
	// nothing may happen in a run. A server waits for its client without limit.
	Timeout time.Duration

	Gbits bool // bandwidth in Gb/s, not in MiB/s

	Out io.Writer // what the C tool prints
	Log io.Writer // advice and progress for people; may be nil

	inspect func(*endpoint) // tests look at the memory before it is freed
}

// MaxSize bounds a message, and all memory of an end.
const MaxSize = 1 << 30

// largest is the last size of Options.All.
const largest = 8 << 20

// Defaults returns the defaults of the C tool.
func Defaults(op Op, test Test) Options {
	o := Options{Op: op, Test: test, Port: 18515, GIDIndex: -1, NumQP: 1, AckTimeout: 14, RetryCount: 7,
		Timeout: 10 * time.Second, Out: io.Discard}
	if o.known() {
		t := o.traits()
		o.Size, o.Iters, o.TxDepth, o.RxDepth = t.size, t.iters, t.txDepth, t.rxDepth
	}
	return o
}

func (o *Options) known() bool {
	return o.Op >= 0 && o.Op < numOps && o.Test >= 0 && o.Test < numTests
}

func (o *Options) traits() *traits { return &tests[o.Op][o.Test] }

func (o *Options) server() bool { return o.Host == "" }

// normalize fills in what Options leave open.
func (o *Options) normalize(attr *ib.DeviceAttr, port *ib.PortAttr) {
	if o.Log == nil {
		o.Log = io.Discard
	}
	if o.MTU == 0 {
		o.MTU = port.ActiveMTU
	}
	if o.All && o.Size == 0 {
		o.Size = largest
		if o.datagrams() {
			o.Size = int(o.MTU)
		}
	}
	if o.CQMod == 0 {
		o.CQMod = max(1, min(o.TxDepth/4, maxCQMod))
		if o.Size > noCQMod {
			o.CQMod = 1
		}
	}
	if o.Outstanding == 0 {
		o.Outstanding = min(attr.MaxQPRdAtomic, attr.MaxQPInitRdAtom)
	}
}

// A completion each hundred messages is the C tool's default, and one each message
// above 8 KiB. A quarter of the queue keeps the other three at work.
const (
	maxCQMod = 100
	noCQMod  = 8192
)

// check refuses options that cannot work, before the peer learns of this end.
func (o *Options) check(attr *ib.DeviceAttr, port *ib.PortAttr) error {
	limit := min(MaxSize, int(port.MaxMsgSize))
	if o.Op == Atomic {
		limit = 8
	}
	for _, c := range []struct {
		attr            string
		value, min, max int
	}{
		{"Port", o.Port, 0, 65535},
		{"Size", o.Size, 1, limit},
		{"Iters", o.Iters, 1, 1<<31 - 1},
		{"NumQP", o.NumQP, 1, min(maxQP, attr.MaxQP)},
		{"TxDepth", o.TxDepth, 1, attr.MaxQPWR},
		{"RxDepth", o.RxDepth, 1, attr.MaxQPWR},
		{"CQMod", o.CQMod, 1, o.TxDepth},
		{"PostList", o.PostList, 0, o.TxDepth},
		{"Inline", o.Inline, 0, attr.MaxInline},
		{"Outstanding", o.Outstanding, 1, min(attr.MaxQPRdAtomic, attr.MaxQPInitRdAtom)},
		{"AckTimeout", o.AckTimeout, 1, 31},
		{"RetryCount", o.RetryCount, 0, 7},
	} {
		if c.value < c.min || c.value > c.max {
			return ib.Refuse("perf", c.attr, c.value, fmt.Sprintf("%d to %d", c.min, c.max), ib.ErrInvalid)
		}
	}
	if err := o.checkTest(); err != nil {
		return err
	}
	return o.checkPath(attr, port)
}

// maxQP is that of the C tool.
const maxQP = 16384

// checkTest refuses what the test does not allow.
func (o *Options) checkTest() error {
	t := o.traits()
	switch {
	case !slices.Contains(t.services, o.Service):
		return ib.Refuse("perf", "Service", o.Service, fmt.Sprintf("%v for %s %s", t.services, o.Op, o.Test),
			ib.ErrInvalid)
	case o.Op == Atomic && o.Size != 8:
		return ib.Refuse("perf", "Size", o.Size, "8, which is what atomics work on", ib.ErrInvalid)
	case o.Op == Atomic && o.All:
		return ib.Refuse("perf", "All", true, "off, as atomics have one size", ib.ErrInvalid)
	case o.All && o.Duration != 0:
		return ib.Refuse("perf", "All", true, "one size with Duration; the ends would not change it at the same time",
			ib.ErrInvalid)
	case o.All && o.Size < 2:
		return ib.Refuse("perf", "Size", o.Size, "at least 2 with All", ib.ErrInvalid)
	case o.Bidirectional && o.Test == Lat:
		return ib.Refuse("perf", "Bidirectional", true, "off with lat, where messages go both ways", ib.ErrInvalid)
	case o.NumQP > 1 && o.Test == Lat:
		return ib.Refuse("perf", "NumQP", o.NumQP, "1 with lat", ib.ErrInvalid)
	case o.Events && t.memory:
		return ib.Refuse("perf", "Events", true, "off with write lat: WRITEs make no event where they arrive",
			ib.ErrInvalid)
	case o.Duration < 0:
		return ib.Refuse("perf", "Duration", o.Duration, "0 or more", ib.ErrInvalid)
	case o.Timeout <= 0:
		return ib.Refuse("perf", "Timeout", o.Timeout, "more than 0", ib.ErrInvalid)
	case o.Inline > 0 && o.fetches():
		return ib.Refuse("perf", "Inline", o.Inline, "0, as requests to read carry no data", ib.ErrInvalid)
	}
	return nil
}

// checkPath refuses what the path, or the device, does not carry.
func (o *Options) checkPath(attr *ib.DeviceAttr, port *ib.PortAttr) error {
	switch {
	case !o.MTU.Valid():
		return ib.Refuse("perf", "MTU", int(o.MTU), "256, 512, 1024, 2048, 4096", ib.ErrInvalid)
	case o.MTU > port.ActiveMTU:
		return ib.Refuse("perf", "MTU", int(o.MTU), fmt.Sprintf("at most %d, which is what the packets of %s carry",
			port.ActiveMTU, port.NetIf), ib.ErrInvalid)
	case o.datagrams() && o.Size > int(o.MTU):
		return ib.Refuse("perf", "Size", o.Size, fmt.Sprintf("1 to %d with UD, where a message is one packet", o.MTU),
			ib.ErrInvalid)
	case 2*o.NumQP > MaxSize/areaSize(o, minCycle):
		return ib.Refuse("perf", "NumQP", o.NumQP,
			fmt.Sprintf("at most %d with messages of %d bytes, as the buffers of all may take %d bytes",
				MaxSize/areaSize(o, minCycle)/2, o.Size, MaxSize), ib.ErrInvalid)
	case o.NumQP*(o.sendDepth()+o.RxDepth) > attr.MaxCQE:
		return ib.Refuse("perf", "NumQP", o.NumQP,
			fmt.Sprintf("at most %d with these depths, as all share a completion queue",
				attr.MaxCQE/(o.sendDepth()+o.RxDepth)), ib.ErrInvalid)
	}
	return nil
}

// sendDepth is the length of a send queue. A test of latency asks for a completion
// now and then only, and needs room in between.
func (o *Options) sendDepth() int {
	if o.Test == Lat {
		return max(o.TxDepth, 4*latCQMod)
	}
	return o.TxDepth
}

// sizes are those of the messages, one run each.
func (o *Options) sizes() (sizes []int) {
	if !o.All {
		return []int{o.Size}
	}
	for size := 2; size <= o.Size; size *= 2 {
		sizes = append(sizes, size)
	}
	return sizes
}
