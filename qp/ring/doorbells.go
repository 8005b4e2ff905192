package ring

import (
	"fmt"
	"math/bits"
	"sync/atomic"
	"unsafe"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// Doorbells are the doorbells of the queues of one application, for a device in another
// process: one bit for each queue, so that the device reads only queues with new entries.
// Any number of goroutines, and threads of the application, may call Ring; one goroutine
// of the device calls the other methods.
type Doorbells struct {
	buf  unsafe.Pointer
	tops uint32 // words of the summary
}

// MaxDoorbells is how many doorbells one buffer may have.
const MaxDoorbells = 1 << 16

const (
	doorbellsMagic = 0x4C4C4542

	doorbellsWake = 64  // offset of the wake word
	doorbellsTops = 128 // offset of the summary: a bit for each word of doorbells
)

// doorbellsHeader is the start of the buffer.
type doorbellsHeader struct {
	magic     uint32
	version   uint16
	_         uint16
	doorbells uint32 // a multiple of 4096
	_         [13]uint32
}

var _ [64]byte = [unsafe.Sizeof(doorbellsHeader{})]byte{}

// doorbellTops returns the number of summary words for n doorbells: each covers 64 words of
// 64 doorbells.
func doorbellTops(n int) int { return (n + 4095) / 4096 }

// DoorbellsSize returns the bytes of a buffer of at least n doorbells, or 0 if n is not 1 to
// MaxDoorbells.
func DoorbellsSize(n int) int {
	if n < 1 || n > MaxDoorbells {
		return 0
	}
	tops := doorbellTops(n)
	return doorbellsTops + (tops+7)/8*Align + tops*64*8
}

// NewDoorbells formats b as at least n doorbells, none of which is set: the device's side. b
// must start on a 64-byte boundary and hold DoorbellsSize bytes; it belongs to the doorbells
// from then on.
func NewDoorbells(b []byte, n int) (*Doorbells, error) {
	const op = "make doorbells"
	size := DoorbellsSize(n)
	if size == 0 {
		return nil, driver.Refuse(op, "doorbells", n, fmt.Sprintf("1 to %d", MaxDoorbells), ib.ErrInvalid)
	}
	if err := checkBuffer(op, b, size); err != nil {
		return nil, err
	}
	clear(b[:size])
	tops := doorbellTops(n)
	*(*doorbellsHeader)(unsafe.Pointer(&b[0])) = doorbellsHeader{magic: doorbellsMagic, version: version,
		doorbells: uint32(tops * 4096)}
	return &Doorbells{unsafe.Pointer(&b[0]), uint32(tops)}, nil
}

// OpenDoorbells attaches to doorbells: the application's side.
func OpenDoorbells(b []byte) (*Doorbells, error) {
	const op = "open doorbells"
	if err := checkBuffer(op, b, DoorbellsSize(1)); err != nil {
		return nil, err
	}
	h := *(*doorbellsHeader)(unsafe.Pointer(&b[0]))
	if h.magic != doorbellsMagic || h.version != version || h.doorbells == 0 || h.doorbells > MaxDoorbells ||
		h.doorbells%4096 != 0 {
		return nil, driver.Refuse(op, "header",
			fmt.Sprintf("magic %#x, version %d, %d doorbells", h.magic, h.version, h.doorbells),
			fmt.Sprintf("magic %#x, version %d", doorbellsMagic, version), ib.ErrInvalid)
	}
	if err := checkBuffer(op, b, DoorbellsSize(int(h.doorbells))); err != nil {
		return nil, err
	}
	return &Doorbells{unsafe.Pointer(&b[0]), h.doorbells / 4096}, nil
}

// Len returns how many doorbells there are.
func (b *Doorbells) Len() int { return int(b.tops) * 4096 }

func (b *Doorbells) wake() *uint32 { return (*uint32)(unsafe.Add(b.buf, doorbellsWake)) }
func (b *Doorbells) top(i uint32) *uint64 {
	return (*uint64)(unsafe.Add(b.buf, doorbellsTops+uintptr(i)*8))
}
func (b *Doorbells) word(i uint32) *uint64 {
	return (*uint64)(unsafe.Add(b.buf, doorbellsTops+uintptr(b.tops+7)/8*Align+uintptr(i)*8))
}

// Ring sets doorbell i, and reports whether the device sleeps and must be woken. The caller
// has published the entries before. Ring panics if there is no doorbell i. (Application)
func (b *Doorbells) Ring(i uint32) (asleep bool) {
	if i >= b.tops*4096 {
		panic(fmt.Sprintf("ring: doorbell %d of %d", i, b.tops*4096))
	}
	atomic.OrUint64(b.word(i/64), 1<<(i%64))
	atomic.OrUint64(b.top(i/4096), 1<<(i/64%64))
	return atomic.LoadUint32(b.wake()) != 0 && atomic.SwapUint32(b.wake(), 0) != 0
}

// Take clears the doorbells that are set, and calls f for each 64 that have one: bit i of set is
// doorbell first+i. It reports whether any was set. Whatever the application writes, f gets
// only numbers below the n of NewDoorbells, rounded up to a multiple of 4096. (Device)
func (b *Doorbells) Take(f func(first uint32, set uint64)) (any bool) {
	for t := range b.tops {
		if atomic.LoadUint64(b.top(t)) == 0 {
			continue
		}
		any = true
		for top := atomic.SwapUint64(b.top(t), 0); top != 0; top &= top - 1 {
			w := t*64 + uint32(bits.TrailingZeros64(top))
			f(w*64, atomic.SwapUint64(b.word(w), 0))
		}
	}
	return any
}

// Sleep announces that the device waits to be woken. It reports whether doorbells are set:
// the device then must call Awake and take them. (Device)
func (b *Doorbells) Sleep() (rung bool) {
	storeFence(b.wake(), 1)
	for t := range b.tops {
		rung = rung || atomic.LoadUint64(b.top(t)) != 0
	}
	return rung
}

// Awake announces that the device polls the doorbells. (Device)
func (b *Doorbells) Awake() { storeFence(b.wake(), 0) }
