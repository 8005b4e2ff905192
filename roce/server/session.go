package server

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/abi"
	"github.com/goroce/goroce/roce/procmem"
)

// session is one client's connection, and all that it has made: a tenant of its device.
// Its goroutine carries out one request after another.
type session struct {
	srv  *Server
	conn *abi.Conn
	who  *unix.Ucred

	greeted bool
	unit    *unit // once it has chosen
	worker  *roce.Worker
	process *procmem.Process // nil until memory of the client's process is registered
	pidfd   int              // of that
	bells   []*bells
	shared  *shared // of the doorbells
	events  *outbox
	objects map[abi.Handle]*object
	last    abi.Handle // given out
	refused error      // why it is one client too many: it hears so, and has to go
	own     account
	foreign foreign
	user    *account

	op      abi.Op  // of the request at hand
	made    *shared // what Alloc made for the object at hand
	pending []held  // and what was taken for it

	mu      sync.Mutex // guards what follows
	handles map[any]abi.Handle
}

// object is what a handle stands for.
type object struct {
	kind  kind
	value any // one of package roce, or *channel
	close func() error
	rings *shared // nil for those without
	holds []held
}

// kind orders objects: who uses others goes first when a session ends.
type kind uint8

const (
	kindQP kind = iota
	kindSRQ
	kindMW
	kindMR
	kindAH
	kindCQ
	kindChannel
	kindXRCD
	kindPD
)

