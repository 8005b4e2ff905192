package rsocket

import (
	"errors"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/rdmacm"
)

// run handles completions until the connection is over, and then releases everything. Read and Write handle
// completions, too, while they wait.
func (c *Conn) run() {
	defer close(c.released)
	c.mu.Lock()
	c.grant() // offer the second half of the buffer
	c.mu.Unlock()
	for c.await() {
	}
	<-c.stopped.Done() // a broken connection stays until Close
	c.release()
}

// await handles the completions that are there and waits for more. It returns false if none can come any more.
func (c *Conn) await() bool {
	c.mu.Lock()
	if err := c.ep.cq.Arm(false); err != nil {
		c.fail(broken(err))
	}
	c.progress()
	over := c.err != nil
	c.mu.Unlock()
	if over {
		return false
	}
	_, err := c.ep.ch.Wait(c.stopped)
	if err == nil {
		return true
	}
	if c.stopped.Err() == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.fail(broken(err))
	}
	return false
}

// watch ends the connection when the transport ends.
func (c *Conn) watch() {
	select {
	case <-c.released:
	case <-c.tr.Done():
		c.mu.Lock()
		defer c.mu.Unlock()
		c.progress() // handle what arrived before the end
		c.fail(broken(c.tr.Err()))
	}
}

// release closes and frees everything that the connection holds.
func (c *Conn) release() {
	c.mu.Lock()
	for _, t := range c.timers {
		t.Stop()
	}
	c.readDeadline.stop()
	c.writeDeadline.stop()
	c.mu.Unlock()
	_ = c.tr.Close()
	// Close has been called, so a Read or Write that begins touches no memory. Wait for those that do.
	c.readMu.Lock()
	c.writeMu.Lock()
	c.mu.Lock()
	c.maps.release()
	c.freed = true
	c.mu.Unlock()
	c.writeMu.Unlock()
	c.readMu.Unlock()
	c.ep.close()
}

// progress handles the completions that are there, and sends what they make possible. It returns their number. The
// caller holds mu.
func (c *Conn) progress() int {
	if c.freed {
		return 0
	}
	total, recvs := 0, 0
	for n := len(c.wcs); n == len(c.wcs); {
		var err error
		if n, err = c.ep.cq.Poll(c.wcs[:]); err != nil {
			c.fail(broken(err))
			return total
		}
		for i := range c.wcs[:n] {
			recvs += c.completed(&c.wcs[i])
		}
		total += n
	}
	if total == 0 {
		return 0
	}
	c.activity = true
	if recvs > 0 && c.err == nil {
		if _, err := c.qp.PostRecv(c.ep.recv[:recvs]); err != nil {
			c.fail(broken(err))
		}
	}
	c.discard()
	c.sendPending()
	c.grant()
	c.stopIfDrained()
	c.readable.Broadcast()
	c.writable.Broadcast()
	return total
}

// completed handles a completion and returns how many receives it has used.
func (c *Conn) completed(wc *ib.WC) (receives int) {
	kind, n := splitID(wc.ID)
	switch {
	case wc.Status != ib.WCSuccess:
		c.fail(c.requestError(wc))
	case kind == received:
		if err := c.receive(wc.Imm); err != nil {
			c.fail(broken(err))
		}
		return 1
	}
	switch kind {
	case sentData:
		c.out.slots++
		c.out.ring.release(n)
	case sentControl:
		c.out.ctrl++
	}
	return 0
}

// requestError returns the error for a failed request: the cause of the transport's end if that is known, otherwise the
// completion's status.
func (c *Conn) requestError(wc *ib.WC) error {
	if err := c.tr.Err(); err != nil {
		return broken(err)
	}
	return broken(wc.Err())
}

// receive handles a message of the peer.
func (c *Conn) receive(imm uint32) error {
	switch t, value := splitMessage(imm); t {
	case msgData:
		return c.in.arrived(value)
	case msgCredits:
		c.out.limit = uint16(value)
		return c.out.nextTarget()
	case msgMap:
		return c.maps.updated(value & 0xFFFF) // the upper bits are reserved
	case msgControl:
		return c.receiveControl(value)
	default:
		return &ProtocolError{What: "type of a message", Value: uint64(t), Allowed: "0, 4, 6 or 7"}
	}
}

func (c *Conn) receiveControl(value uint32) error {
	switch value {
	case ctrlKeepAlive:
	case ctrlShutdown:
		c.eof = true
	case ctrlDisconnect:
		c.eof, c.peerClosed = true, true
	default:
		return &ProtocolError{What: "control message", Value: uint64(value), Allowed: "0, 1 or 2"}
	}
	return nil
}

// grant sends credits to the peer, with half a buffer if one is free. It needs control slots; if none is free, a later
// completion calls it again.
func (c *Conn) grant() {
	if c.out.ctrl == 0 || c.err != nil || c.eof || c.disconnectSent || !c.in.wantsGrant() {
		return
	}
	wr := c.controlRequest(ib.WRWriteImm)
	if off, ok := c.in.offer(); ok {
		s := sge{addr: c.ep.dataMR.Addr() + uint64(off), key: c.ep.dataMR.RKey(), length: uint32(c.in.size / 2)}
		wr.Flags, wr.Inline = ib.SendInline, s.append(c.control[:0], c.out.order)
		wr.RemoteAddr, wr.RKey = c.out.peerEntry(), c.out.peerSGL.key
	}
	wr.Imm = message(msgCredits, uint32(c.in.limit()))
	_ = c.post()
}

// controlRequest returns a request that uses a control slot; one must be free.
func (c *Conn) controlRequest(op ib.WROpcode) *ib.SendWR {
	c.out.ctrl--
	wr := c.request(op)
	wr.ID = workID(sentControl, 0)
	return wr
}

// sendPending sends the control messages that wait for a slot.
func (c *Conn) sendPending() {
	for len(c.pending) > 0 && c.out.ctrl > 0 && c.err == nil {
		wr := c.controlRequest(ib.WRWriteImm)
		wr.Imm = message(msgControl, c.pending[0])
		c.pending = c.pending[1:]
		_ = c.post()
	}
}

// fail breaks the connection, unless it is over already. If the peer disconnects, with or without a disconnect message,
// that is the end of the stream: data that has arrived can still be read (as in rsocket.c).
func (c *Conn) fail(err error) {
	if errors.Is(err, rdmacm.ErrDisconnected) {
		c.eof, c.peerClosed = true, true
	}
	if c.err == nil {
		c.err = err
	}
	c.stopIfDrained()
	c.readable.Broadcast()
	c.writable.Broadcast()
}

// keepAlive starts the timer that detects peers that have disappeared. Like rsocket.c it sends an empty WRITE without
// immediate, which uses no receive of the peer. If there is no answer, the QP runs out of retries, which ends the
// connection.
func (c *Conn) keepAlive() {
	var t *time.Timer
	c.mu.Lock()
	defer c.mu.Unlock()
	t = time.AfterFunc(c.ep.o.KeepAlive, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.err != nil || c.stopped.Err() != nil {
			return
		}
		if !c.activity && c.out.ctrl > 0 {
			c.controlRequest(ib.WRWrite)
			_ = c.post()
		}
		c.activity = false
		t.Reset(c.ep.o.KeepAlive)
	})
	c.timers = append(c.timers, t)
}
