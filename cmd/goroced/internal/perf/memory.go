package perf

import (
	"encoding/binary"
	"math/rand/v2"
	"sync/atomic"
	"unsafe"

	"github.com/goroce/goroce/cmd/goroced/internal/device"
	"github.com/goroce/goroce/ib"
)

// Messages that are small go round a piece of memory, of a page at least, a cache
// line apart; larger ones have one place. The ends agree on how long the piece is:
// the larger of their pages.
const (
	minCycle  = 4096
	maxCycle  = 1 << 20
	cacheLine = 64
)

// area is the memory of a queue pair in one direction. With UD the place of a GRH
// stands before the message.
func areaSize(o *Options, cycle int) int {
	n := max(o.Size, cycle)
	if o.datagrams() {
		n += ib.GRHLen
	}
	return roundUp(n, cacheLine)
}

func roundUp(n, to int) int { return (n + to - 1) / to * to }

// memory is where the messages lie: the areas that are sent from, and those that
// the peer's messages arrive in or that it reads.
type memory struct {
	buf  []byte
	area int
	qps  int
}

// newMemory allocates the areas and fills them with noise, the same at each end:
// what is sent differs from what is there, so that data which did not arrive can be
// told. A message of Write Lat is seen by its last byte, which begins as 0.
func newMemory(dev ib.Device, o *Options, cycle int) *memory {
	m := &memory{area: areaSize(o, cycle), qps: o.NumQP}
	m.buf = device.Memory(dev, 2*m.qps*m.area)
	if o.traits().memory {
		return m
	}
	_, _ = rand.NewChaCha8([32]byte{}).Read(m.buf)
	return m
}

// out and in are the offsets of a queue pair's areas.
func (m *memory) out(qp int) int { return qp * m.area }
func (m *memory) in(qp int) int  { return (m.qps + qp) * m.area }

// places says how messages of a size go round: so many places, so far apart.
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

// load reads the byte, by an atomic load of the word around it.
func (p pollByte) load() byte {
	var bytes [4]byte
	binary.NativeEndian.PutUint32(bytes[:], atomic.LoadUint32(p.word))
	return bytes[p.shift]
}
