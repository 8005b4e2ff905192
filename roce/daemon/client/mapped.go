package client

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/roce/daemon/abi"
)

// mapped is memory shared with the daemon: rings or doorbells. The garbage collector has it unmapped when
// nothing refers to it any more, and not earlier, as verbs of other goroutines may be accessing it while
// an object is closed.
type mapped struct{ buf []byte }

// newMapped makes and maps a memfd of size bytes, before the daemon gets it: the daemon lets nobody map it
// for writing later. The caller closes fd. Without bytes there is no memfd, and fd is -1.
func newMapped(size int) (m *mapped, fd int, err error) {
	if size == 0 {
		return &mapped{}, -1, nil
	}
	buf, fd, err := makeMemory("goroce-rings", size)
	if err != nil {
		return nil, -1, err
	}
	_ = unix.Madvise(buf, unix.MADV_DONTFORK) // a child that C code forks could make requests by it
	m = &mapped{buf}
	runtime.AddCleanup(m, func(buf []byte) { _ = unix.Munmap(buf) }, buf)
	return m, fd, nil
}

// makeMemory makes and maps a memfd that cannot shrink.
func makeMemory(name string, size int) (buf []byte, fd int, err error) {
	var limit unix.Rlimit // beyond it ftruncate(2) would end this process (SIGXFSZ)
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &limit); err == nil && uint64(size) > limit.Cur {
		return nil, -1, driver.Refuse("make a memfd", "size", size,
			fmt.Sprintf("%d bytes; ulimit -f raises it", limit.Cur),
			ib.ErrLimit)
	}
	fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, -1, os.NewSyscallError("memfd_create", err)
	}
	if buf, err = mapMemory(fd, size); err != nil {
		_ = unix.Close(fd)
		return nil, -1, err
	}
	return buf, fd, nil
}

func mapMemory(fd, size int) ([]byte, error) {
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		return nil, os.NewSyscallError("ftruncate", err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK); err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	buf, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	return buf, os.NewSyscallError("mmap", err)
}

// askRings sends a request that carries memory for rings of size bytes, and has attach open the rings in the part of
// the memory that they take. When the daemon has answered, it uses them: if this end cannot, the connection ends.
func askRings[Request any](d *Device, op abi.Op, r Request, size int,
	attach func(*abi.Ring, *mapped) error) (answer abi.Ring, err error) {
	m, fd, err := newMapped(size)
	if err != nil {
		return answer, fmt.Errorf("%v: %w", op, err)
	}
	var give []int
	if fd >= 0 {
		defer unix.Close(fd)
		give = []int{fd}
	}
	if answer, _, err = ask[abi.Ring](d.link, op, r, 0, give...); err != nil {
		return answer, err
	}
	if answer.Size > uint64(len(m.buf)) || answer.Send > answer.Size || answer.Recv > answer.Size-answer.Send {
		err = driver.Refuse(op.String(), "bytes that the daemon's rings take",
			fmt.Sprintf("%d, of which %d to send and %d to receive", answer.Size, answer.Send, answer.Recv),
			fmt.Sprintf("the %d that were sent along", len(m.buf)), ib.ErrInvalid)
	} else {
		err = attach(&answer, m)
	}
	if err != nil {
		return answer, d.link.distrust(err)
	}
	return answer, nil
}
