package server

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/daemon/abi"
	"github.com/goroce/goroce/roce/daemon/internal/procmem"
	"github.com/goroce/goroce/roce/internal/fault"
)

// session is one client's connection, and all that it has made: a tenant of its device.
// Its goroutine carries out one request after another.
type session struct {
	srv  *Server
	conn *abi.Conn
	who  *unix.Ucred

	greeted   bool
	unit      *unit // once it has chosen
	worker    *roce.Worker
	process   *procmem.Process // nil until memory of the client's process is registered
	pidfd     int              // of that
	doorbells []*clientDoorbells
	shared    *shared // of the doorbells
	events    *outbox
	objects   map[abi.Handle]*object
	last      abi.Handle // given out
	own       account
	user      *account
	usesCM    bool // it holds its user's account at the connection manager
	files     files
	booked    []held       // what is no object's
	late      []func()     // what to free when the worker is done
	ties      atomic.Int32 // what keeps it counted as one of its user's

	op      abi.Op  // of the request at hand
	made    *shared // what Alloc made for the object at hand
	pending []held  // and what was taken for it

	ending chan struct{} // closed by hangUp

	mu      sync.Mutex // guards what follows
	handles map[any]abi.Handle
	hungUp  bool
	ended   bool // the connection is going to be closed
}

// object is what a handle stands for. It ends in three steps: close, after which no verb and
// no shard uses it; gone, when its worker does not either; and free, which unmaps its memory.
type object struct {
	kind  kind
	value any // one of package roce, or *channel
	close func() error
	gone  <-chan struct{} // set by close; nil for what no worker uses
	free  func()          // of a region; nil for others
	rings *shared         // nil for those without
	holds []held

	rdAtomic [2]int // of a QP: the most of its own, and of its peer's, that were booked
}

// release frees what a closed object had.
func (c *session) release(o *object) {
	if o.free != nil {
		o.free()
	}
	o.rings.free()
	c.give(o.holds)
}

// kind orders objects: who uses others goes first when a session ends.
type kind uint8

const (
	kindCMID kind = iota // first, so that peers hear of the end of a connection
	kindCM
	kindQP
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
	controlErr := raw.Control(func(fd uintptr) {
		who, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET,
			unix.SO_PEERCRED)
	})
	return who, errors.Join(controlErr, err)
}

func newSession(s *Server, conn *net.UnixConn, who *unix.Ucred, user *account) *session {
	c := &session{srv: s, conn: abi.NewConn(conn), who: who, user: user, objects: map[abi.Handle]*object{},
		handles: map[any]abi.Handle{}, ending: make(chan struct{})}
	c.ties.Store(1) // the connection
	return c
}

// serve answers requests until the connection ends.
func (c *session) serve() error {
	for {
		m, err := c.receive()
		switch {
		case errors.Is(err, abi.ErrDescriptors):
			err = c.deny(m.Header, err)
		case errors.Is(err, io.EOF) || errors.Is(err, os.ErrDeadlineExceeded): // of hangUp
			return nil
		case err == nil:
			err = c.handle(&m)
		}
		if err != nil {
			return err
		}
	}
}

// handle carries out a request, and answers it.
func (c *session) handle(m *message) error {
	r, err := c.answer(m.Op, m.body, m.fds)
	m.release()
	if err != nil {
		return c.deny(m.Header, err)
	}
	c.srv.totals.note(nil)
	return c.reply(m.Header, &r)
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
		return none, ib.Refuse("request", "Op", uint16(op), fmt.Sprintf("1 to %d", len(handlers)-1), ib.ErrNotSupported)
	case c.unit == nil && op > abi.OpOpen || op == abi.OpOpen && !c.greeted:
		return none, fmt.Errorf("%v: say hello, and open a device, first: %w", op, ib.ErrState)
	}
	c.made, c.pending = nil, nil
	r := none
	err := c.safely(func() (err error) {
		r, err = handle(c, body, fds)
		return err
	})
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

// end closes all that the client has made, and has it unmapped when nobody uses it any more.
func (c *session) end() {
	if c.worker != nil {
		c.worker.Close() // first: nothing shall wait for memory that does not move
	}
	defer c.reap()
	all := make([]*object, 0, len(c.objects))
	for _, o := range c.objects {
		all = append(all, o)
	}
	slices.SortFunc(all, func(a, b *object) int { return cmp.Compare(a.kind, b.kind) })
	for _, o := range all {
		if err := c.safely(o.close); err != nil {
			c.srv.log.Error("an object of a client that is gone cannot be closed", "kind", o.kind, "err", err)
			continue // its memory stays: the device may still look at it
		}
		c.late = append(c.late, func() { c.release(o) })
	}
	c.objects = nil
	c.mu.Lock()
	c.handles = nil
	c.mu.Unlock()
	if c.unit == nil {
		return
	}
	c.unit.mu.Lock()
	delete(c.unit.sessions, c)
	c.unit.mu.Unlock()
	c.leaveCM()
	c.closeDoorbells()
	c.events.close()
}

