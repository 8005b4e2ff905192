package rsocket

import (
	"errors"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/rdmacm"
)

// run takes completions until the connection is over, then gives all back. Read
// and Write take completions too, when they have nothing else to do.
func (c *Conn) run() {
	defer close(c.released)
	c.mu.Lock()
	c.grant() // the second half of the buffer
	c.mu.Unlock()
	for c.await() {
	}
	<-c.stopped.Done() // a broken connection waits for Close
	c.release()
}

// await takes what is there and waits for more. It reports whether there may be
// any.
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

// watch ends the connection when the transport does.
func (c *Conn) watch() {
	select {
	case <-c.released:
	case <-c.tr.Done():
		c.mu.Lock()
		defer c.mu.Unlock()
		c.progress() // what arrived before the end counts
		c.fail(broken(c.tr.Err()))
	}
}

// release gives back what the connection holds.
func (c *Conn) release() {
	c.mu.Lock()
	for _, t := range c.timers {
		t.Stop()
	}
	c.readDeadline.stop()
	c.writeDeadline.stop()
	c.mu.Unlock()
	_ = c.tr.Close()
	c.mu.Lock()
	c.maps.release()
	c.mu.Unlock()
	c.ep.close()
}

// progress takes the completions that are there and does what they allow. It
// returns how many there were. The caller holds mu.
func (c *Conn) progress() int {
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
	c.settle()
	c.readable.Broadcast()
	c.writable.Broadcast()
	return total
}

// completed handles a completion and returns how many receives it used up.
func (c *Conn) completed(wc *ib.WC) (receives int) {
	kind, n := splitID(wc.ID)
	switch {
	case wc.Status != ib.WCSuccess:
		c.fail(c.flushed(wc))
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

// flushed says why a request failed: because of the end of the connection below,
// if that is known by now.
func (c *Conn) flushed(wc *ib.WC) error {
	if err := c.tr.Err(); err != nil {
		return broken(err)
	}
	return broken(wc.Err())
}

// receive handles a message from the peer.
func (c *Conn) receive(imm uint32) error {
	switch t, value := splitMessage(imm); t {
	case msgData:
		return c.in.arrived(value)
	case msgCredits:
		c.out.limit = uint16(value)
		return c.out.retarget()
	case msgMap:
		return c.maps.updated(value & 0xFFFF) // the other bits are reserved
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

// grant tells the peer of credits, and of half a buffer where one is free. It does
// so in the control slots; if all are under way a completion comes back here.
func (c *Conn) grant() {
	if c.out.ctrl == 0 || c.err != nil || c.eof || c.saidAll || !c.in.wantsGrant() {
		return
	}
	wr := c.controlRequest(ib.WRWriteImm)
	if off, ok := c.in.offer(); ok {
		s := sge{addr: c.ep.dataMR.Addr() + uint64(off), key: c.ep.dataMR.RKey(), length: uint32(c.in.size / 2)}
		wr.Flags, wr.Inline = ib.SendInline, s.append(c.control[:0], c.out.order)
		wr.RemoteAddr, wr.RKey = c.out.theirEntry(), c.out.theirs.key
	}
	wr.Imm = message(msgCredits, uint32(c.in.limit()))
	_ = c.post()
}

// controlRequest takes a control slot for a request.
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

// fail breaks the connection, unless it is over already. To a peer that
// disconnects it is the same with a message in the stream and without: what has
// arrived stays readable, then comes the end (rsocket.c).
func (c *Conn) fail(err error) {
	if errors.Is(err, rdmacm.ErrDisconnected) {
		c.eof, c.peerClosed = true, true
	}
	if c.err == nil {
		c.err = err
	}
	c.settle()
	c.readable.Broadcast()
	c.writable.Broadcast()
}

// keepAlive starts the timer that finds out about peers that are gone: it sends an
// empty WRITE without immediate, which costs the peer no receive, as rsocket.c
// does. Without an answer the retries of the QP end the connection.
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
