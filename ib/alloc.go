package ib

import (
	"os"
	"unsafe"
)

// Alloc returns n zero bytes to register with dev, aligned to a page. They are from dev if it is an Allocator and can
// provide them, and from the Go heap otherwise. Free releases them.
func Alloc(dev Device, n int) []byte {
	if a, ok := dev.(Allocator); ok && n > 0 {
		if buf, err := a.Alloc(n); err == nil {
			return buf
		}
	}
	page := os.Getpagesize()
	buf := make([]byte, n+page)
	skip := -int(uintptr(unsafe.Pointer(&buf[0]))) & (page - 1)
	return buf[skip : skip+n : skip+n]
}

// Free releases what Alloc has returned for dev. Its regions must be closed.
func Free(dev Device, buf []byte) {
	if a, ok := dev.(Allocator); ok {
		_ = a.Free(buf) // an error means that the memory is Go's
	}
}
