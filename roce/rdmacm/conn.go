package rdmacm

import (
	"context"
	"fmt"
	"net/netip"
	"sync"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/cm"
	"github.com/goroce/goroce/wire"
)

// How a connection comes about.
const (
	opDial   = "dial"
	opAccept = "accept"
)

// Conn is a connected queue pair. It is safe for concurrent use.
type Conn struct {
	cm            *CM
	op            string // how it came about: opDial or opAccept
	local, remote netip.AddrPort
	listener      *Listener // whose Accept made it; nil for others
	up            chan struct{}
	done          chan struct{}

	closeMu sync.Mutex // held while objects are closed

	// Guarded by CM.mu; the application gets the Conn after ep is set.
	ep      endpoint
	id      ib.CMID // nil before Accept has answered
	params  cm.ConnParams
	private []byte
	bounded bool // the wait for the answer to our REQ has a deadline
	asked   bool // we want it to end
	err     error
}

// newConn makes conn, of which the ends are set, a connection without a QP.
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

// open makes the QP.
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

// prepare lets the application have its turn.
func (c *Conn) prepare(o *Config) error {
	if o.Prepare == nil {
		return nil
	}
	if err := o.Prepare(c); err != nil {
		return fmt.Errorf("Config.Prepare: %w", err)
	}
	return nil
}

// event takes what happens to the connection.
func (c *Conn) event(ev *ib.CMEvent) {
	switch ev.Type {
	case ib.CMConnectResponse:
		c.replied(ev)
	case ib.CMEstablished:
		c.established()
	case ib.CMRejected:
		c.end(&RejectError{Op: c.op, Addr: c.remote.String(), Reason: wire.RejectReason(ev.Status), Info: ev.Info,
			PrivateData: ev.Param.PrivateData})
	case ib.CMUnreachable:
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

// replied brings the active end up.
func (c *Conn) replied(ev *ib.CMEvent) {
	c.private = ev.Param.PrivateData
	params, err := c.ep.connect(c.id, ev.Param)
	if err == nil {
		c.params = params
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

// end takes the QP to ERR and says why; the first reason counts.
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

// await waits until the connection is up. When it fails the connection manager knows
// nothing of it any more.
func (c *Conn) await(ctx context.Context, step string) error {
	select {
	case <-c.up:
	case <-c.done:
	case <-ctx.Done():
		lastWord(ctx, c.bounded, c.done)
	}
	m := c.cm
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.isUp() {
		return nil // whatever came of it since
	}
	if c.err == nil {
		c.release(&TimeoutError{Op: c.op, Addr: c.remote.String(), Step: step, Err: ctx.Err()})
	}
	return c.err
}

// release ends the connection for the connection manager. The caller holds CM.mu.
func (c *Conn) release(err error) {
	if c.id != nil {
		c.cm.forget(c.id)
	}
	c.end(err)
}

// QP returns the queue pair.
func (c *Conn) QP() ib.QP { return c.ep.qp }

// PD returns the QP's protection domain; nil with a QP of the caller's.
func (c *Conn) PD() ib.PD { return c.ep.pd }

// SendCQ returns where sends complete: Config.SendCQ, or the one that was made.
func (c *Conn) SendCQ() ib.CQ { return c.ep.sendCQ }

// RecvCQ returns where receives complete.
func (c *Conn) RecvCQ() ib.CQ { return c.ep.recvCQ }

// LocalAddr returns our address and port.
func (c *Conn) LocalAddr() netip.AddrPort { return c.local }

// RemoteAddr returns the peer's address and port. What a peer without rdma_cm does
// not say is 0.
func (c *Conn) RemoteAddr() netip.AddrPort { return c.remote }

// PrivateData returns what the peer sent with its request or answer: all bytes of
// the field. The caller must not change it.
func (c *Conn) PrivateData() []byte {
	c.cm.mu.Lock()
	defer c.cm.mu.Unlock()
	return c.private
}

// Params returns what was agreed.
func (c *Conn) Params() cm.ConnParams {
	c.cm.mu.Lock()
	defer c.cm.mu.Unlock()
	return c.params
}

// DataArrived says that a receive has completed before Accept returned: the peer is ready,
// though its RTU got lost.
func (c *Conn) DataArrived() {
	c.cm.mu.Lock()
	defer c.cm.mu.Unlock()
	if c.id != nil {
		_ = c.id.Notify(ib.EventCommEst)
	}
}

// Done is closed when the connection has ended, whoever ended it. The QP is in ERR
// then, and its work is flushed. Err says why: ErrDisconnected for the peer's
// wish, ib.ErrClosed for ours.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err returns why the connection has ended, nil while it has not.
func (c *Conn) Err() error {
	c.cm.mu.Lock()
	defer c.cm.mu.Unlock()
	return c.err
}

// Disconnect ends the connection and waits until the peer knows, or ctx ends; the
// state machine goes on then. Until the peer has answered, the QP serves it. What
// has ended already is no error.
func (c *Conn) Disconnect(ctx context.Context) error {
	if err := c.disconnect(ctx); err != nil {
		return opError("disconnect", c.remote.String(), err)
	}
	return nil
}

func (c *Conn) disconnect(ctx context.Context) error {
	m := c.cm
	err := m.input(func() error {
		if c.err != nil || c.asked {
			return nil
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
		return m.err // a CM that closes does not wait for the peer
	case <-ctx.Done():
		return &TimeoutError{Op: "disconnect", Addr: c.remote.String(), Step: "DREQ", Err: ctx.Err()}
	}
}

// Close disconnects without waiting, and closes what was made for the Conn. Memory
// that is registered in its PD makes it fail with ib.ErrBusy: close that, and
// Close again.
func (c *Conn) Close() error {
	m := c.cm
	m.mu.Lock()
	if _, open := m.conns[c]; open {
		delete(m.conns, c)
		c.release(fmt.Errorf("connection to %v: %w", c.remote, ib.ErrClosed))
	}
	made := c.ep.made
	m.mu.Unlock()
	c.closeMu.Lock()
	defer c.closeMu.Unlock()
	return made.close()
}
