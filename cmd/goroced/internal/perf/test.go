package perf

import (
	"fmt"
	"slices"
	"strings"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// Op is the measured operation.
type Op int

// The operations.
const (
	Send Op = iota
	Write
	Read
	Atomic
	numOps = iota
)

var opNames = [numOps]string{"send", "write", "read", "atomic"}

// Test is the measured property.
type Test int

// The tests.
const (
	BW  Test = iota // bandwidth: as many messages as possible
	Lat             // latency: one message at a time
	numTests
)

var testNames = [numTests]string{"bw", "lat"}

// Service is a transport service.
type Service int

// The services.
const (
	RC Service = iota // reliable connection
	UC                // unreliable connection
	UD                // unreliable datagrams
	numServices
)

var serviceNames = [numServices]string{"RC", "UC", "UD"}

// AtomicOp is the operation of Atomic.
type AtomicOp int

// The atomic operations.
const (
	FetchAndAdd AtomicOp = iota // adds 1
	CmpAndSwap                  // swaps 0 for 0
	numAtomicOps
)

var atomicNames = [numAtomicOps]string{"FETCH_AND_ADD", "CMP_AND_SWAP"}

// String is the name on the command line: "send".
func (o Op) String() string { return name(opNames[:], int(o), "Op") }

// String is the name on the command line: "bw".
func (t Test) String() string { return name(testNames[:], int(t), "Test") }

// String is the name on the command line: "RC".
func (s Service) String() string { return name(serviceNames[:], int(s), "Service") }

// String is the name on the command line: "FETCH_AND_ADD".
func (a AtomicOp) String() string { return name(atomicNames[:], int(a), "AtomicOp") }

func name(names []string, i int, kind string) string {
	if i < 0 || i >= len(names) {
		return fmt.Sprintf("%s(%d)", kind, i)
	}
	return names[i]
}

// UnmarshalText parses a name.
func (o *Op) UnmarshalText(text []byte) error { return parse((*int)(o), opNames[:], "Op", text) }

// UnmarshalText parses a name.
func (t *Test) UnmarshalText(text []byte) error { return parse((*int)(t), testNames[:], "Test", text) }

// UnmarshalText parses a name.
func (s *Service) UnmarshalText(text []byte) error {
	return parse((*int)(s), serviceNames[:], "Service", text)
}

// UnmarshalText parses a name.
func (a *AtomicOp) UnmarshalText(text []byte) error {
	return parse((*int)(a), atomicNames[:], "AtomicOp", text)
}

func parse(v *int, names []string, kind string, text []byte) error {
	i := slices.IndexFunc(names, func(n string) bool { return strings.EqualFold(n, string(text)) })
	if i < 0 {
		return driver.Refuse("perf", kind, string(text), strings.Join(names, ", "), ib.ErrInvalid)
	}
	*v = i
	return nil
}

// traits are the differences between the tests.
type traits struct {
	tool     string // the C tool
	title    string // as the C tool prints it, before "BW Test"
	services []Service
	access   ib.Access

	twoSided bool // the peer's program takes part, not only its device
	memory   bool // a message is detected by its last byte, not by a completion
	trips    int  // a sample is divided by it: 2 if the result is half a round trip, 1 if it is a whole one

	size, iters, txDepth, rxDepth int // defaults

	// The ends swap the addresses of all queue pairs, connect them, and swap the addresses again. In addition they swap
	// those of the first queue pair before, in between, or afterwards.
	before, between, after bool
}

const (
	sendAccess   = ib.LocalWrite
	remoteAccess = ib.LocalWrite | ib.RemoteWrite | ib.RemoteRead | ib.RemoteAtomic
)

var (
	anyService = []Service{RC, UC, UD}
	connected  = []Service{RC, UC}
	reliable   = []Service{RC}
)

// tests has the traits. Defaults are the C tools'.
var tests = [numOps][numTests]traits{
	Send: {
		BW: {tool: "ib_send_bw", title: "Send", services: anyService, access: sendAccess, twoSided: true,
			size: 65536, iters: 1000, txDepth: 128, rxDepth: 512, between: true},
		Lat: {tool: "ib_send_lat", title: "Send", services: anyService, access: sendAccess, twoSided: true, trips: 2,
			size: 2, iters: 1000, txDepth: 1, rxDepth: 512, between: true},
	},
	Write: {
		BW: {tool: "ib_write_bw", title: "RDMA_Write", services: connected, access: remoteAccess,
			size: 65536, iters: 5000, txDepth: 128, rxDepth: 1, after: true},
		Lat: {tool: "ib_write_lat", title: "RDMA_Write", services: connected, access: remoteAccess,
			twoSided: true, memory: true, trips: 2,
			size: 2, iters: 1000, txDepth: 1, rxDepth: 1, before: true, after: true},
	},
	Read: {
		BW: {tool: "ib_read_bw", title: "RDMA_Read", services: reliable, access: remoteAccess,
			size: 65536, iters: 1000, txDepth: 128, rxDepth: 1, after: true},
		Lat: {tool: "ib_read_lat", title: "RDMA_Read", services: reliable, access: remoteAccess, trips: 1,
			size: 2, iters: 1000, txDepth: 1, rxDepth: 1, before: true, after: true},
	},
	Atomic: {
		BW: {tool: "ib_atomic_bw", title: "Atomic", services: reliable, access: remoteAccess,
			size: 8, iters: 1000, txDepth: 128, rxDepth: 1, after: true},
		Lat: {tool: "ib_atomic_lat", title: "Atomic", services: reliable, access: remoteAccess, trips: 1,
			size: 8, iters: 1000, txDepth: 1, rxDepth: 1, before: true, after: true},
	},
}

// opcode returns the opcode of the requests.
func (o *Options) opcode() ib.WROpcode {
	switch {
	case o.Op == Write:
		return ib.WRWrite
	case o.Op == Read:
		return ib.WRRead
	case o.Op == Send:
		return ib.WRSend
	case o.AtomicOp == CmpAndSwap:
		return ib.WRCompareSwap
	}
	return ib.WRFetchAdd
}

// fetches reports whether requests return data, so that they count against the READs and atomics in flight.
func (o *Options) fetches() bool { return o.Op == Read || o.Op == Atomic }

// datagrams reports whether each request has its own destination.
func (o *Options) datagrams() bool { return o.Service == UD }

// lossy reports whether the service does not retransmit.
func (o *Options) lossy() bool { return o.Service != RC }

// qpTypes has the QP type of each service.
var qpTypes = [numServices]ib.QPType{RC: ib.RC, UC: ib.UC, UD: ib.UD}

// bothSend reports whether both ends post requests.
func (o *Options) bothSend() bool { return o.Bidirectional || o.Test == Lat && o.traits().twoSided }

// sends reports whether this end posts requests.
func (o *Options) sends() bool { return !o.server() || o.bothSend() }

// receives reports whether this end posts receives.
func (o *Options) receives() bool {
	return o.Op == Send && (o.server() || o.Bidirectional || o.Test == Lat)
}

// passive reports whether this end only provides memory.
func (o *Options) passive() bool { return !o.sends() && !o.receives() }

// begins reports whether this end sends the first message of a latency test: with ib_send_lat the client does, with
// ib_write_lat the server.
func (o *Options) begins() bool { return o.server() == o.traits().memory }
