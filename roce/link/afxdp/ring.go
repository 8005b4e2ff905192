package afxdp

import (
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ring is a queue in memory shared with the kernel (linux/if_xdp.h): the producer writes entries and then its index,
// the consumer reads entries and then writes its index. Both indices run freely and wrap at 2^32. The kernel stores its
// own index with release and loads the other with acquire semantics (net/xdp/xsk_queue.h); the atomic operations here
// match that.
type ring[T any] struct {
	producer, consumer, flags *uint32
	entries                   []T // a power of two of them

	own  uint32 // index of this process; ahead of the shared one until it is published
	peer uint32 // the kernel's index when it was last loaded
}

// newRing returns a ring of n entries in mem.
func newRing[T any](mem []byte, at *unix.XDPRingOffset, n int) ring[T] {
	return ring[T]{
		producer: (*uint32)(unsafe.Pointer(&mem[at.Producer])),
		consumer: (*uint32)(unsafe.Pointer(&mem[at.Consumer])),
		flags:    (*uint32)(unsafe.Pointer(&mem[at.Flags])),
		entries:  unsafe.Slice((*T)(unsafe.Pointer(&mem[at.Desc])), n),
	}
}

// ringLen returns the size of the memory of a ring of n entries.
func ringLen[T any](at *unix.XDPRingOffset, n int) int {
	var entry T
	return int(at.Desc) + n*int(unsafe.Sizeof(entry))
}

func (r *ring[T]) entry(i uint32) *T { return &r.entries[i&uint32(len(r.entries)-1)] }

// needWakeup reports whether the kernel sleeps and must be woken by a system call. It must be called after the index is
// stored; atomic operations are not reordered.
func (r *ring[T]) needWakeup() bool { return atomic.LoadUint32(r.flags)&unix.XDP_RING_NEED_WAKEUP != 0 }

// producer is a ring that this process fills: FILL or TX.
type producer[T any] struct{ ring[T] }

// room returns how many entries can be put. It loads the kernel's index only if fewer than want are known to fit.
func (p *producer[T]) room(want int) int {
	n := len(p.entries) - int(p.own-p.peer)
	if n < want {
		p.peer = atomic.LoadUint32(p.consumer)
		n = len(p.entries) - int(p.own-p.peer)
	}
	return n
}

// put adds an entry, for which there must be room. The kernel sees it after publish.
func (p *producer[T]) put(v T) {
	*p.entry(p.own) = v
	p.own++
}

// publish makes the entries visible to the kernel.
func (p *producer[T]) publish() { atomic.StoreUint32(p.producer, p.own) }

// left returns how many entries the kernel has not consumed yet.
func (p *producer[T]) left() int {
	p.peer = atomic.LoadUint32(p.consumer)
	return int(p.own - p.peer)
}

// consumer is a ring that the kernel fills: RX or COMPLETION.
type consumer[T any] struct{ ring[T] }

// ready returns how many entries can be read.
func (c *consumer[T]) ready() int {
	c.peer = atomic.LoadUint32(c.producer)
	return int(c.peer - c.own)
}

// at returns entry i of those that are ready.
func (c *consumer[T]) at(i int) T { return *c.entry(c.own + uint32(i)) }

// release returns n entries to the kernel.
func (c *consumer[T]) release(n int) {
	c.own += uint32(n)
	atomic.StoreUint32(c.consumer, c.own)
}
