package ring

import (
	"fmt"
	"sync/atomic"
	"unsafe"
)

// ring is one side's view of a buffer: all that the three kinds have.
//
// storeFence followed by an atomic Load is the store, full fence, load of the
// handshakes in doc.go.
type ring struct {
	buf               unsafe.Pointer // the buffer, laid out as doc.go says
	entries, slotSize uint32
	maxSGE, maxInline uint16

	// The producer's own state. What it wrote to the buffer is never read back.
	next      uint32 // index of the next slot to write
	published uint32 // what prod was last set to
	consSeen  uint32 // what cons was when last looked at

	// The consumer's.
	popped   uint32 // index of the next slot to read
	released uint32 // what cons was last set to
	prodSeen uint32 // what prod was when last looked at

	// A view fills a cache line. The allocator starts objects of 64 bytes on a
	// multiple of 64, so the two sides of a ring do not share a line.
	_ [20]byte
}

var _ [64]byte = [unsafe.Sizeof(ring{})]byte{}

// storeFence stores v and lets no later load overtake. Stores of sync/atomic are
// sequentially consistent and would do, but under the race detector they are
// only releases (__tsan_go_atomic32_store) and a wake-up gets lost now and then;
// an exchange is a full barrier in either build, and the same instruction on amd64.
func storeFence(p *uint32, v uint32) { atomic.SwapUint32(p, v) }

// newRing returns a view that goes on from the indices in b, which holds a ring
// with header h.
func newRing(b []byte, h *header) ring {
	r := ring{
		buf: unsafe.Pointer(unsafe.SliceData(b)), entries: h.entries, slotSize: h.slotSize,
		maxSGE: uint16(h.maxSGE), maxInline: uint16(h.maxInline),
	}
	prod, cons := atomic.LoadUint32(r.prod()), atomic.LoadUint32(r.cons())
	r.next, r.published, r.prodSeen = prod, prod, cons
	r.popped, r.released, r.consSeen = cons, cons, cons
	return r
}

// The words of the buffer that both sides look at.
func (r *ring) prod() *uint32 { return (*uint32)(unsafe.Add(r.buf, prodOffset)) }
func (r *ring) cons() *uint32 { return (*uint32)(unsafe.Add(r.buf, consOffset)) }
func (r *ring) wake() *uint32 { return (*uint32)(unsafe.Add(r.buf, wakeOffset)) }

// Entries returns the capacity: what was asked for, rounded up to a power of two.
func (r *ring) Entries() int { return int(r.entries) }

// slot returns the memory of entry i. There is none in a ring of no entries: room
// and ready say so.
func (r *ring) slot(i uint32) unsafe.Pointer {
	return unsafe.Add(r.buf, slotsOffset+uintptr(i&(r.entries-1))*uintptr(r.slotSize))
}

// payload returns the n elements behind the fixed part of a slot, which is size
// bytes long. A slot without payload may end there, and the buffer with it.
func payload[T any](slot unsafe.Pointer, size, n int) []T {
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Add(slot, size)), n)
}

// room reports whether slot next is free. A consumer index that cannot be right
// makes the number of full slots exceed entries, which counts as full.
func (r *ring) room() bool {
	if r.next-r.consSeen < r.entries {
		return true
	}
	if cons := atomic.LoadUint32(r.cons()); cons != r.consSeen {
		r.consSeen = cons
	}
	return r.next-r.consSeen < r.entries
}

// publish shows the consumer all slots before next.
func (r *ring) publish() {
	r.published = r.next
	storeFence(r.prod(), r.next)
}

// publishWork is the application's side of the doorbell handshake.
func (r *ring) publishWork() (doorbell bool) {
	if r.published == r.next {
		return false
	}
	r.publish()
	return atomic.LoadUint32(r.wake()) != 0 && atomic.SwapUint32(r.wake(), 0) != 0
}

// pending looks at the producer index and returns how many entries wait. It is
// an error if they cannot all have been free slots.
func (r *ring) pending() (uint32, error) {
	prod := atomic.LoadUint32(r.prod())
	n := prod - r.popped
	if free := r.entries - (r.popped - r.released); n > free {
		return 0, fmt.Errorf("%w: producer index %d is %d entries after %d, where %d slots are free",
			ErrCorrupt, prod, n, r.popped, free)
	}
	if prod != r.prodSeen {
		r.prodSeen = prod
	}
	return n, nil
}

// ready reports whether slot popped is full. It looks at the producer index only
// when all that it saw there before has been popped.
func (r *ring) ready() (bool, error) {
	if r.popped != r.prodSeen {
		return true, nil
	}
	n, err := r.pending()
	return n > 0, err
}

// count is pending without the error: nonsense counts as a full ring, so that
// whoever looks for work comes and finds the error.
func (r *ring) count() int {
	n, err := r.pending()
	if err != nil {
		return int(r.entries)
	}
	return int(n)
}

// release gives the n oldest popped slots back.
func (r *ring) release(n int) {
	if n < 0 || uint32(n) > r.popped-r.released {
		panic(fmt.Sprintf("ring: release of %d slots, but %d are popped", n, r.popped-r.released))
	}
	r.released += uint32(n)
	atomic.StoreUint32(r.cons(), r.released)
}

// moveTo copies what is in r, published and not consumed, to the empty ring n of
// the same slot size, and reports whether there was room. Both sides of both
// rings stand still meanwhile.
func (r *ring) moveTo(n *ring) bool {
	cons := atomic.LoadUint32(r.cons())
	count := atomic.LoadUint32(r.prod()) - cons
	if count > r.entries || count > n.entries || r.slotSize != n.slotSize {
		return false
	}
	for i := range count {
		copy(n.slotBytes(i), r.slotBytes(cons+i))
	}
	n.next = count
	n.publish()
	atomic.StoreUint32(n.wake(), atomic.LoadUint32(r.wake()))
	return true
}

func (r *ring) slotBytes(i uint32) []byte {
	return unsafe.Slice((*byte)(r.slot(i)), int(r.slotSize))
}
