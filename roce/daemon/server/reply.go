package server

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/roce/daemon/abi"
)

// reply is the answer to a request.
type reply struct {
	body []byte
	fds  []int
	sent func()     // called after the reply was sent, or could not be sent
	made abi.Handle // the new object to which the descriptors belong; 0 if they are the session's
}

// A descriptor in an unread message is in flight. The kernel counts those that all processes of
// a user have sent. Once the daemon's user has RLIMIT_NOFILE of them in flight, no client gets a
// descriptor (unix(7), ETOOMANYREFS). So a client gets no reply with descriptors before it has
// read all earlier replies. Then the daemon has no more descriptors in flight than open: the
// largest reply, to share doorbells, has one for each descriptor that the session keeps.

// reply answers a request that was carried out. sent is called whatever happens: it closes the daemon's copies of
// what the client was to get.
func (c *session) reply(to abi.Header, r *reply) error {
	answer := abi.Header{Op: to.Op, Seq: to.Seq}
	err := c.read(len(r.fds) > 0)
	if err == nil {
		err = c.srv.send(c.conn, answer, r.body, r.fds...)
	}
	r.sent()
	if !errors.Is(err, unix.ETOOMANYREFS) {
		return err
	}
	return c.unsent(to, r)
}

// unsent answers a request whose reply could not carry its descriptors, with an error, and closes the object that the
// request has created. If the descriptors are the session's, the session ends. Without its descriptor the client
// could not use the object.
func (c *session) unsent(to abi.Header, r *reply) error {
	full := driver.Refuse(to.Op.String(), "descriptors in flight", len(r.fds),
		"less than RLIMIT_NOFILE together for the daemon's user, whose programs have sent too many that nobody has "+
			"received",
		ib.ErrLimit)
	if r.made == 0 {
		return errors.Join(full, c.deny(to, full))
	}
	if _, err := c.destroy(c.objects[r.made]); err != nil {
		return err
	}
	return c.deny(to, full)
}

// deny answers a request with an error. Refusals carry no descriptors, so it does not wait for the client to read. If
// the socket is full, the send waits, until hangUp at the latest.
func (c *session) deny(to abi.Header, err error) error {
	c.srv.totals.note(err)
	body, status := abi.PutError(nil, err)
	return c.srv.send(c.conn, abi.Header{Op: to.Op, Seq: to.Seq, Status: status}, body)
}

// unreadLimit is how long a client that requests descriptors may leave earlier replies unread.
const unreadLimit = 30 * time.Second

// read waits until the client has read all replies, if the next one has descriptors. It returns
// at once for a client that reads each answer before it sends the next request.
func (c *session) read(fds bool) error {
	if !fds {
		return nil
	}
	raw, err := c.conn.SyscallConn()
	if err != nil {
		return err
	}
	for wait, end := time.Millisecond, time.Now().Add(unreadLimit); ; wait = min(2*wait, time.Second/4) {
		unread := 0
		// Of a Unix socket TIOCOUTQ is the memory of all messages that the peer has not received.
		if e := raw.Control(func(fd uintptr) { unread, err = unix.IoctlGetInt(int(fd), unix.TIOCOUTQ) }); e != nil ||
			err != nil {
			return errors.Join(e, err)
		}
		switch {
		case unread == 0:
			return nil
		case time.Now().After(end):
			return fmt.Errorf("replies lie unread for %v: %w", unreadLimit, ib.ErrLimit)
		}
		select {
		case <-time.After(wait):
		case <-c.ending:
			return fmt.Errorf("reply: %w", ib.ErrClosed)
		}
	}
}

// closeLimit is how long refuse blocks the accept loop while a connection of a user with many
// refused connections is closed.
const closeLimit = time.Second

// refuse sends a new connection the reason for its refusal, and closes it. It does not wait for
// the client: the buffer of a new socket has room for the message. A refused connection keeps no
// descriptor.
func (s *Server) refuse(conn *abi.Conn, uid uint32, user *account, crowd bool, why error) {
	s.totals.clients.Add(1)
	s.totals.note(why)
	s.log.Debug("a connection too many is closed", "uid", uid, "err", why)
	body, status := abi.PutError(nil, why)
	_ = conn.SetWriteDeadline(time.Now().Add(closeLimit))
	_ = s.send(conn, abi.Header{Op: abi.OpHello, Status: status}, body) // the client may be gone
	closed := make(chan struct{})
	user.closer.closeConn(func() {
		_ = conn.Close()
		s.accounts.leave(uid)
		close(closed)
	})
	if !crowd {
		return
	}
	select { // meanwhile new connections wait in the listener's queue
	case <-closed:
	case <-time.After(closeLimit):
	}
}
