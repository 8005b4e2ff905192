package server

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/daemon/abi"
)

// message is a request as received.
type message struct {
	abi.Header
	sender  *unix.Ucred // the process that has sent it
	body    []byte      // valid until the next receive
	fds     []int
	release func() // closes the descriptors, on the user's closer
}

// takeLimit is how long a message with descriptors may wait for those of earlier messages to be
// closed, before the client is dropped. Only this client waits. A daemon on a busy machine may get no
// processor for seconds, which must not look as if descriptors did not close.
const takeLimit = 10 * time.Second

// receive returns the next request. A message with descriptors is received by the user's closer,
// and only after the hello: descriptors of a client that was not admitted are never received.
func (c *session) receive() (message, error) {
	// Await only peeks. What it tells is of the message that is received below, as nobody else reads from the socket.
	sender, rights, err := c.conn.Await()
	if err != nil {
		return message{}, err
	}
	if !rights {
		h, body, _, err := c.conn.Receive()
		return message{Header: h, sender: sender, body: body, release: func() {}}, err
	}
	if !c.greeted {
		return message{}, fmt.Errorf("descriptors before hello: %w", ib.ErrState)
	}
	// The closures share m with this function: what arrives after it has returned is closed by the goroutine at the
	// end.
	m := message{sender: sender}
	m.release = func() { c.user.closer.closeFiles(m.fds, c.untie) }
	// Room for one, so that the closer's thread does not wait for a session that has given up.
	taken := make(chan error, 1)
	// Until release has closed the descriptors the user stays charged for the client, even if that is gone.
	c.ties.Add(1)
	c.user.closer.take(func() {
		var err error
		m.Header, m.body, m.fds, err = c.conn.Receive()
		taken <- err
	})
	select {
	case err := <-taken:
		if err != nil {
			m.release()
		}
		return m, err
	case <-time.After(takeLimit):
		err = fmt.Errorf("take descriptors: earlier ones from user %d were not closed within %v", c.who.Uid, takeLimit)
	case <-c.ending:
		err = fmt.Errorf("take descriptors: %w", ib.ErrClosed)
	}
	go func() { // after the message was received, or the connection closed
		<-taken
		m.release()
	}()
	return message{}, err
}
