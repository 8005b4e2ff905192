package rsocket

import (
	"net"
	"time"
)

// CloseWrite tells the peer that nothing more comes: its Read returns io.EOF after
// what was written. Read goes on.
func (c *Conn) CloseWrite() error {
	return c.shut(func() {
		c.writeClosed = true
		c.writable.Broadcast()
	})
}

// CloseRead makes Read return io.EOF and drops what arrives from now on. The peer
// is not told, unless CloseWrite was called too: then its Write fails.
func (c *Conn) CloseRead() error {
	return c.shut(func() {
		c.readClosed = true
		c.discard()
		c.grant()
		c.readable.Broadcast()
	})
}

func (c *Conn) shut(set func()) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return c.opError("close", net.ErrClosed)
	}
	wasWriteClosed := c.writeClosed
	set()
	switch {
	case c.readClosed && c.writeClosed:
		c.say(ctrlDisconnect)
	case c.writeClosed && !wasWriteClosed:
		c.say(ctrlShutdown)
	}
	return nil
}

// Close ends the connection. Read and Write return at once; what Write reported as
// written still gets to the peer, in the background, for at most Options.Linger.
// A program that is about to end waits for Done.
func (c *Conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return c.opError("close", net.ErrClosed)
	}
	c.closed = true
	c.readable.Broadcast()
	c.writable.Broadcast()
	if !c.writeClosed || !c.eof {
		c.say(ctrlDisconnect)
	}
	c.timers = append(c.timers, time.AfterFunc(c.ep.o.Linger, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.fail(broken(errLinger))
	}))
	c.settle()
	return nil
}

// Done is closed when Close has finished in the background: the peer has all that
// was written, or never will, and the memory and the queues are free.
func (c *Conn) Done() <-chan struct{} { return c.released }

// say sends a control message once the connection allows it, and nothing after a
// disconnect message.
func (c *Conn) say(message uint32) {
	if c.saidAll || c.peerClosed || c.err != nil {
		return
	}
	c.saidAll = message == ctrlDisconnect
	c.pending = append(c.pending, message)
	c.sendPending()
}

// settle stops the connection after Close, when nothing of ours is under way any
// more, or when it does not matter: the peer has closed its end, or is gone.
func (c *Conn) settle() {
	if !c.closed {
		return
	}
	drained := len(c.pending) == 0 && c.out.slots == c.ep.o.SendQueue-ctrlSlots && c.out.ctrl == ctrlSlots
	if drained || c.peerClosed || c.err != nil {
		c.stop()
	}
}
