package client

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
)

// mapped is memory shared with the daemon. The garbage collector has it unmapped when nothing
// refers to it any more, and not earlier, as verbs of other goroutines may be accessing it while
// an object is closed.
type mapped struct{ buf []byte }

// mapFD maps size bytes of a memfd, and closes fd.
func mapFD(fd, size int) (*mapped, error) {
	defer unix.Close(fd)
	if err := checkSize(fd, size); err != nil {
		return nil, err
	}
	buf, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	m := &mapped{buf}
	runtime.AddCleanup(m, func(buf []byte) { _ = unix.Munmap(buf) }, buf)
	return m, nil
}

// checkSize refuses a descriptor that is not of size bytes of memory, now and later: access beyond the end of a file
// ends the process (SIGBUS).
func checkSize(fd, size int) error {
	const op = "map memory of the daemon"
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return ib.Refuse(op, "descriptor", err, "a memfd", ib.ErrInvalid)
	}
	if seals&unix.F_SEAL_SHRINK == 0 {
		return ib.Refuse(op, "seals", fmt.Sprintf("%#x", seals), "F_SEAL_SHRINK among them", ib.ErrInvalid)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return os.NewSyscallError("fstat", err)
	}
	if size < 1 || int64(size) > st.Size {
		return ib.Refuse(op, "size", size, fmt.Sprintf("1 to the %d bytes of the memfd", st.Size), ib.ErrInvalid)
	}
	return nil
}
