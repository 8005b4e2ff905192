package rsocket

import (
	"net"
	"os"
	"syscall"

	"github.com/goroce/goroce/ib"
)

// maxMessage is the most that one message carries. The peer reads the first part
// of a long Write while the next is under way.
const maxMessage = 64 << 10

// Write writes all of p, or returns how much and why not more. What it reports as
// written was handed to the device: it arrives unless the connection breaks.
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

// awaitSend waits until ready, which is called under mu, or until nothing more may
// be sent.
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

// writeEnds returns why nothing more may be sent.
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

// canSend reports whether it is worth sending some of n bytes: at least a quarter
// of the send buffer, or all that fits the peer's buffer.
func (c *Conn) canSend(n int) bool {
	n = min(n, c.out.room())
	return n > 0 && (n <= c.ep.o.Inline || c.out.ring.free() >= min(n, c.out.ring.size/4))
}

// sendData sends the first bytes of p, as canSend found possible.
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
	if err := c.out.retarget(); err != nil {
		c.fail(broken(err))
	}
	return n, nil
}

// staged is a piece of the send buffer, to send from.
type staged struct {
	sgl []ib.SGE
	n   int
}

// stage copies p into the send buffer. Long copies let go of mu, so that the end
// may have come meanwhile.
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

// request returns the request that post sends, to fill in.
func (c *Conn) request(op ib.WROpcode) *ib.SendWR {
	c.wr[0] = ib.SendWR{Opcode: op}
	return &c.wr[0]
}

// post sends the request. A device that refuses it breaks the connection.
func (c *Conn) post() error {
	if _, err := c.qp.PostSend(c.wr[:]); err != nil {
		c.fail(broken(err))
		return c.err
	}
	return nil
}
