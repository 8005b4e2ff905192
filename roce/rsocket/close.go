package rsocket

import (
	"net"
	"time"
)

// CloseWrite tells the peer that no more data comes: the peer's Read returns io.EOF after the data written so far. Read
// of this end goes on.
func (c *Conn) CloseWrite() error {
	return c.shut(func() {
		c.writeClosed = true
		c.writable.Broadcast()
	})
}

// CloseRead makes Read return io.EOF, and drops data that arrives from now on. The peer is told only if CloseWrite has
// been called, too; then its Write fails.
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
		c.sendControl(ctrlDisconnect)
	case c.writeClosed && !wasWriteClosed:
		c.sendControl(ctrlShutdown)
	}
	return nil
}

// Close ends the connection. Read and Write return at once. Data that Write has reported as written is still sent in
// the background, for at most Options.Linger. A program that is about to exit waits for Done.
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
		c.sendControl(ctrlDisconnect)
	}
	c.timers = append(c.timers, time.AfterFunc(c.ep.o.Linger, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.fail(broken(errLinger))
	}))
	c.stopIfDrained()
	return nil
}

// Done is closed when the work of Close in the background is over: the peer has all data, or cannot get it any more,
// and all resources are free.
func (c *Conn) Done() <-chan struct{} { return c.released }

// sendControl sends a control message, or queues it until a slot is free. Nothing is sent after a disconnect message.
func (c *Conn) sendControl(message uint32) {
	if c.disconnectSent || c.peerClosed || c.err != nil {
		return
	}
	c.disconnectSent = message == ctrlDisconnect
	c.pending = append(c.pending, message)
	c.sendPending()
}

// stopIfDrained ends the connection after Close: when all requests have completed, or when the peer has closed its end
// or is gone, so that they do not matter.
func (c *Conn) stopIfDrained() {
	if !c.closed {
		return
	}
	drained := len(c.pending) == 0 && c.out.slots == c.ep.o.SendQueue-ctrlSlots && c.out.ctrl == ctrlSlots
	if drained || c.peerClosed || c.err != nil {
		c.stop()
	}
}
