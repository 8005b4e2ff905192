package server

import (
	"fmt"
	"os"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/roce/daemon/abi"
)

// shared is memory shared with a client: rings or doorbells. It is a memfd of the client's. It is not populated: a
// page that cannot be allocated when it is touched is a fault (session.Fault).
type shared struct{ buf []byte }

// mostRings bounds the rings of one object, in bytes.
const mostRings = 1 << 30

// bringsRings are the requests that may come with a memfd for rings. How large those are, the device finds out in the
// verb, and asks for them by session.Alloc.
var bringsRings = map[abi.Op]bool{abi.OpCreateCQ: true, abi.OpResizeCQ: true, abi.OpCreateSRQ: true,
	abi.OpModifySRQ: true, abi.OpCreateQP: true}

// mapShared maps the beginning of the memfd that comes with a request, whatever it is, and seals it: at least so many
// bytes, and up to most of those that it has. A file that is sealed already is refused: it could be mapped from an
// earlier mapping only (memfds.again), as regions are.
func (c *session) mapShared(op abi.Op, fds []int, least, most uint64) (*shared, error) {
	bad := func(attr string, value any, allowed string) (*shared, error) {
		return nil, driver.Refuse(op.String(), attr, value, allowed, ib.ErrInvalid)
	}
	if len(fds) != 1 {
		return bad("descriptors", len(fds), fmt.Sprintf("one, of a memfd of %d bytes", least))
	}
	m, err := checkMemfd(op, fds[0])
	switch {
	case err != nil:
		return nil, err
	case m.sealed:
		return bad("seals", "F_SEAL_FUTURE_WRITE",
			"none that forbids to map the memory for writing, as the daemon adds: take a new memfd for each request")
	case m.size < least:
		return bad("bytes of the memfd", m.size, fmt.Sprintf("at least %d", least))
	}
	buf, err := mapMemfd(op, fds[0], min(m.size, most))
	if err != nil {
		return nil, err
	}
	if err := c.seal(op, fds[0]); err != nil {
		_ = unmap(buf)
		return nil, err
	}
	return &shared{buf}, nil
}

// cut keeps the first size bytes. It reports whether there are so many.
func (s *shared) cut(size int) bool {
	if size > len(s.buf) {
		return false
	}
	if end := int(roundUp(uint64(size), uint64(os.Getpagesize()))); end < len(s.buf) {
		_ = unmap(s.buf[end:])
	}
	s.buf = s.buf[:size:size]
	return true
}

// free unmaps the memory. The caller makes sure that nothing accesses it any more.
func (s *shared) free() {
	if s != nil && s.buf != nil {
		_ = unmap(s.buf)
		s.buf = nil
	}
}
