package rdmacm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/cm"
	"github.com/goroce/goroce/wire"
)

// Conn is a connected queue pair. It is safe for concurrent use.
type Conn struct {
	cm            *CM
	op            string // how it came about: "dial" or "accept"
	local, remote netip.AddrPort
	held          portKey   // the source port of one that was dialled
	listener      *Listener // whose Accept made it; nil for others
	up            chan struct{}
	done          chan struct{}

	closeMu sync.Mutex // held while objects are closed

	// Guarded by CM.mu; the application gets the Conn after ep is set.
	ep      endpoint
	id      cm.ID // 0 before the state machine knows of it
	path    cm.Path
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
func (c *Conn) open(o *Config) error {
	var ep endpoint
	err := ep.open(c.cm.dev, o)
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

// event takes what the state machine says of the connection.
func (c *Conn) event(ev *cm.Event) {
	switch ev.Kind {
	case cm.Replied:
		c.replied(ev)
	case cm.Established:
		c.established()
	case cm.Rejected:
		c.end(&RejectError{Op: c.op, Addr: c.remote.String(), Reason: ev.Reason, Info: bytes.Clone(ev.Info), PrivateData: bytes.Clone(ev.PrivateData)})
	case cm.Unreachable:
		e := &TimeoutError{Op: c.op, Addr: c.remote.String(), Step: ev.Waited, Sent: ev.Sent}
		if c.bounded {
			e.Err = context.DeadlineExceeded
		}
		c.end(e)
	case cm.Disconnected:
		if c.asked {
			c.end(fmt.Errorf("connection to %v: %w", c.remote, ib.ErrClosed))
		} else {
			c.end(ErrDisconnected)
		}
	}
}

// replied brings the active end up.
func (c *Conn) replied(ev *cm.Event) {
	c.params, c.private = ev.Conn, bytes.Clone(ev.PrivateData)
	err := c.ep.connect(&c.path, &c.params)
	if err == nil {
		err = c.cm.m.Confirm(c.cm.now(), c.id, nil)
	}
	if err == nil {
		c.established()
		return
	}
	_ = c.cm.m.Reject(c.cm.now(), c.id, wire.RejectConsumer, nil, nil)
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

// await waits until the connection is up. When it fails the state machine knows
// nothing of the connection any more.
func (c *Conn) await(ctx context.Context, step string) error {
	select {
	case <-c.up:
	case <-c.done:
	case <-ctx.Done():
	}
	// Under the mutex the RTU has been posted: it leaves before what the
	// application posts.
	m := c.cm
	m.mu.Lock()
	defer m.mu.Unlock()
	if !c.isUp() && c.err == nil && m.err == nil {
		m.m.Timeout(m.now()) // the deadline of ctx is one of the state machine's, too
		m.settle()
	}
	if c.isUp() {
		return nil // whatever came of it since
	}
	if c.err == nil {
		c.release(&TimeoutError{Op: c.op, Addr: c.remote.String(), Step: step, Err: ctx.Err()})
		m.settle()
	}
	return c.err
}

// release lets the state machine forget the connection. The caller holds CM.mu and
// settles.
func (c *Conn) release(err error) {
	m := c.cm
	if m.err == nil && c.id != 0 {
		m.m.Release(m.now(), c.id)
		delete(m.owners, c.id)
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

// DataArrived says that a receive has completed before Accept returned; see
// cm.Manager.DataArrived.
func (c *Conn) DataArrived() {
	_ = c.cm.input(func(now ib.Instant) error {
		if c.id != 0 {
			c.cm.m.DataArrived(now, c.id)
		}
		return nil
	})
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
	err := m.input(func(now ib.Instant) error {
		if c.err != nil || c.asked {
			return nil
		}
		err := m.m.Disconnect(now, c.id, nil)
		if errors.Is(err, cm.ErrState) { // the end is under way
			return nil
		}
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
		m.ports.release(c.held)
		c.release(fmt.Errorf("connection to %v: %w", c.remote, ib.ErrClosed))
		if m.err == nil {
			m.settle()
		}
	}
	made := c.ep.made
	m.mu.Unlock()
	c.closeMu.Lock()
	defer c.closeMu.Unlock()
	return made.close()
}
