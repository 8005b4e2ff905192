//go:build race

package mr

import (
	"sync"
	"unsafe"
)

// An application may change memory that the device reads, and read memory that
// the device writes: that is what RDMA is for, and the race detector would report
// each as the bug that it is not. So under -race, registered memory is touched
// only by functions that the compiler leaves uninstrumented. They use no copy and
// no sync/atomic, which report their accesses even from there. Plain stores keep
// their order on amd64; on arm64 a -race build does not promise copyLast's. Its
// atomics are atomic among themselves only.

// The pointers stay inside dst and src; checkptr, which -race brings with it, would
// look at each step and make the copy ten times slower.
//
//go:norace
//go:nocheckptr
func copyBytes(dst, src []byte) {
	n := len(src)
	if n == 0 {
		return
	}
	d, s := unsafe.Pointer(&dst[:n][0]), unsafe.Pointer(&src[0])
	i := 0
	if (uintptr(d)|uintptr(s))%8 == 0 {
		for ; i+8 <= n; i += 8 {
			*(*uint64)(unsafe.Add(d, i)) = *(*uint64)(unsafe.Add(s, i))
		}
	}
	for ; i < n; i++ {
		*(*byte)(unsafe.Add(d, i)) = *(*byte)(unsafe.Add(s, i))
	}
}

//go:norace
func store8(p *uint8, v uint8) { *p = v }

//go:norace
func store16(p *uint16, v uint16) { *p = v }

//go:norace
func store32(p *uint32, v uint32) { *p = v }

//go:norace
func store64(p *uint64, v uint64) { *p = v }

// atomics makes CAS and FAA of this process take turns.
var atomics sync.Mutex

func compareSwap(p *uint64, compare, swap uint64) uint64 {
	return exchange(p, func(old uint64) uint64 {
		if old == compare {
			return swap
		}
		return old
	})
}

func fetchAdd(p *uint64, add uint64) uint64 {
	return exchange(p, func(old uint64) uint64 { return old + add })
}

//go:norace
func exchange(p *uint64, next func(old uint64) uint64) (old uint64) {
	atomics.Lock()
	defer atomics.Unlock()
	old = *p
	*p = next(old)
	return old
}
