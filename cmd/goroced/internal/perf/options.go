package perf

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/goroce/goroce/cmd/goroced/internal/device"
	"github.com/goroce/goroce/cmd/goroced/internal/meet"
	"github.com/goroce/goroce/cmd/goroced/internal/waiting"
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// Options of Run. Start from Defaults. Options marked (both) must be equal at both ends, because they are not
// transmitted.
type Options struct {
	Op      Op      // (both)
	Test    Test    // (both)
	Service Service // (both)

	Host string // host of the server; "" makes this end the server
	Port int    // TCP port of the server, or its rdma_cm port if CM is set
	CM   bool   // connect by rdma_cm instead of TCP (both); the C tools cannot with UC

	GIDIndex int    // index of the local address; -1: the address of the TCP connection
	MTU      ib.MTU // path MTU, 0: the port's; the smaller one of both ends is used

	Size     int           // bytes of a message (both)
	All      bool          // all powers of two from 2 to Size, or to 8 MiB if Size is 0 (both)
	Iters    int           // messages of each queue pair and size in each direction (both)
	Duration time.Duration // run for this time instead, and measure its middle half (both)
	NumQP    int           // queue pairs (both)

	Bidirectional bool // both ends send; BW only (both)

	TxDepth  int // outstanding requests of a queue pair
	RxDepth  int // receives that are kept posted on a queue pair; Send only
	CQMod    int // every CQMod-th request makes a completion; 0 chooses
	PostList int // requests to post at a time; 0: as many as there is room for
	Inline   int // messages up to this size are sent inline

	// Outstanding is the number of READs or atomics that a queue pair keeps in flight; 0 stands for the device's limit.
	// Read and Atomic only.
	Outstanding int
	AtomicOp    AtomicOp // Atomic only
	Events      bool     // sleep until completions arrive instead of polling

	AckTimeout int // RC: code t of the local ACK timeout, 4.096 us * 2^t
	RetryCount int // RC: retransmissions of a packet before the peer counts as dead

	// Timeout limits the TCP connection's setup, each message of the exchange, and how long nothing may happen in a
	// run. A server waits for its client without limit.
	Timeout time.Duration

	Gbits bool // bandwidth in Gb/s instead of MiB/s

	Both string      // options that the other end needs, too, for the line of a server that waits: " -q 4"
	Here device.Here // what a client on this machine needs, for the line of a server that waits

	Out io.Writer // output of the C tool
	// Columns is the width of Out if it is a terminal; 0 if it is not, and gets perftest's layout.
	Columns int
	Log     io.Writer // advice and progress for people; may be nil

	inspect func(*endpoint) // for tests: called before the memory is freed
	mute    bool            // for tests: the peer is not told of the options, as by the C tools

	// For tests in virtual time:
	yield   waiting.Yield
	network meet.Network
}

// MaxSize limits the size of a message, and the memory of an end.
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

// normalize fills in defaults.
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

// By default every hundredth message makes a completion, as in the C tool, and every message above 8 KiB. A quarter of
// the queue keeps the other three quarters busy.
const (
	maxCQMod = 100
	noCQMod  = 8192
)

// check refuses invalid options before the peer is contacted.
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
			return driver.Refuse("perf", c.attr, c.value, fmt.Sprintf("%d to %d", c.min, c.max), ib.ErrInvalid)
		}
	}
	if err := o.checkTest(); err != nil {
		return err
	}
	return o.checkPath(attr, port)
}

// maxQP is the C tool's limit.
const maxQP = 16384

// checkTest refuses options that are not valid for the test.
func (o *Options) checkTest() error {
	t := o.traits()
	switch {
	case !slices.Contains(t.services, o.Service):
		return driver.Refuse("perf", "Service", o.Service, fmt.Sprintf("%v for %s %s", t.services, o.Op, o.Test),
			ib.ErrInvalid)
	case o.Op == Atomic && o.Size != 8:
		return driver.Refuse("perf", "Size", o.Size, "8, which is what atomics work on", ib.ErrInvalid)
	case o.Op == Atomic && o.All:
		return driver.Refuse("perf", "All", true, "off, as atomics have one size", ib.ErrInvalid)
	case o.All && o.Duration != 0:
		return driver.Refuse("perf", "All", true,
			"one size with Duration; the ends would not change it at the same time",
			ib.ErrInvalid)
	case o.All && o.Size < 2:
		return driver.Refuse("perf", "Size", o.Size, "at least 2 with All", ib.ErrInvalid)
	case o.Bidirectional && o.Test == Lat:
		return driver.Refuse("perf", "Bidirectional", true, "off with lat, where messages go both ways", ib.ErrInvalid)
	case o.NumQP > 1 && o.Test == Lat:
		return driver.Refuse("perf", "NumQP", o.NumQP, "1 with lat", ib.ErrInvalid)
	case o.Events && t.memory:
		return driver.Refuse("perf", "Events", true, "off with write lat: WRITEs make no event where they arrive",
			ib.ErrInvalid)
	case o.Duration < 0:
		return driver.Refuse("perf", "Duration", o.Duration, "0 or more", ib.ErrInvalid)
	case o.Timeout <= 0:
		return driver.Refuse("perf", "Timeout", o.Timeout, "more than 0", ib.ErrInvalid)
	case o.Inline > 0 && o.fetches():
		return driver.Refuse("perf", "Inline", o.Inline, "0, as requests to read carry no data", ib.ErrInvalid)
	}
	return nil
}

// checkPath refuses options that the path, or the device, does not support.
func (o *Options) checkPath(attr *ib.DeviceAttr, port *ib.PortAttr) error {
	switch {
	case !o.MTU.Valid():
		return driver.CheckMTU("perf", o.MTU)
	case o.MTU > port.ActiveMTU:
		return driver.Refuse("perf", "MTU", int(o.MTU),
			fmt.Sprintf("at most %d, which is what the packets of %s carry", port.ActiveMTU, port.NetIf), ib.ErrInvalid)
	case o.datagrams() && o.Size > int(o.MTU):
		return driver.Refuse("perf", "Size", o.Size,
			fmt.Sprintf("1 to %d with UD, where a message is one packet", o.MTU),
			ib.ErrInvalid)
	case 2*o.NumQP > MaxSize/areaSize(o, minCycle):
		return driver.Refuse("perf", "NumQP", o.NumQP,
			fmt.Sprintf("at most %d with messages of %d bytes, as the buffers of all may take %d bytes",
				MaxSize/areaSize(o, minCycle)/2, o.Size, MaxSize), ib.ErrInvalid)
	case o.NumQP*(o.sendDepth()+o.RxDepth) > attr.MaxCQE:
		return driver.Refuse("perf", "NumQP", o.NumQP,
			fmt.Sprintf("at most %d with these depths, as all share a completion queue",
				attr.MaxCQE/(o.sendDepth()+o.RxDepth)), ib.ErrInvalid)
	}
	return nil
}

// sendDepth returns the length of a send queue. A latency test requests completions only from time to time, and needs
// room in between.
func (o *Options) sendDepth() int {
	if o.Test == Lat {
		return max(o.TxDepth, 4*latCQMod)
	}
	return o.TxDepth
}

// sizes returns the sizes of the messages, each of which is a run.
func (o *Options) sizes() (sizes []int) {
	if !o.All {
		return []int{o.Size}
	}
	for size := 2; size <= o.Size; size *= 2 {
		sizes = append(sizes, size)
	}
	return sizes
}
