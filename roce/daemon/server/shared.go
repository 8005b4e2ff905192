package server

import (
	"fmt"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/roce/daemon/abi"
)

// shared is memory shared with a client: rings or doorbells. It is a memfd of the client's. It is not populated: a
// page that cannot be allocated when it is touched is a fault (session.Fault).
type shared struct{ buf []byte }

// newShared maps the first size bytes of the memfd that comes with a request, whatever they are, and seals it. A file
// that is sealed already is refused: it could be mapped from an earlier mapping only (memfds.again), as regions are.
func newShared(op abi.Op, fds []int, size int) (*shared, error) {
	bad := func(attr string, value any, allowed string) (*shared, error) {
		return nil, driver.Refuse(op.String(), attr, value, allowed, ib.ErrInvalid)
	}
	if len(fds) != 1 {
		return bad("descriptors", len(fds), fmt.Sprintf("one, of a memfd of %d bytes", size))
	}
	m, err := checkMemfd(op, fds[0])
	switch {
	case err != nil:
		return nil, err
	case m.sealed:
		return bad("seals", "F_SEAL_FUTURE_WRITE",
			"none that forbids to map the memory for writing, as the daemon adds: take a new memfd for each request")
	case uint64(size) > m.size:
		return bad("bytes of the memfd", m.size, fmt.Sprintf("at least %d", size))
	}
	buf, err := mapSealed(op, fds[0], uint64(size))
	if err != nil {
		return nil, err
	}
	return &shared{buf}, nil
}

// free unmaps the memory. The caller makes sure that nothing accesses it any more.
func (s *shared) free() {
	if s != nil && s.buf != nil {
		_ = unmap(s.buf)
		s.buf = nil
	}
}
