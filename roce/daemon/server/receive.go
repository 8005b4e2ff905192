package server

import (
	"errors"
	"fmt"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/daemon/abi"
)

// message is a request as it has come.
type message struct {
	abi.Header
	body    []byte
	fds     []int
	release func() // has the descriptors closed
}

// takeLimit is how long a message with descriptors waits for those of earlier ones to be
// closed, before the client is dropped.
const takeLimit = time.Second

// receive returns the next request. One that brings descriptors is taken by the closer of the
// user, and only once the client was let in: a client that was not has none here.
func (c *session) receive() (message, error) {
	rights, err := c.conn.Await()
	if err != nil {
		return message{}, err
	}
	if !rights {
		h, body, _, err := c.conn.Receive()
		return message{Header: h, body: body, release: func() {}}, err
	}
	if !c.greeted {
		return message{}, fmt.Errorf("descriptors before hello: %w", ib.ErrState)
	}
	var m message
	m.release = func() { c.user.closer.closeFiles(m.fds, c.untie) }
	taken := make(chan error, 1)
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
		err = errors.New("the descriptors of this user do not close")
	case <-c.ending:
		err = fmt.Errorf("take descriptors: %w", ib.ErrClosed)
	}
	go func() { // when it is taken, or the connection closed
		<-taken
		m.release()
	}()
	return message{}, err
}
