package server

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/daemon/abi"
)

// A hold keeps the daemon from its idle exit until nobody has it any more: `goroced run` leaves one to its program,
// which may open a device later. It is the reading end of a pipe that stays empty. Children inherit it, and programs
// with fewer rights; so it must be of no use but that. There is nothing to read from it, and nothing can be told to the
// daemon by it.

// hold makes the session one that only lasts as long as the hold that it answers with. The daemon keeps the writing
// end, by which it learns that no reading end is left. While it is open, a program that reads finds neither bytes nor
// the end of the file.
func hold(c *session, _ []byte, _ []int) (reply, error) {
	const op = abi.OpHold
	if c.unit != nil || c.hold != nil {
		return noBody(fmt.Errorf("%v: the connection has a device, or is a hold: %w", op, ib.ErrState))
	}
	if err := c.take(op, descriptors, 1); err != nil {
		return noBody(err)
	}
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return noBody(fmt.Errorf("%v: %w", op, os.NewSyscallError("pipe2", err)))
	}
	theirs, ours := ends[0], ends[1]
	// Only this end stays open here; theirs is closed once the reply has been sent.
	if err := spare(ours); err != nil {
		abi.CloseAll(ends[:])
		return noBody(err)
	}
	c.keepBooked(descriptors)
	c.hold = c.conn.NewFile(ours, "hold")
	return reply{fds: []int{theirs}, sent: func() { _ = unix.Close(theirs) }}, nil
}

// awaitRelease waits until nobody has the hold any more, or hangUp.
func (c *session) awaitRelease() {
	released := make(chan struct{})
	go func() { // until session.end at the latest
		_ = c.hold.AwaitWrite(func(fd uintptr) bool { return unread(int(fd)) })
		close(released)
	}()
	select {
	case <-released:
	case <-c.ending:
	}
}

// unread reports whether nobody has the reading end of a pipe any more. POLLERR is what poll(2) reports then for the
// writing end, without being asked for it.
func unread(fd int) bool { return abi.Poll(fd, 0)&unix.POLLERR != 0 }
