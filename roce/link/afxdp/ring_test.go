package afxdp

import (
	"math"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// testOffsets is a layout such as the kernel's: each index on a cache line.
var testOffsets = unix.XDPRingOffset{Producer: 0, Consumer: 64, Flags: 128, Desc: 192}

// newTestRing returns both sides of a ring in memory of Go, whose accesses the race
// detector sees. The indices start there.
func newTestRing[T any](n int, start uint32) (*producer[T], *consumer[T]) {
	words := make([]uint64, ringLen[T](&testOffsets, n)/8)
	mem := unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), 8*len(words))
	p := &producer[T]{newRing[T](mem, &testOffsets, n)}
	c := &consumer[T]{newRing[T](mem, &testOffsets, n)}
	*p.producer, *p.consumer = start, start
	p.own, p.peer, c.own, c.peer = start, start, start, start
	return p, c
}

// TestRingModel runs both sides in turn against a slice: nothing is lost, doubled or
// seen before it is published, and the room is right, across the wrap of the indices.
func TestRingModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := 1 << rapid.IntRange(0, 4).Draw(t, "log2 size")
		p, c := newTestRing[unix.XDPDesc](size, math.MaxUint32-rapid.Uint32Range(0, 40).Draw(t, "before the wrap"))
		var next uint64
		var hidden, seen []uint64 // put but not published; published but not released
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				want := rapid.IntRange(1, size).Draw(t, "want")
				room := p.room(want)
				if all := size - len(hidden) - len(seen); room > all || room < min(want, all) {
					t.Fatalf("room %d for %d, want %d", room, want, all)
				}
				for range min(want, room) {
					p.put(unix.XDPDesc{Addr: next, Len: uint32(next), Options: ^uint32(next)})
					hidden = append(hidden, next)
					next++
				}
			},
			"publish": func(*rapid.T) {
				p.publish()
				seen, hidden = append(seen, hidden...), nil
			},
			"consume": func(t *rapid.T) {
				if n := c.ready(); n != len(seen) {
					t.Fatalf("%d ready, want %d", n, len(seen))
				}
				for i, v := range seen {
					if d := c.at(i); d.Addr != v || d.Len != uint32(v) || d.Options != ^uint32(v) {
						t.Fatalf("entry %d is %+v, want %d", i, d, v)
					}
				}
				n := rapid.IntRange(0, len(seen)).Draw(t, "released")
				c.release(n)
				seen = seen[n:]
				if left := p.left(); left != len(seen)+len(hidden) {
					t.Fatalf("%d left, want %d", left, len(seen)+len(hidden))
				}
			},
		})
	})
}

// TestRingOrder has the kernel's side on another thread: the race detector fails it
// where an entry is read before it is written, or written again before it was read.
func TestRingOrder(t *testing.T) {
	const total = 200_000
	seed := *testSeed
	t.Logf("-afxdp.seed=%d", seed)
	p, c := newTestRing[unix.XDPDesc](64, math.MaxUint32-total/2)
	go func() {
		rng := rand.New(rand.NewPCG(seed, 0))
		for next := uint64(0); next < total; {
			n := min(p.room(1+rng.IntN(64)), total-int(next))
			for range n {
				p.put(unix.XDPDesc{Addr: next, Len: uint32(next), Options: uint32(next >> 1)})
				next++
			}
			p.publish()
			if n == 0 {
				runtime.Gosched()
			}
		}
	}()
	rng := rand.New(rand.NewPCG(seed, 1))
	for next := uint64(0); next < total; {
		n := c.ready()
		if n == 0 {
			runtime.Gosched()
			continue
		}
		n = 1 + rng.IntN(n)
		for i := range n {
			if d := c.at(i); d.Addr != next || d.Len != uint32(next) || d.Options != uint32(next>>1) {
				t.Fatalf("entry %d is %+v, want %d, %d, %d", next, d, next, uint32(next), uint32(next>>1))
			}
			next++
		}
		c.release(n)
	}
}

func TestRingNeedWakeup(t *testing.T) {
	p, c := newTestRing[unix.XDPDesc](2, 0)
	if p.needWakeup() || c.needWakeup() {
		t.Error("a wake-up is needed though nobody said so")
	}
	atomic.StoreUint32(p.flags, unix.XDP_RING_NEED_WAKEUP)
	if !p.needWakeup() || !c.needWakeup() {
		t.Error("the flag is not seen")
	}
}
