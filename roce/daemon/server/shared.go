package server

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/daemon/abi"
)

// shared is memory shared with a client: rings or doorbells. It is a memfd of the client's.
type shared struct{ buf []byte }

// newShared maps the first size bytes of the memfd that comes with a request, whatever they are.
func newShared(op abi.Op, fds []int, size int) (*shared, error) {
	if len(fds) != 1 {
		return nil, ib.Refuse(op.String(), "descriptors", len(fds), fmt.Sprintf("one, of a memfd of %d bytes", size),
			ib.ErrInvalid)
	}
	_, have, err := checkFile(op, fds[0], false)
	if err != nil {
		return nil, err
	}
	if uint64(size) > have {
		return nil, ib.Refuse(op.String(), "bytes of the memfd", have, fmt.Sprintf("at least %d", size), ib.ErrInvalid)
	}
	buf, err := mapSealed(op, fds[0], size)
	if err != nil {
		return nil, err
	}
	return &shared{buf}, nil
}

// mapSealed maps the first size bytes of a memfd, and seals it so that its pages stay.
//
// Who has a file of tmpfs, or a mapping of it, for writing can make holes in it (FALLOC_FL_PUNCH_HOLE,
// MADV_REMOVE). Whoever touches a page there meanwhile waits in the page fault, and a thread of a Go program that
// waits there may hold up all others. F_SEAL_FUTURE_WRITE makes both fail with EPERM, from the end of a call that
// is under way on. It forbids new mappings for writing, too, so the daemon maps the file first. Nothing touches
// the memory before it is sealed.
func mapSealed(op abi.Op, fd, size int) ([]byte, error) {
	buf, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("%v: map %d bytes: %w: %w", op, size, err, ib.ErrLimit)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_FUTURE_WRITE); err != nil {
		_ = unmap(buf)
		return nil, ib.Refuse(op.String(), "adding F_SEAL_FUTURE_WRITE to the memfd", err,
			"seals without F_SEAL_SEAL: the daemon must be able to keep others from making holes in it", ib.ErrInvalid)
	}
	return buf, nil
}

// free unmaps the memory. The caller makes sure that nothing accesses it any more.
func (s *shared) free() {
	if s != nil && s.buf != nil {
		_ = unmap(s.buf)
		s.buf = nil
	}
}
