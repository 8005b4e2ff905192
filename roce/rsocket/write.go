package rsocket

import (
	"net"
	"os"
	"syscall"

	"github.com/goroce/goroce/ib"
)

// maxMessage is the largest payload of one message. Limiting it lets the peer read the first part of a long Write while
// the next one is under way.
const maxMessage = 64 << 10

// Write writes all of p, or returns the number of bytes written and an error. Bytes that it reports as written have
// been handed to the device: they arrive unless the connection breaks.
func (c *Conn) Write(p []byte) (n int, err error) {
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(p) == 0 {
		return 0, c.opError("write", c.writeEnds())
	}
	for n < len(p) && err == nil {
		if err = c.awaitSend(func() bool { return c.canSend(len(p) - n) }); err != nil {
			break
		}
		var k int
		k, err = c.sendData(p[n:])
		n += k
	}
	return n, c.opError("write", err)
}

// awaitSend waits until ready returns true, or until the connection can send no more. It calls ready with mu held.
func (c *Conn) awaitSend(ready func() bool) error {
	for {
		if err := c.writeEnds(); err != nil {
			return err
		}
		if c.writeDeadline.expired {
			return os.ErrDeadlineExceeded
		}
		if ready() {
			return nil
		}
		if c.progress() == 0 {
			c.writable.Wait()
		}
	}
}

// writeEnds returns the error of Write if the connection can send no more.
func (c *Conn) writeEnds() error {
	switch {
	case c.closed:
		return net.ErrClosed
	case c.writeClosed:
		return syscall.EPIPE
	case c.peerClosed:
		return broken(errPeerClosed)
	}
	return c.err
}

// canSend reports whether to send some of n bytes now: if that is at least a quarter of the send buffer, or all that
// fits the peer's buffer.
func (c *Conn) canSend(n int) bool {
	n = min(n, c.out.room())
	return n > 0 && (n <= c.ep.o.Inline || c.out.ring.free() >= min(n, c.out.ring.size/4))
}

// sendData sends the first bytes of p. canSend must have returned true.
func (c *Conn) sendData(p []byte) (int, error) {
	n := min(len(p), c.out.room(), maxMessage)
	inline := n <= c.ep.o.Inline
	var staged staged
	if !inline {
		n = min(n, c.out.ring.free())
		var err error
		if staged, err = c.stage(p[:n]); err != nil {
			return 0, err
		}
	}
	wr := c.request(ib.WRWriteImm)
	wr.SGL, wr.ID, wr.Imm = staged.sgl, workID(sentData, staged.n), message(msgData, uint32(n))
	if inline {
		wr.Flags, wr.Inline = ib.SendInline, p[:n]
	}
	wr.RemoteAddr, wr.RKey = c.out.take(n)
	if err := c.post(); err != nil {
		return 0, err
	}
	if err := c.out.nextTarget(); err != nil {
		c.fail(broken(err))
	}
	return n, nil
}

// staged is a part of the send buffer that holds data to send.
type staged struct {
	sgl []ib.SGE
	n   int
}

// stage copies p into the send buffer. It releases mu during a long copy, so the connection may have ended when it
// returns.
func (c *Conn) stage(p []byte) (staged, error) {
	off, first, second := c.out.ring.take(len(p))
	if len(p) > smallCopy {
		c.mu.Unlock()
	}
	copy(c.ep.send[off:], p[:first])
	copy(c.ep.send, p[first:])
	if len(p) > smallCopy {
		c.mu.Lock()
		if err := c.writeEnds(); err != nil {
			return staged{}, err
		}
	}
	base, key := c.ep.sendMR.Addr(), c.ep.sendMR.LKey()
	c.sgl[0] = ib.SGE{Addr: base + uint64(off), Length: uint32(first), LKey: key}
	c.sgl[1] = ib.SGE{Addr: base, Length: uint32(second), LKey: key}
	if second == 0 {
		return staged{c.sgl[:1], len(p)}, nil
	}
	return staged{c.sgl[:2], len(p)}, nil
}

// request returns the request that post will send, for the caller to fill in.
func (c *Conn) request(op ib.WROpcode) *ib.SendWR {
	c.wr[0] = ib.SendWR{Opcode: op}
	return &c.wr[0]
}

// post posts the request. If the device refuses it, the connection is broken.
func (c *Conn) post() error {
	if _, err := c.qp.PostSend(c.wr[:]); err != nil {
		c.fail(broken(err))
		return c.err
	}
	return nil
}
