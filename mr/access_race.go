//go:build race

package mr

import (
	"sync"
	"unsafe"
)

// An application may write memory that the device reads, and read memory that the device writes. That is the purpose of
// RDMA, but the race detector would report each case. So under -race only functions that the compiler does not
// instrument access registered memory. They use neither copy nor sync/atomic, which would be reported even so. Plain
// stores keep their order on amd64; on arm64 a -race build does not guarantee the order of copyLast. Atomics are atomic
// only with each other.

// The pointers stay inside dst and src. checkptr, which -race enables, would check each step and make the copy ten
// times slower.
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

// atomics serializes CAS and FAA of this process.
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
