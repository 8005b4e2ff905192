package client

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// mapped is memory shared with the daemon. The garbage collector has it unmapped when nothing
// refers to it any more, and not earlier, as verbs of other goroutines may be accessing it while
// an object is closed.
type mapped struct{ buf []byte }

// mapFD maps size bytes of a memfd, and closes fd.
func mapFD(fd, size int) (*mapped, error) {
	buf, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	_ = unix.Close(fd)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	m := &mapped{buf}
	runtime.AddCleanup(m, func(buf []byte) { _ = unix.Munmap(buf) }, buf)
	return m, nil
}
