package rsocket

import (
	"io"
	"net"
	"os"
)

// smallCopy is the largest number of bytes that are copied with mu held; for more, mu is released.
const smallCopy = 4 << 10

// Read reads data that has arrived, and waits if there is none. It returns io.EOF after CloseRead, and when all data
// has been read and the peer has closed its end, or its sending half.
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

// discard drops data that arrives after CloseRead, except what a Read is copying.
func (c *Conn) discard() {
	if c.readClosed && c.reading == 0 {
		c.in.consumed(c.in.avail)
	}
}

// readEnds reports whether a Read of n bytes returns without data, and with which error.
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
