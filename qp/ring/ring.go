package ring

import (
	"fmt"
	"sync/atomic"
	"unsafe"
)

// ring is one side's view of a buffer, the same for all three kinds of rings.
//
// storeFence followed by an atomic Load implements the sequence of store, full fence
// and load in the handshakes of doc.go.
type ring struct {
	buf               unsafe.Pointer // the buffer, laid out as doc.go says
	entries, slotSize uint32
	maxSGE, maxInline uint16
	limit             uint32 // entries that the producer fills at most

	// The producer's state. Only moveTo reads its index back from the buffer.
	next      uint32 // index of the next slot to write
	published uint32 // last value written to prod
	consSeen  uint32 // last value read from cons

	// The consumer's state.
	popped   uint32 // index of the next slot to read
	released uint32 // last value written to cons
	prodSeen uint32 // last value read from prod

	// A view fills a cache line. The allocator starts objects of 64 bytes on a
	// multiple of 64, so the two sides of a ring do not share a line.
	_ [16]byte
}

var _ [64]byte = [unsafe.Sizeof(ring{})]byte{}

// storeFence stores v and orders the store before later loads. A store of sync/atomic is
// sequentially consistent and would suffice, but under the race detector it is only a
// release (__tsan_go_atomic32_store), and wake-ups were lost occasionally. An exchange is
// a full barrier in both builds, and the same instruction on amd64.
func storeFence(p *uint32, v uint32) { atomic.SwapUint32(p, v) }

// newRing returns a view of b, which holds an empty ring with header h.
func newRing(b []byte, h *header) ring {
	return ring{
		buf: unsafe.Pointer(unsafe.SliceData(b)), entries: h.entries, slotSize: h.slotSize,
		maxSGE: uint16(h.maxSGE), maxInline: uint16(h.maxInline), limit: h.entries,
	}
}

// readIndices makes r go on at the indices in the buffer.
func (r *ring) readIndices() {
	prod, cons := atomic.LoadUint32(r.prod()), atomic.LoadUint32(r.cons())
	r.next, r.published, r.prodSeen = prod, prod, cons
	r.popped, r.released, r.consSeen = cons, cons, cons
}

// The words of the buffer that both sides access.
func (r *ring) prod() *uint32 { return (*uint32)(unsafe.Add(r.buf, prodOffset)) }
func (r *ring) cons() *uint32 { return (*uint32)(unsafe.Add(r.buf, consOffset)) }
func (r *ring) wake() *uint32 { return (*uint32)(unsafe.Add(r.buf, wakeOffset)) }

// Entries returns the capacity: what was asked for, rounded up to a power of two.
func (r *ring) Entries() int { return int(r.entries) }

// slot returns the memory of entry i. It must not be called for a ring of no entries,
// where room and ready return false.
func (r *ring) slot(i uint32) unsafe.Pointer {
	return unsafe.Add(r.buf, slotsOffset+uintptr(i&(r.entries-1))*uintptr(r.slotSize))
}

// payload returns the n elements behind the fixed part of a slot, which is size
// bytes long. If n is 0, the slot and the buffer may end there, so it returns nil.
func payload[T any](slot unsafe.Pointer, size, n int) []T {
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Add(slot, size)), n)
}

// room reports whether slot next is free. With an invalid consumer index the number of
// full slots exceeds limit, which counts as full.
func (r *ring) room() bool {
	if r.next-r.consSeen < r.limit {
		return true
	}
	if cons := atomic.LoadUint32(r.cons()); cons != r.consSeen {
		r.consSeen = cons
	}
	return r.next-r.consSeen < r.limit
}

// publish makes all slots before next visible to the consumer.
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

// pending reads the producer index and returns how many entries wait. It returns an
// error if there are more than there were free slots.
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

// ready reports whether slot popped is full. It reads the producer index only when all
// entries up to prodSeen have been popped.
func (r *ring) ready() (bool, error) {
	if r.popped != r.prodSeen {
		return true, nil
	}
	n, err := r.pending()
	return n > 0, err
}

// count is pending without the error: an invalid index counts as a full ring, so that
// the caller goes on to Pop, which returns the error.
func (r *ring) count() int {
	n, err := r.pending()
	if err != nil {
		return int(r.entries)
	}
	return int(n)
}

// release returns the n oldest popped slots to the producer.
func (r *ring) release(n int) {
	if n < 0 || uint32(n) > r.popped-r.released {
		panic(fmt.Sprintf("ring: release of %d slots, but %d are popped", n, r.popped-r.released))
	}
	r.released += uint32(n)
	atomic.StoreUint32(r.cons(), r.released)
}

// Discard returns all slots to the producer, popped or not, whatever they hold. (Device)
func (r *ring) Discard() {
	_, _ = r.pending()                       // if the producer index is invalid, the one before is left
	if n := r.prodSeen - r.released; n > 0 { // the shared rings of no entries are never written
		r.popped = r.prodSeen
		r.release(int(n))
	}
}

// Move copies the entries of a ring to an empty one of the same slot size, some at a time. In between the device may
// use the first ring; the application uses neither, and attaches to the second one afterwards. (Device)
type Move struct {
	from, to *ring
	start    uint32 // index of the first entry
	count    uint32 // entries that are copied
	pops     bool   // the device consumes the entries
}

// Step copies at most so many entries, and returns how many. When all are copied it is done; if they do not fit it is
// done, too, and the second ring is of no use. It takes the producer's index from the shared buffer, and checks it.
func (m *Move) Step(most int) (copied int, done, fits bool) {
	n := atomic.LoadUint32(m.from.prod()) - m.start
	if n > m.from.entries || n > m.to.limit || n < m.count || m.from.slotSize != m.to.slotSize {
		return 0, true, false
	}
	for ; m.count < n && copied < most; copied++ {
		copy(m.to.slotBytes(m.count), m.from.slotBytes(m.start+m.count))
		m.count++
	}
	if m.count < n {
		return copied, false, true
	}
	m.to.next = m.count
	m.to.publish()
	if m.pops { // what it has consumed meanwhile
		m.to.popped = min(m.from.released-m.start, m.count)
		m.to.prodSeen = m.to.popped
		m.to.release(int(m.to.popped))
	}
	atomic.StoreUint32(m.to.wake(), atomic.LoadUint32(m.from.wake()))
	return copied, true, true
}

func (r *ring) slotBytes(i uint32) []byte {
	return unsafe.Slice((*byte)(r.slot(i)), int(r.slotSize))
}
