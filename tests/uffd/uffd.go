//go:build linux

// Package uffd has memory for tests whose access blocks: pages under userfaultfd(2), for which every
// access waits, also the kernel's on behalf of another process, until the test resolves them.
// It takes root, or vm.unprivileged_userfaultfd=1.
package uffd

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Needs says what is missing where Hang fails, for its error (see require.Missing).
const Needs = "needs userfaultfd for faults of the kernel (root, or vm.unprivileged_userfaultfd=1): %v"

// Fault holds up accesses to some pages.
type Fault int

// Calls and structures of linux/userfaultfd.h.
const (
	version  = 0xAA
	missing  = 1
	api      = 0xC018AA3F
	register = 0xC020AA00
	zeroPage = 0xC020AA04
)

func (f Fault) ioctl(request uintptr, arg unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(f), request, uintptr(arg)); errno != 0 {
		return errno
	}
	return nil
}

// Hang lets every access to the pages wait until Resolve. The pages must not have been touched.
func Hang(pages []byte) (Fault, error) {
	fd, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	f := Fault(fd)
	hello := struct{ api, features, ioctls uint64 }{api: version}
	err := f.ioctl(api, unsafe.Pointer(&hello))
	if err == nil {
		area := struct{ start, length, mode, ioctls uint64 }{addr(pages), uint64(len(pages)), missing, 0}
		err = f.ioctl(register, unsafe.Pointer(&area))
	}
	if err != nil {
		_ = unix.Close(int(f))
		return 0, err
	}
	return f, nil
}

// Wait waits for an access.
func (f Fault) Wait() error {
	_, err := unix.Read(int(f), make([]byte, 32))
	return err
}

// Resolve fills the pages with zeros, and so ends the accesses that wait for them.
func (f Fault) Resolve(pages []byte) error {
	z := struct {
		start, length, mode uint64
		zeroed              int64
	}{addr(pages), uint64(len(pages)), 0, 0}
	err := f.ioctl(zeroPage, unsafe.Pointer(&z))
	runtime.KeepAlive(pages)
	return err
}

func addr(pages []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(pages)))) }
