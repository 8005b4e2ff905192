package rdmacm

import (
	"context"
	"fmt"
	"net/netip"
	"sync"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/roce/remote"
)

// The operation that made a Conn, for its errors.
const (
	opDial   = "dial"
	opAccept = "accept"
)

// Conn is a connected queue pair. It is safe for concurrent use.
type Conn struct {
	cm            *CM
	op            string // opDial or opAccept
	local, remote netip.AddrPort
	listener      *Listener // the listener whose Accept made it; nil for others
	up            chan struct{}
	done          chan struct{}

	closeMu sync.Mutex // held while the Conn's objects are closed

	// Guarded by CM.mu, except that ep is set before the application gets the Conn.
	ep      endpoint
	id      ib.CMID   // nil until Accept has answered
	attr    ib.QPAttr // of the QP in RTS; zero before
	private []byte
	smaller chan ib.MTU // gets the path MTU to ask for next; nil if the REQ is not to be repeated
	pathMTU ib.MTU      // what the REQ asks for
	bounded bool        // the connection manager knows the deadline of our REQ
	asked   bool        // this end has disconnected
	err     error
}

// newConn registers conn, whose addresses are set, as a connection without a QP.
func (c *CM) newConn(conn *Conn) (*Conn, error) {
	conn.cm, conn.up, conn.done = c, make(chan struct{}), make(chan struct{})
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return nil, c.err
	}
	c.conns[conn] = struct{}{}
	return conn, nil
}

// open creates the QP.
func (c *Conn) open(id ib.CMID, o *Config) error {
	var ep endpoint
	err := ep.open(c.cm.dev, id, o)
	c.cm.mu.Lock()
	defer c.cm.mu.Unlock()
	c.ep = ep
	if err == nil {
		err = c.err
	}
	return err
}

// prepare calls Config.Prepare.
func (c *Conn) prepare(o *Config) error {
	if o.Prepare == nil {
		return nil
	}
	if err := o.Prepare(c); err != nil {
		return fmt.Errorf("Config.Prepare: %w", err)
	}
	return nil
}

// event handles an event of the connection's ID.
func (c *Conn) event(ev *ib.CMEvent) {
	switch ev.Type {
	case ib.CMConnectResponse:
		c.connectResponse(ev)
	case ib.CMEstablished:
		c.established()
	case ib.CMRejected:
		if mtu := narrower(c.pathMTU, ev); mtu != 0 && c.smaller != nil {
			c.smaller <- mtu // there is room: each REQ has one REJ
			return
		}
		c.end(&RejectError{Op: c.op, Addr: c.remote.String(), Reason: ev.RejectReason(), Info: ev.Info,
			PrivateData: ev.Param.PrivateData})
	case ib.CMUnreachable:
		if e := unreachable(c.op, c.remote, ev); e != nil {
			c.end(e)
			return
		}
		e := &TimeoutError{Op: c.op, Addr: c.remote.String(), Step: "REQ", Sent: ev.Tries}
		if c.op == opAccept {
			e.Step = "REP"
		}
		if c.bounded {
			e.Err = context.DeadlineExceeded
		}
		c.end(e)
	case ib.CMDisconnected:
		if c.asked {
			c.end(fmt.Errorf("connection to %v: %w", c.remote, ib.ErrClosed))
		} else {
			c.end(ErrDisconnected)
		}
	}
}

// connectResponse takes the QP of the active end to RTS and sends the RTU.
func (c *Conn) connectResponse(ev *ib.CMEvent) {
	c.private = ev.Param.PrivateData
	attr, err := c.ep.connect(c.id)
	if err == nil {
		c.attr = attr
		err = c.id.Establish()
	}
	if err == nil {
		c.established()
		return
	}
	_ = c.id.Reject(ib.CMReject{})
	delete(c.cm.owners, c.id)
	c.end(err)
}

// isUp reports whether the connection has been established.
func (c *Conn) isUp() bool {
	select {
	case <-c.up:
		return true
	default:
		return false
	}
}

func (c *Conn) established() {
	if c.isUp() {
		return
	}
	close(c.up)
	if c.listener != nil {
		c.listener.established(c)
	}
}

// end takes the QP to ERR and closes Done. Only the first call counts.
func (c *Conn) end(err error) {
	if c.err != nil {
		return
	}
	c.err = err
	c.ep.fail()
	close(c.done)
	if c.listener != nil {
		c.listener.ended(c)
	}
}

// await waits until the connection is established. If it returns an error, the connection manager has no ID of this
// connection any more.
func (c *Conn) await(ctx context.Context, step string) error {
	select {
	case <-c.up:
	case <-c.done:
	case mtu := <-c.smaller:
		return &narrowError{mtu}
	case <-ctx.Done():
		awaitTimeout(ctx, c.bounded, c.done)
	}
	m := c.cm
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.isUp() {
		return nil // established, even if it has ended since
	}
	if c.err == nil {
		c.release(&TimeoutError{Op: c.op, Addr: c.remote.String(), Step: step, Err: ctx.Err()})
	}
	return c.err
}

// release closes the connection's ID and ends the connection. The caller holds CM.mu.
func (c *Conn) release(err error) {
	if c.id != nil {
		c.cm.forget(c.id)
	}
	c.end(err)
}

