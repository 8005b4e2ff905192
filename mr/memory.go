package mr

import "unsafe"

// Memory is what a region covers. Offsets count from its first byte.
//
// If Direct is not nil it returns all Len bytes, always the same slice, and the region's owner keeps them alive until
// Deregister. Otherwise the bytes are reached by the other methods, which may be slow and may fail. An error means that
// these bytes cannot be accessed; a peer's access then fails with a remote access error. CompareSwap and FetchAdd act
// on 8 bytes in host byte order, at a multiple of 8 in the region's address space, and return the previous value.
// Methods may be called from several goroutines at once.
//
// Memory that can survive a loss of power also implements Persister.
type Memory interface {
	Len() uint64
	Direct() []byte
	ReadAt(p []byte, off uint64) error
	WriteAt(p []byte, off uint64) error
	CompareSwap(off, compare, swap uint64) (old uint64, err error)
	FetchAdd(off, add uint64) (old uint64, err error)
}

// Bytes returns b as direct memory. The caller keeps b alive and unmoved for as
// long as it is registered.
func Bytes(b []byte) Memory { return direct(b) }

type direct []byte

func (d direct) Len() uint64    { return uint64(len(d)) }
func (d direct) Direct() []byte { return d }

func (d direct) ReadAt(p []byte, off uint64) error {
	src, ok := d.slice(off, uint64(len(p)))
	if !ok {
		return FaultBounds
	}
	copyBytes(p, src)
	return nil
}

func (d direct) WriteAt(p []byte, off uint64) error {
	dst, ok := d.slice(off, uint64(len(p)))
	if !ok {
		return FaultBounds
	}
	copyLast(dst, p)
	return nil
}

func (d direct) CompareSwap(off, compare, swap uint64) (uint64, error) {
	p, err := d.word(off)
	if err != nil {
		return 0, err
	}
	return compareSwap(p, compare, swap), nil
}

func (d direct) FetchAdd(off, add uint64) (uint64, error) {
	p, err := d.word(off)
	if err != nil {
		return 0, err
	}
	return fetchAdd(p, add), nil
}

// slice returns the n bytes at off. ok is false if they do not exist.
func (d direct) slice(off, n uint64) ([]byte, bool) {
	size := uint64(len(d))
	if off > size || n > size-off {
		return nil, false
	}
	return d[off : off+n : off+n], true
}

// word returns the aligned 8 bytes at off.
func (d direct) word(off uint64) (*uint64, error) {
	b, ok := d.slice(off, 8)
	if !ok {
		return nil, FaultBounds
	}
	p := unsafe.Pointer(&b[0])
	if uintptr(p)%8 != 0 {
		return nil, ErrMisaligned
	}
	return (*uint64)(p), nil
}
