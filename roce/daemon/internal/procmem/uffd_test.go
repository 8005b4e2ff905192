//go:build linux

package procmem

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Calls and structures of linux/userfaultfd.h.
const (
	uffdAPI      = 0xAA
	uffdMissing  = 1
	uffdioAPI    = 0xC018AA3F
	uffdioRegist = 0xC020AA00
	uffdioCopy   = 0xC028AA03
)

func ioctl(fd int, request uintptr, arg unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(arg)); errno != 0 {
		return errno
	}
	return nil
}

// hang makes every access to pages that are not mapped block.
func hang(pages []byte) (fd int, err error) {
	r, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	fd = int(r)
	api := struct{ api, features, ioctls uint64 }{api: uffdAPI}
	if err := ioctl(fd, uffdioAPI, unsafe.Pointer(&api)); err != nil {
		return 0, err
	}
	reg := struct{ start, length, mode, ioctls uint64 }{uint64(uintptr(unsafe.Pointer(&pages[0]))), uint64(len(pages)),
		uffdMissing, 0}
	return fd, ioctl(fd, uffdioRegist, unsafe.Pointer(&reg))
}

// resolve maps a page, which ends the waits for it.
func resolve(fd int, page []byte) error {
	src := make([]byte, 2*len(page))
	skip := -uintptr(unsafe.Pointer(&src[0])) % uintptr(len(page))
	copy(src[skip:], "resolved")
	c := struct {
		dst, src, length, mode uint64
		copied                 int64
	}{uint64(uintptr(unsafe.Pointer(&page[0]))), uint64(uintptr(unsafe.Pointer(&src[skip]))), uint64(len(page)), 0, 0}
	err := ioctl(fd, uffdioCopy, unsafe.Pointer(&c))
	runtime.KeepAlive(src)
	return err
}