func peerOf(c *net.UnixConn) (who *unix.Ucred, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	controlErr := raw.Control(func(fd uintptr) { who, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	return who, errors.Join(controlErr, err)
}

func newSession(s *Server, conn *net.UnixConn, who *unix.Ucred) *session {
	user, err := s.accounts.enter(who.Uid)
	if err == nil {
		err = spareConn(conn)
	}
	return &session{srv: s, conn: abi.NewConn(conn), who: who, user: user, refused: err, objects: map[abi.Handle]*object{}, handles: map[any]abi.Handle{}}
}

// serve answers requests until the connection ends.
func (c *session) serve() error {
	for {
		h, body, fds, err := c.conn.Receive()
		if err != nil {
			_ = c.foreign.close(fds)
			switch {
			case errors.Is(err, os.ErrDeadlineExceeded):
				return c.refused
			case errors.Is(err, io.EOF):
				return nil
			}
			return err
		}
		r, err := c.answer(h.Op, body, fds)
		c.srv.totals.note(err)
		slow := c.foreign.close(fds)
		reply := abi.Header{Op: h.Op, Seq: h.Seq}
		if err != nil {
			r.body, reply.Status = abi.PutError(nil, err)
		}
		err = c.conn.Send(reply, r.body, r.fds...)
		r.sent()
		if err = cmp.Or(err, slow, c.refused); err != nil {
			return err
		}
	}
}

// reply is the answer to a request.
type reply struct {
	body []byte
	fds  []int
	sent func() // what to do once it has left
}

// answer carries out a request. The descriptors stay the caller's.
func (c *session) answer(op abi.Op, body []byte, fds []int) (reply, error) {
	none := reply{sent: func() {}}
	var handle handler
	c.op = op
	if int(op) < len(handlers) {
		handle = handlers[op]
	}
	switch {
	case handle == nil:
		return none, &ib.AttrError{Op: "request", Attr: "Op", Value: uint16(op), Allowed: fmt.Sprintf("1 to %d", len(handlers)-1), Err: ib.ErrNotSupported}
	case c.unit == nil && op > abi.OpOpen || op == abi.OpOpen && !c.greeted:
		return none, fmt.Errorf("%v: say hello, and open a device, first: %w", op, ib.ErrState)
	}
	c.made, c.pending = nil, nil
	r, err := handle(c, body, fds)
	if err != nil {
		c.made.free()
		c.give(c.pending)
		return none, err
	}
	if r.sent == nil {
		r.sent = func() {}
	}
	return r, nil
}

// end closes all that the client has made.
func (c *session) end() {
	if c.worker != nil {
		c.worker.Close() // first: nothing shall wait for memory that does not move
	}
	all := make([]*object, 0, len(c.objects))
	for _, o := range c.objects {
		all = append(all, o)
	}
	slices.SortFunc(all, func(a, b *object) int { return cmp.Compare(a.kind, b.kind) })
	for _, o := range all {
		if err := o.close(); err != nil {
			c.srv.log.Error("an object of a client that is gone cannot be closed", "kind", o.kind, "err", err)
			continue // its memory stays: the device may still look at it
		}
		o.rings.free()
		c.give(o.holds)
	}
	c.objects = nil
	if c.unit == nil {
		return
	}
	if c.process != nil {
		go func() { // which may take as long as the client's memory wants
			<-c.worker.Done()
			c.process.Close()
			_ = unix.Close(c.pidfd)
		}()
	}
	c.unit.mu.Lock()
	delete(c.unit.sessions, c)
	c.unit.mu.Unlock()
	c.closeBells()
	c.events.close()
}

// closeBells ends the doorbells.
func (c *session) closeBells() {
	for i, b := range c.bells {
		c.unit.towers[i].remove(b)
		_ = unix.Close(b.wake)
	}
	c.bells = nil
	c.shared.free()
}

// stuck ends the connection of a client whose memory does not move.
func (c *session) stuck() {
	c.srv.log.Warn("memory of a client does not move; it is dropped", "pid", c.who.Pid, "uid", c.who.Uid)
	c.hangUp()
}

// hangUp makes serve return, and waits for nothing: to close the connection can take as
// long as the client wants, as foreign has it.
func (c *session) hangUp() { _ = c.conn.SetDeadline(time.Unix(1, 0)) }

// Alloc makes memory for rings (roce.Tenant).
func (c *session) Alloc(size int) (_ []byte, err error) {
	if err := c.take(c.op, pinned, int64(size)); err != nil {
		return nil, err
	}
	if c.made, err = newShared("rings", size); err != nil {
		return nil, fmt.Errorf("%v: %w", c.op, err)
	}
	return c.made.buf, nil
}

// Notify is never called: CQs have tenants of their own, that know their channel.
func (c *session) Notify(*roce.CQ) {}

// Event tells the client of an event (roce.Tenant).
func (c *session) Event(e ib.Event) {
	var object any
	switch {
	case e.QP != nil:
		object = e.QP
	case e.SRQ != nil:
		object = e.SRQ
	case e.CQ != nil:
		object = e.CQ
	}
	c.mu.Lock()
	h := c.handles[object]
	c.mu.Unlock()
	c.tell(e.Type, h)
}

// tell sends an asynchronous event. One that the client has no room for is lost, as it
// would be in its own process.
func (c *session) tell(t ib.EventType, h abi.Handle) {
	e := abi.Event{Type: uint32(t), Object: h}
	c.events.put(abi.Put(nil, &e))
}

// add gives an object a handle.
func (c *session) add(o *object) abi.Handle {
	for c.last++; c.last == 0 || c.objects[c.last] != nil; c.last++ {
	}
	c.objects[c.last] = o
	c.change(o)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.handles[o.value] = c.last
	return c.last
}

// lookup returns the object behind a handle, which has to be of type T.
func lookup[T any](c *session, op abi.Op, attr string, h abi.Handle) (v T, err error) {
	o := c.objects[h]
	if o == nil {
		return v, &ib.AttrError{Op: op.String(), Attr: attr, Value: uint32(h), Allowed: "a handle of this connection that is open", Err: ib.ErrClosed}
	}
	v, ok := o.value.(T)
	if !ok {
		return v, &ib.AttrError{Op: op.String(), Attr: attr, Value: fmt.Sprintf("handle %d, a %T", h, o.value), Allowed: fmt.Sprintf("a %T", v), Err: ib.ErrInvalid}
	}
	return v, nil
}

// optional is lookup where 0 stands for none.
func optional[T any](c *session, op abi.Op, attr string, h abi.Handle) (v T, err error) {
	if h == 0 {
		return v, nil
	}
	return lookup[T](c, op, attr, h)
}
