package server

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// unmap ends a mapping of memory shared with a client.
var unmap = func(pages []byte) error {
	return unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(pages)), uintptr(len(pages)))
}

// faultsEnd makes the process end when an access to memory that is, or was, shared with a client
// faults. A daemon drops the client and goes on (session.Fault), but a test should fail.
var faultsEnd bool

// GuardMappings replaces unmapped memory of clients with inaccessible pages in all servers of this
// process, and ends the process when a server accesses memory that is not there. Without it such
// an access may hit whatever is mapped at these addresses next. It is for tests, which call it
// before they make a server. The build tag guardmaps calls it in a daemon.
func GuardMappings() { unmap, faultsEnd = guard, true }

// guard replaces a mapping with an inaccessible one, which keeps its addresses reserved. The
// kernel merges adjacent guards into one mapping.
func guard(pages []byte) error {
	const fixed = unix.MAP_FIXED | unix.MAP_PRIVATE | unix.MAP_ANONYMOUS | unix.MAP_NORESERVE
	_, err := unix.MmapPtr(-1, 0, unsafe.Pointer(unsafe.SliceData(pages)), uintptr(len(pages)), unix.PROT_NONE, fixed)
	return err
}
