package server

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// shared is memory shared with a client: rings or doorbells. It is a memfd of the daemon's, which
// is sealed so that the client cannot change its size.
type shared struct {
	buf []byte
	fd  int // -1 once it was sent to the client
}

// newShared returns size zero bytes of shared memory.
func newShared(name string, size int) (*shared, error) {
	fd, err := unix.MemfdCreate("goroce-"+name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	s := &shared{fd: fd}
	if err := s.fill(size); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("memory for %s: %w", name, err)
	}
	return s, nil
}

func (s *shared) fill(size int) (err error) {
	if err := unix.Ftruncate(s.fd, int64(size)); err != nil {
		return os.NewSyscallError("ftruncate", err)
	}
	const keepsSize = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(uintptr(s.fd), unix.F_ADD_SEALS, keepsSize); err != nil {
		return os.NewSyscallError("fcntl", err)
	}
	s.buf, err = unix.Mmap(s.fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	return os.NewSyscallError("mmap", err)
}

// sent closes the descriptor after it was sent: the client has its own copy.
func (s *shared) sent() {
	if s != nil && s.fd >= 0 {
		_ = unix.Close(s.fd)
		s.fd = -1
	}
}

// free unmaps the memory. The caller makes sure that nothing accesses it any more.
func (s *shared) free() {
	if s == nil {
		return
	}
	s.sent()
	if s.buf != nil {
		_ = unmap(s.buf)
		s.buf = nil
	}
}
