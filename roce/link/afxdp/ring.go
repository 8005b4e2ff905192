package afxdp

import (
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ring is a queue in memory shared with the kernel (linux/if_xdp.h): one side
// writes entries and then the producer index, the other reads entries and then
// writes the consumer index. Both indices run freely and wrap at 2^32. The kernel
// pairs a store-release of its own index with a load-acquire of the other one
// (net/xdp/xsk_queue.h); so do the atomic operations here.
type ring[T any] struct {
	producer, consumer, flags *uint32
	entries                   []T // a power of two of them

	own  uint32 // our index: ahead of the shared one until that is stored
	peer uint32 // the kernel's index when last looked at
}

// newRing lays a ring of n entries over mem.
func newRing[T any](mem []byte, at *unix.XDPRingOffset, n int) ring[T] {
	return ring[T]{
		producer: (*uint32)(unsafe.Pointer(&mem[at.Producer])),
		consumer: (*uint32)(unsafe.Pointer(&mem[at.Consumer])),
		flags:    (*uint32)(unsafe.Pointer(&mem[at.Flags])),
		entries:  unsafe.Slice((*T)(unsafe.Pointer(&mem[at.Desc])), n),
	}
}

// ringLen returns the bytes of memory that a ring of n entries takes.
func ringLen[T any](at *unix.XDPRingOffset, n int) int {
	var entry T
	return int(at.Desc) + n*int(unsafe.Sizeof(entry))
}

func (r *ring[T]) entry(i uint32) *T { return &r.entries[i&uint32(len(r.entries)-1)] }

// needWakeup reports whether the kernel sleeps and wants a system call. It is
// looked at after an index was stored: atomic operations do not overtake one
// another.
func (r *ring[T]) needWakeup() bool { return atomic.LoadUint32(r.flags)&unix.XDP_RING_NEED_WAKEUP != 0 }

// producer is our side of a ring that we fill: FILL and TX.
type producer[T any] struct{ ring[T] }

// room returns how many entries can be put. It does not look at the kernel's index
// again if want are known to fit.
func (p *producer[T]) room(want int) int {
	n := len(p.entries) - int(p.own-p.peer)
	if n < want {
		p.peer = atomic.LoadUint32(p.consumer)
		n = len(p.entries) - int(p.own-p.peer)
	}
	return n
}

// put adds an entry, for which there is room. The kernel does not see it yet.
func (p *producer[T]) put(v T) {
	*p.entry(p.own) = v
	p.own++
}

// publish shows the kernel what was put.
func (p *producer[T]) publish() { atomic.StoreUint32(p.producer, p.own) }

// left returns how many entries the kernel has not taken yet.
func (p *producer[T]) left() int {
	p.peer = atomic.LoadUint32(p.consumer)
	return int(p.own - p.peer)
}

// consumer is our side of a ring that the kernel fills: RX and COMPLETION.
type consumer[T any] struct{ ring[T] }

// ready returns how many entries there are.
func (c *consumer[T]) ready() int {
	c.peer = atomic.LoadUint32(c.producer)
	return int(c.peer - c.own)
}

// at returns the i-th of the entries that are ready.
func (c *consumer[T]) at(i int) T { return *c.entry(c.own + uint32(i)) }

// release gives n entries back.
func (c *consumer[T]) release(n int) {
	c.own += uint32(n)
	atomic.StoreUint32(c.consumer, c.own)
}