// reap frees what the session leaves when its worker touches no memory any more, which may
// take as long as the client's memory wants. Until then all of it is booked, and the
// session counts as one of its user's.
func (c *session) reap() {
	c.ties.Add(1)
	go func() {
		if c.worker != nil {
			<-c.worker.Done()
		}
		for _, free := range c.late {
			free()
		}
		c.late = nil
		c.shared.free()
		if c.process != nil {
			c.process.Close()
			_ = unix.Close(c.pidfd)
		}
		c.give(c.booked)
		c.untie()
	}()
}

// untie says that one thing less is left of the session.
func (c *session) untie() {
	if c.ties.Add(-1) == 0 {
		c.srv.accounts.leave(c.who.Uid)
	}
}

// retire calls free when gone is closed, and waits for that, so that the client may do with
// its memory what it likes when it has the answer. Where the memory does not move the
// session ends, and free is called when it does.
func (c *session) retire(op abi.Op, gone <-chan struct{}, free func()) error {
	if gone != nil {
		select {
		case <-gone:
		case <-c.ending:
			c.late = append(c.late, free)
			return fmt.Errorf("%v: the connection ends while the memory is in use: %w", op, ib.ErrClosed)
		}
	}
	free()
	return nil
}

// closeDoorbells ends the doorbells. Nobody looks at them any more when it returns.
func (c *session) closeDoorbells() {
	for i, b := range c.doorbells {
		c.unit.doorbells[i].remove(b)
		_ = unix.Close(b.wake)
	}
	c.doorbells = nil
}

// stuck ends the connection of a client whose memory does not move.
func (c *session) stuck() {
	c.srv.log.Warn("memory of a client does not move; it is dropped", "pid", c.who.Pid, "uid", c.who.Uid)
	c.hangUp()
}

// hangUp makes serve return, and waits for nothing.
func (c *session) hangUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended || c.hungUp { // a use of the connection would delay its close, up to here
		return
	}
	c.hungUp = true
	close(c.ending)
	_ = c.conn.SetDeadline(time.Unix(1, 0))
}

// closeConn closes the connection, with what lies in it unread, on a thread that may wait.
func (c *session) closeConn() {
	c.mu.Lock()
	c.ended = true
	c.mu.Unlock()
	c.user.closer.closeConn(func() {
		_ = c.conn.Close()
		c.untie()
	})
}

// Alloc makes memory for rings (roce.Tenant).
func (c *session) Alloc(size int) (_ []byte, err error) {
	if err := cmp.Or(c.take(c.op, pinned, int64(size)), c.take(c.op, mappings, 1)); err != nil {
		return nil, err
	}
	if c.made, err = newShared("rings", size); err != nil {
		return nil, fmt.Errorf("%v: %w", c.op, err)
	}
	return c.made.buf, nil
}

// Notify is never called: CQs have tenants of their own, that know their channel.
func (c *session) Notify(*roce.CQ) {}

// Fault ends the session: what it shares is not there (roce.Tenant).
func (c *session) Fault(addr uintptr) {
	if faultsEnd {
		panic(fmt.Sprintf("memory of a client is not there: %#x", addr))
	}
	stack := debug.Stack() // of the access
	c.srv.totals.faults.Add(1)
	go func() { // without the caller's locks
		c.srv.log.Error("memory of a client is not there; it is dropped", "pid", c.who.Pid, "uid", c.who.Uid,
			"address", fmt.Sprintf("%#x", addr), "stack", string(stack))
		c.hangUp()
	}()
}

// safely calls f, which may touch memory that the client shares, on the session's goroutine,
// which panics on faults. If the memory is not there the session ends.
func (c *session) safely(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			addr, ok := fault.Addr(v)
			if !ok {
				panic(v)
			}
			c.Fault(addr)
			err = fmt.Errorf("%v: memory that is shared is not there: %w", c.op, ib.ErrClosed)
		}
	}()
	return f()
}

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
		return v, ib.Refuse(op.String(), attr, uint32(h), "a handle of this connection that is open", ib.ErrClosed)
	}
	v, ok := o.value.(T)
	if !ok {
		return v, ib.Refuse(op.String(), attr, fmt.Sprintf("handle %d, a %T", h, o.value),
			fmt.Sprintf("a %T", v), ib.ErrInvalid)
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
