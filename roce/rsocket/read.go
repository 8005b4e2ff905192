package rsocket

import (
	"io"
	"net"
	"os"
)

// smallCopy is how many bytes are copied under the lock rather than letting go of
// it for that.
const smallCopy = 4 << 10

// Read reads what has arrived, and waits if nothing has. It returns io.EOF when
// all was read and the peer has shut down or closed its end, and after CloseRead.
func (c *Conn) Read(p []byte) (int, error) {
	c.readMu.Lock()
	defer c.readMu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.in.avail == 0 || c.closed || c.readClosed || c.readDeadline.expired {
		if done, err := c.readEnds(len(p)); done {
			return 0, c.opError("read", err)
		}
		if c.progress() == 0 {
			c.readable.Wait()
		}
	}
	first, second := c.in.unread(c.ep.data, len(p))
	n := len(first) + len(second)
	c.reading = n
	if n > smallCopy {
		c.mu.Unlock()
	}
	copy(p[copy(p, first):], second)
	if n > smallCopy {
		c.mu.Lock()
	}
	c.reading = 0
	c.in.consumed(n)
	c.discard()
	c.grant()
	return n, nil
}

// discard drops what arrives after CloseRead, but not from under a Read that is
// copying.
func (c *Conn) discard() {
	if c.readClosed && c.reading == 0 {
		c.in.consumed(c.in.avail)
	}
}

// readEnds reports whether a Read of n bytes ends without any.
func (c *Conn) readEnds(n int) (bool, error) {
	switch {
	case c.closed:
		return true, net.ErrClosed
	case c.readDeadline.expired:
		return true, os.ErrDeadlineExceeded
	case n == 0:
		return true, nil
	case c.readClosed:
		return true, io.EOF
	case c.in.avail > 0:
		return false, nil
	case c.eof:
		return true, io.EOF
	}
	return c.err != nil, c.err
}
