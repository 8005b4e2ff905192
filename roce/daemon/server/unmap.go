package server

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// unmap ends a mapping of memory that a client shares. Tests replace it with guard, and so
// does the build tag guardmaps: a use of the memory that comes later is a fault then, where
// it would otherwise hit whatever is mapped there next.
var unmap = unix.Munmap

// faultsEnd has the process end at a use of memory that a client shares, or shared, and that
// is not there. A daemon lives on (session.Fault), but a test is to see it.
var faultsEnd bool

// guard replaces a mapping with one that nobody may touch, and that keeps its addresses.
// Neighbours are one mapping for the kernel.
func guard(pages []byte) error {
	const fixed = unix.MAP_FIXED | unix.MAP_PRIVATE | unix.MAP_ANONYMOUS | unix.MAP_NORESERVE
	_, err := unix.MmapPtr(-1, 0, unsafe.Pointer(unsafe.SliceData(pages)), uintptr(len(pages)), unix.PROT_NONE, fixed)
	return err
}
