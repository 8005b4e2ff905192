package server

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/daemon/abi"
	"github.com/goroce/goroce/tests/require"
)

// askHold asks for a hold.
func askHold(t *testing.T, c *abi.Conn) int {
	t.Helper()
	must(t, c.Send(abi.Header{Op: abi.OpHold, Seq: uint32(abi.OpHold)}, nil))
	h, body, fds, err := c.Receive()
	must(t, err)
	if h.Op != abi.OpHold || h.Status != abi.OK || len(body) != 0 || len(fds) != 1 {
		t.Fatalf("answered with %+v, %q, %d descriptors; want %v, no body, 1", h, body, len(fds), abi.OpHold)
	}
	return fds[0]
}

// TestHold checks that a hold counts as a client until its last descriptor is closed, and neither longer nor as
// anything else: nothing can be read from it or written to it, and the connection is not answered any more.
func TestHold(t *testing.T) {
	s, dial := byHand(t, func(*Server) {})
	c := dial()
	if err := call(t, c, abi.OpHold, nil); !errors.Is(err, ib.ErrState) {
		t.Errorf("before hello: %v, want %v", err, ib.ErrState)
	}
	greet(t, c)
	hold := askHold(t, c)
	other, err := unix.FcntlInt(uintptr(hold), unix.F_DUPFD_CLOEXEC, 0)
	must(t, err)
	must(t, c.Send(abi.Header{Op: abi.OpOpen}, abi.Put(nil, &abi.Open{})))
	if n, err := unix.Read(hold, make([]byte, 1)); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("%d bytes can be read from a hold: %v, want %v", n, err, unix.EAGAIN)
	}
	if n, err := unix.Write(hold, []byte{1}); !errors.Is(err, unix.EBADF) {
		t.Errorf("%d bytes can be written to a hold: %v, want %v", n, err, unix.EBADF)
	}
	must(t, unix.Close(hold))
	if s.Clients() != 1 || s.Usage()[0].Amount["descriptors"] != 1 {
		t.Errorf("while there is a descriptor of the hold there are %d clients, who hold %+v; want 1 with 1",
			s.Clients(), s.Usage())
	}
	must(t, unix.Close(other))
	require.Until(t, "the hold ends", func() bool { return s.Clients() == 0 && len(s.Usage()) == 0 })
	if h, _, _, err := c.Receive(); err == nil {
		t.Errorf("a request behind that for a hold is answered with %+v, want an error", h)
	}
}

// TestHoldLasts checks that a hold outlives its connection, but not the server.
func TestHoldLasts(t *testing.T) {
	hold := -1
	t.Cleanup(func() { _ = unix.Close(hold) }) // after the server has ended
	s, dial := byHand(t, func(*Server) {})
	c := dial()
	greet(t, c)
	hold = askHold(t, c)
	must(t, c.Close())
	open := dial()
	begin(t, open)
	if err := call(t, open, abi.OpHold, nil); !errors.Is(err, ib.ErrState) {
		t.Errorf("of a connection that has a device: %v, want %v", err, ib.ErrState)
	}
	must(t, open.Close())
	require.Until(t, "the other client leaves", func() bool { return s.Clients() < 2 })
	if s.Clients() != 1 {
		t.Error("the hold has ended with its connection")
	}
}
