package perf

import (
	"encoding/binary"
	"math/rand/v2"
	"sync/atomic"
	"unsafe"

	"github.com/goroce/goroce/ib"
)

// Small messages use a piece of memory in turn, at least a page long, at the distance of a cache line; larger messages
// use one place. The ends agree on the length of the piece (cycle): the larger of their page sizes.
const (
	minCycle  = 4096
	maxCycle  = 1 << 20
	cacheLine = 64
)

// areaSize returns the size of a queue pair's memory for one direction. With UD, room for a GRH precedes the message.
func areaSize(o *Options, cycle int) int {
	n := max(o.Size, cycle)
	if o.datagrams() {
		n += ib.GRHLen
	}
	return roundUp(n, cacheLine)
}

func roundUp(n, to int) int { return (n + to - 1) / to * to }

// memory has the messages: the areas to send from, and those that the peer's messages arrive in or that it reads.
type memory struct {
	buf  []byte
	area int
	qps  int
}

// newMemory allocates the areas and fills them with pseudo-random bytes, equal at both ends. The two areas differ, so
// data that did not arrive can be detected. A message of Write Lat is detected by its last byte, which is 0 at first.
func newMemory(dev ib.Device, o *Options, cycle int) *memory {
	m := &memory{area: areaSize(o, cycle), qps: o.NumQP}
	m.buf = ib.Alloc(dev, 2*m.qps*m.area)
	if o.traits().memory {
		return m
	}
	_, _ = rand.NewChaCha8([32]byte{}).Read(m.buf)
	return m
}

// out and in return the offsets of a queue pair's areas.
func (m *memory) out(qp int) int { return qp * m.area }
func (m *memory) in(qp int) int  { return (m.qps + qp) * m.area }

// places returns how many places messages of a size use, and their distance.
func places(size, cycle int) (n, step int) {
	step = roundUp(size, cacheLine)
	if 2*size > cycle {
		return 1, step
	}
	return cycle / step, step
}

// pollByte is a byte of memory that the peer writes.
type pollByte struct {
	word  *uint32
	shift uintptr
}

func newPollByte(b *byte) pollByte {
	shift := uintptr(unsafe.Pointer(b)) % 4
	return pollByte{(*uint32)(unsafe.Add(unsafe.Pointer(b), -int(shift))), shift}
}

// load loads the byte, by an atomic load of the word that contains it.
func (p pollByte) load() byte {
	var bytes [4]byte
	binary.NativeEndian.PutUint32(bytes[:], atomic.LoadUint32(p.word))
	return bytes[p.shift]
}