// QP returns the queue pair.
func (c *Conn) QP() ib.QP { return c.ep.qp }

// PD returns the QP's protection domain; nil if the caller brought its own QP.
func (c *Conn) PD() ib.PD { return c.ep.pd }

// SendCQ returns the CQ of sends: Config.SendCQ, or the one that was created.
func (c *Conn) SendCQ() ib.CQ { return c.ep.sendCQ }

// RecvCQ returns the CQ of receives.
func (c *Conn) RecvCQ() ib.CQ { return c.ep.recvCQ }

// Memory returns memory of the peer, to be read and written by ReadAt and WriteAt. The peer has made buf by
// ib.RemoteBufferOf, with memory of its own end of this connection (Config.PD), and grants access to it there
// (Config.Access). The Memory has the send queue and its CQ for itself (remote.Config), so an application that receives
// here needs a Config.RecvCQ. Close of the Conn closes the Memory.
func (c *Conn) Memory(buf ib.RemoteBuffer) (*remote.Memory, error) {
	const op = "memory of the peer"
	if c.ep.pd == nil {
		return nil, refuse(op, "Config.QP", "a QP of the caller", "nil; for one's own QP there is remote.New")
	}
	mem, err := remote.New(remote.Config{Device: c.cm.dev, PD: c.ep.pd, QP: c.ep.qp, CQ: c.ep.sendCQ, Buffer: buf,
		Cause: c.Err})
	if err != nil {
		return nil, opError(op, c.remote.String(), err)
	}
	err = c.cm.whileOpen(func() error {
		if _, open := c.cm.conns[c]; !open {
			return c.err
		}
		c.ep.made.add(mem)
		return nil
	})
	if err != nil {
		_ = mem.Close()
		return nil, opError(op, c.remote.String(), err)
	}
	return mem, nil
}

// LocalAddr returns the local address and port.
func (c *Conn) LocalAddr() netip.AddrPort { return c.local }

// RemoteAddr returns the peer's address and port. The port is 0 if the peer does not tell it, as without rdma_cm.
func (c *Conn) RemoteAddr() netip.AddrPort { return c.remote }

// PrivateData returns the peer's private data: the whole field of its request or answer. The caller must not change it.
func (c *Conn) PrivateData() []byte {
	c.cm.mu.Lock()
	defer c.cm.mu.Unlock()
	return c.private
}

// QPAttr returns the attributes with which the QP has been taken to RTS: what both ends have agreed on, the peer's QP
// and where it is. Those that have nothing to do with a connection, as QPAttr.Cap, are zero.
func (c *Conn) QPAttr() ib.QPAttr {
	c.cm.mu.Lock()
	defer c.cm.mu.Unlock()
	return c.attr
}

// DataArrived tells that a receive has completed before Accept has returned: the peer is ready, so its RTU must have
// been lost (IBTA 12.9.6).
func (c *Conn) DataArrived() {
	c.cm.mu.Lock()
	defer c.cm.mu.Unlock()
	if c.id != nil {
		_ = c.id.Notify(ib.EventCommEst)
	}
}

// Done is closed when the connection has ended, whoever ended it. Then the QP is in ERR and its requests are flushed.
// Err has the cause: ErrDisconnected if the peer ended it, ib.ErrClosed if this end did.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err returns the cause of the connection's end; nil before.
func (c *Conn) Err() error {
	c.cm.mu.Lock()
	defer c.cm.mu.Unlock()
	return c.err
}

// Disconnect ends the connection and waits until the peer has answered, or ctx ends; in that case the connection
// manager goes on by itself. The QP serves the peer until the answer has come. It is no error if the connection has
// ended already.
func (c *Conn) Disconnect(ctx context.Context) error {
	if err := c.disconnect(ctx); err != nil {
		return opError("disconnect", c.remote.String(), err)
	}
	return nil
}

func (c *Conn) disconnect(ctx context.Context) error {
	m := c.cm
	err := m.whileOpen(func() error {
		if c.err != nil || c.asked {
			return nil
		}
		if c.id == nil { // in Prepare of an accepted connection
			return driver.Refuse("disconnect", "Conn", "in Prepare", "one that Accept has returned", ib.ErrState)
		}
		err := c.id.Disconnect()
		c.asked = err == nil
		return err
	})
	if err != nil {
		return err
	}
	select {
	case <-c.done:
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.err // the CM is being closed, and does not wait for the peer
	case <-ctx.Done():
		return &TimeoutError{Op: "disconnect", Addr: c.remote.String(), Step: "DREQ", Err: ctx.Err()}
	}
}

// Close disconnects without waiting, and closes the objects that were created for the Conn. If memory is registered in
// its PD, Close fails with ib.ErrBusy: close the regions, and call Close again.
func (c *Conn) Close() error {
	m := c.cm
	m.mu.Lock()
	if _, open := m.conns[c]; open {
		delete(m.conns, c)
		c.release(fmt.Errorf("connection to %v: %w", c.remote, ib.ErrClosed))
	}
	m.mu.Unlock()
	return c.closeObjects()
}

// closeObjects closes the objects that were created for a Conn that is not in CM.conns any more, so there will be no
// further ones.
func (c *Conn) closeObjects() error {
	c.closeMu.Lock()
	defer c.closeMu.Unlock()
	return c.ep.made.close()
}
