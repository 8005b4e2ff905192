package ring

import (
	"fmt"
	"math/bits"
	"sync/atomic"
	"unsafe"

	"github.com/goroce/goroce/ib"
)

// Bells are the doorbells of the queues of one application, for a device in another
// process: one bit for each queue, so that the device looks at none that has nothing
// new. Any number of goroutines, and threads of the application, may Ring; the device
// has one goroutine for the rest.
type Bells struct {
	buf  unsafe.Pointer
	tops uint32 // words of the summary
}

// MaxBells is how many bells one buffer may have.
const MaxBells = 1 << 16

const (
	bellsMagic = 0x4C4C4542

	bellsWake = 64  // offset of the wake word
	bellsTops = 128 // offset of the summary: a bit for each word of bells
)

// bellsHeader is the start of the buffer.
type bellsHeader struct {
	magic   uint32
	version uint16
	_       uint16
	bells   uint32 // a multiple of 4096
	_       [13]uint32
}

var _ [64]byte = [unsafe.Sizeof(bellsHeader{})]byte{}

// bellTops returns the words of the summary of n bells: each stands for 64 words of
// 64 bells.
func bellTops(n int) int { return (n + 4095) / 4096 }

// BellsSize returns the bytes of a buffer of at least n bells, or 0 if n is not 1 to
// MaxBells.
func BellsSize(n int) int {
	if n < 1 || n > MaxBells {
		return 0
	}
	tops := bellTops(n)
	return bellsTops + (tops+7)/8*Align + tops*64*8
}

// NewBells formats b as at least n bells, none of which rings: the device's side. b
// must start on a 64-byte boundary and hold BellsSize bytes; it belongs to the bells
// from then on.
func NewBells(b []byte, n int) (*Bells, error) {
	const op = "make doorbells"
	size := BellsSize(n)
	if size == 0 {
		return nil, &ib.AttrError{Op: op, Attr: "bells", Value: n, Allowed: fmt.Sprintf("1 to %d", MaxBells), Err: ib.ErrInvalid}
	}
	if err := checkBuffer(op, b, size); err != nil {
		return nil, err
	}
	clear(b[:size])
	tops := bellTops(n)
	*(*bellsHeader)(unsafe.Pointer(&b[0])) = bellsHeader{magic: bellsMagic, version: version, bells: uint32(tops * 4096)}
	return &Bells{unsafe.Pointer(&b[0]), uint32(tops)}, nil
}

// OpenBells attaches to doorbells: the application's side.
func OpenBells(b []byte) (*Bells, error) {
	const op = "open doorbells"
	if err := checkBuffer(op, b, BellsSize(1)); err != nil {
		return nil, err
	}
	h := *(*bellsHeader)(unsafe.Pointer(&b[0]))
	if h.magic != bellsMagic || h.version != version || h.bells == 0 || h.bells > MaxBells || h.bells%4096 != 0 {
		return nil, &ib.AttrError{Op: op, Attr: "header", Value: fmt.Sprintf("magic %#x, version %d, %d bells", h.magic, h.version, h.bells),
			Allowed: fmt.Sprintf("magic %#x, version %d", bellsMagic, version), Err: ib.ErrInvalid}
	}
	if err := checkBuffer(op, b, BellsSize(int(h.bells))); err != nil {
		return nil, err
	}
	return &Bells{unsafe.Pointer(&b[0]), h.bells / 4096}, nil
}

func (b *Bells) wake() *uint32        { return (*uint32)(unsafe.Add(b.buf, bellsWake)) }
func (b *Bells) top(i uint32) *uint64 { return (*uint64)(unsafe.Add(b.buf, bellsTops+uintptr(i)*8)) }
func (b *Bells) word(i uint32) *uint64 {
	return (*uint64)(unsafe.Add(b.buf, bellsTops+uintptr(b.tops+7)/8*Align+uintptr(i)*8))
}

// Ring rings bell i, and reports whether the device sleeps and must be woken. The
// work that it announces is in its ring already. It panics if there is no such bell.
// (Application)
func (b *Bells) Ring(i uint32) (asleep bool) {
	if i >= b.tops*4096 {
		panic(fmt.Sprintf("ring: bell %d of %d", i, b.tops*4096))
	}
	atomic.OrUint64(b.word(i/64), 1<<(i%64))
	atomic.OrUint64(b.top(i/4096), 1<<(i/64%64))
	return atomic.LoadUint32(b.wake()) != 0 && atomic.SwapUint32(b.wake(), 0) != 0
}

// Take calls f for each bell that has rung since, and silences it. It reports whether
// any had. f gets numbers below what NewBells was given, rounded up to a multiple of
// 4096, whatever the application writes. (Device)
func (b *Bells) Take(f func(i uint32)) (any bool) {
	for t := range b.tops {
		if atomic.LoadUint64(b.top(t)) == 0 {
			continue
		}
		any = true
		for top := atomic.SwapUint64(b.top(t), 0); top != 0; top &= top - 1 {
			w := t*64 + uint32(bits.TrailingZeros64(top))
			for word := atomic.SwapUint64(b.word(w), 0); word != 0; word &= word - 1 {
				f(w*64 + uint32(bits.TrailingZeros64(word)))
			}
		}
	}
	return any
}

// Sleep announces that the device waits to be woken. It reports whether bells have
// rung: the device then calls Awake and goes on. (Device)
func (b *Bells) Sleep() (rung bool) {
	storeFence(b.wake(), 1)
	for t := range b.tops {
		rung = rung || atomic.LoadUint64(b.top(t)) != 0
	}
	return rung
}

// Awake announces that the device looks by itself. (Device)
func (b *Bells) Awake() { storeFence(b.wake(), 0) }
