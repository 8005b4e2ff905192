package mr

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"
)

// copyLast copies src into registered memory so that its end becomes visible last: programs learn that a WRITE has
// arrived by polling the last byte of their buffer (ib_write_lat does), and rely on the rest being there.
//
// The last naturally aligned 8 bytes are one atomic store, ordered after the rest. If the end is not aligned to 8, the
// last 4, 2 or 1 aligned bytes are, so a number at the end of a message is never seen half written. len(dst) must be
// len(src). No byte outside dst is accessed.
func copyLast(dst, src []byte) {
	n := len(src)
	if n == 0 {
		return
	}
	end := uintptr(unsafe.Pointer(&dst[n-1])) + 1
	switch {
	case end%8 == 0 && n >= 8:
		n -= 8
		copyBytes(dst[:n], src[:n])
		store64((*uint64)(unsafe.Pointer(&dst[n])), binary.NativeEndian.Uint64(src[n:]))
	case end%4 == 0 && n >= 4:
		n -= 4
		copyBytes(dst[:n], src[:n])
		store32((*uint32)(unsafe.Pointer(&dst[n])), binary.NativeEndian.Uint32(src[n:]))
	case end%2 == 0 && n >= 2:
		n -= 2
		copyBytes(dst[:n], src[:n])
		fence()
		store16((*uint16)(unsafe.Pointer(&dst[n])), binary.NativeEndian.Uint16(src[n:]))
	default:
		n--
		copyBytes(dst[:n], src[:n])
		fence()
		store8(&dst[n], src[n])
	}
}

// fence orders all stores before it ahead of all stores after it, for sizes without an atomic store in sync/atomic. A
// sequentially consistent store followed by a sequentially consistent load is a full fence: XCHG on amd64, STLR then
// LDAR on arm64.
func fence() {
	var word uint32
	atomic.StoreUint32(&word, 1)
	atomic.LoadUint32(&word)
}
