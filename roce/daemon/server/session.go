package server

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/roce/daemon/abi"
	"github.com/goroce/goroce/roce/daemon/internal/procmem"
	"github.com/goroce/goroce/roce/internal/device"
	"github.com/goroce/goroce/roce/internal/fault"
)

// A session has one goroutine (Server.attend), which reads requests and carries them out one by one. It alone uses
// the fields of session and object, unless their comments say otherwise. Others that meet a session are: shards and
// the connection manager, which call its methods of device.Tenant with their locks held; inspections, which look up
// its handles; and whoever ends it by hangUp: the watch of its process or of its worker, a fault, the end of the
// server. None of them closes anything. They make serve return, and the session's own goroutine closes the objects
// (end).
//
// Then two things remain that may take as long as the client likes: the last turn of the worker, which touches memory
// of the client, and the close of the connection, in which the client may have left files. reap waits for the first,
// the user's closer does the second; ties counts them, so that the user is charged until both are over.

// session is one client's connection and the objects that it has created. It is a tenant of its
// device (device.Tenant). Its goroutine carries out one request after another.
type session struct {
	srv   *Server
	conn  *abi.Conn   // read by this goroutine or, for it, by the user's closer (receive.go)
	who   *unix.Ucred // which has connected; never changes
	visit *visit      // of its process

	greeted   bool                        // hello was answered; before that no other request is
	told      bool                        // that another process sends requests
	hold      *abi.File                   // the daemon's end of a hold; nil if the session is none
	unit      *unit                       // the device; nil before OpOpen
	worker    *device.Worker              // touches memory of the client's process; nil before OpOpen
	process   *procmem.Process            // nil until memory of the client's process is registered
	pidfd     pidfd                       // of the process, from OpOpen on
	doorbells []*clientDoorbells          // by shard; nil before OpShareDoorbells
	shared    *shared                     // memory of the doorbells; nil before OpShareDoorbells
	events    *outbox                     // asynchronous events; nil before OpOpen
	notes     [ib.EventGIDChange + 1]note // of events of the device, by type
	objects   map[abi.Handle]*object      // all that the client has and may name
	deleted   [2]int                      // entries of objects and of handles, for compact
	last      abi.Handle                  // the latest handle that was assigned
	own       account                     // this and user are guarded by accounts.mu
	user      *account                    // of all sessions of the user
	usesCM    bool                        // counted in the cmOwner of its user
	files     files                       // memfds that were shared for regions
	booked    []held                      // resources of the session itself, not of an object
	late      []func()                    // called by reap after the worker has ended
	failed    atomic.Bool                 // one of its queue pairs has failed, which the log says
	ties      atomic.Int32                // references that keep the session counted in its user's account: see above

	op      abi.Op  // the current request
	brought *shared // memory that came with it, mapped and sealed; nil once Alloc has taken it
	made    *shared // rings that Alloc has mapped for the current request
	pending []held  // resources booked for the current request

	ending chan struct{} // closed by hangUp; ends what this goroutine waits for

	mu      sync.Mutex      // guards the following fields
	handles map[any]*object // written by the session's goroutine only
	left    []*cmChannel    // channels whose sockets the client has closed
	hungUp  bool
	ended   bool // closeConn was called
}

// object is an entry of the session's handle table. It ends in three steps: after close no verb
// and no shard uses it; once gone is closed the worker does not either; free unmaps its memory.
type object struct {
	kind   abi.Kind
	handle abi.Handle
	value  any // an object of package device, a *region, a *file or a *channel
	close  func() error
	gone   <-chan struct{} // set by close; nil for objects that no worker uses
	free   func()          // of a region or a file; nil for others
	rings  *shared         // nil for objects without rings
	holds  []held          // what the accounts have for it

	events atomic.Uint32 // asynchronous events of it that were sent
	notes  []*note       // of those events, one for each type; guarded by session.mu until the object is closed
	queue  *queue        // of a CQ
	cm     *cmID         // of an ID of the connection manager
	also   *object       // another handle of the same value

	groups map[ib.GID]bool // of a QP: the multicast groups that it is attached to

	target bool   // of a QP: an XRC target of a domain
	staged []held // of a QP: what Stage has booked; guarded by session.mu

	rdAtomic [2]int // of a QP: the largest MaxRdAtomic and MaxDestRdAtomic that were booked
}

// release frees the resources of a closed object. It is called by the session's goroutine or, after the session has
// ended, by reap. Memory is unmapped before it is subtracted: the accounts never say less than there is.
func (c *session) release(o *object) {
	if o.free != nil {
		o.free()
	}
	o.rings.free()
	c.leaveGroups(o)
	c.give(o.holds)
	c.mu.Lock()
	staged := o.staged
	c.mu.Unlock()
	c.give(staged)
}

// peerOf returns the process and the user that have connected, as the kernel noted them at connect(2) (SO_PEERCRED):
// a process that changes its user, or executes another program, stays who it was. The PID is 0 if the process is in a
// PID namespace that is not visible here.
func peerOf(c *abi.Conn) (who *unix.Ucred, err error) {
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

// newSession makes the session of a connection that admit has counted in the user's account: the first of its ties.
func newSession(s *Server, conn *abi.Conn, who *unix.Ucred, user *account) *session {
	c := &session{srv: s, conn: conn, who: who, user: user, objects: map[abi.Handle]*object{},
		handles: map[any]*object{}, ending: make(chan struct{}), visit: &visit{}}
	c.ties.Store(1) // the connection
	if err := c.conn.TellSenders(); err != nil {
		s.log.Error("requests of a client will be refused: the kernel does not tell who sends them", "err", err)
	}
	return c
}

// serve answers requests until the connection ends or, after one for a hold, awaits the end of that.
func (c *session) serve() error {
	for c.hold == nil {
		if err := c.next(); err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, os.ErrDeadlineExceeded) { // of hangUp
				return nil
			}
			return err
		}
	}
	c.awaitRelease()
	return nil
}

// next answers the next request.
func (c *session) next() error {
	m, err := c.receive()
	switch {
	// The request is complete but for its files, which the kernel has closed: it is refused, and the connection goes
	// on.
	case errors.Is(err, abi.ErrDescriptors):
		return c.deny(m.Header, err)
	case err != nil:
		return err
	}
	// After the message was received, although Await knows the sender: a message that stays in the socket would hold
	// up the requests of the rightful process.
	if err := c.checkSender(&m); err != nil {
		m.release()
		return c.deny(m.Header, err)
	}
	return c.handle(&m)
}

// handle carries out a request, and answers it.
func (c *session) handle(m *message) error {
	r, err := c.answer(m.Op, m.body, m.fds)
	m.release()
	if err != nil {
		return c.deny(m.Header, err)
	}
	return c.reply(m.Header, &r)
}

// answer carries out a request. The caller still closes the descriptors. Before the hello it carries out nothing, and
// before open nothing that needs a device. A request that is refused does not end the connection; a message that is
// no request does (abi.Conn.Receive).
func (c *session) answer(op abi.Op, body []byte, fds []int) (reply, error) {
	none := reply{sent: func() {}}
	var handle handler
	c.op = op
	if int(op) < len(handlers) {
		handle = handlers[op]
	}
	switch {
	case handle == nil:
		return none, driver.Refuse("request", "Op", uint16(op), fmt.Sprintf("1 to %d", len(handlers)-1),
			ib.ErrNotSupported)
	case op != abi.OpHello && !c.greeted:
		return none, fmt.Errorf("%v: say hello first: %w", op, ib.ErrState)
	// By number: hello and open come first. Of the rest two need no device.
	case op > abi.OpOpen && op != abi.OpQueryDevice && op != abi.OpHold && c.unit == nil:
		return none, fmt.Errorf("%v: open a device first: %w", op, ib.ErrState)
	}
	// What a request takes is its own until an object has it (change, keepBooked). So an error at any place leaves
	// nothing behind: made is unmapped and pending is given back below.
	c.brought, c.made, c.pending = nil, nil, nil
	// Before the handler looks up a handle: one of a channel that has ended by itself names nothing any more.
	c.buryChannels()
	r := none
	// A verb may format or resize rings in the client's memory.
	err := c.safely(func() (err error) {
		if bringsRings[op] && len(fds) > 0 {
			if c.brought, err = c.mapShared(op, fds, 1, mostRings); err != nil {
				return err
			}
		}
		r, err = handle(c, body, fds)
		return err
	})
	c.brought.free() // if the verb has not asked for it
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

// end closes all objects of the client, and has reap unmap their memory when it is out of use. Users are closed before
// what they use, as kinds are numbered.
func (c *session) end() {
	if c.hold != nil {
		_ = c.hold.Close()
	}
	if c.worker != nil {
		c.worker.Close() // first, so that nothing below waits for memory that blocks
	}
	// Deferred, as a session without a device has an account to give back, too.
	defer c.reap()
	all := make([]*object, 0, len(c.objects))
	// By handle first, for the order among objects of one kind: it is the same in each run of a simulation.
	for _, h := range slices.Sorted(maps.Keys(c.objects)) {
		all = append(all, c.objects[h])
	}
	slices.SortStableFunc(all, func(a, b *object) int { return cmp.Compare(a.kind, b.kind) })
	for _, o := range all {
		if err := c.safely(o.close); err != nil {
			c.srv.log.Error("an object of a client that is gone cannot be closed", "kind", o.kind, "err", err)
			continue // leak its memory: the device may still access it
		}
		// Closed is not unmapped: the worker's last turn may still be in the memory.
		c.late = append(c.late, func() { c.release(o) })
	}
	c.objects = nil
	// From here on inspections find nothing, and an event that a shard still delivers names no object.
	c.mu.Lock()
	c.handles = nil
	c.mu.Unlock()
	if c.unit == nil {
		return
	}
	c.unit.mu.Lock()
	delete(c.unit.sessions, c)
	c.unit.mu.Unlock()
	// After the objects: its IDs and channels were on the account.
	c.leaveCM()
	c.closeDoorbells()
	c.events.close()
}

// reap frees the session's memory and descriptors once its worker has ended, which takes as
// long as the client's memory blocks. Until then they all stay booked, and the session counts
// as one of its user's.
func (c *session) reap() {
	c.ties.Add(1)
	// No lock is held and nobody waits for this goroutine, so it may last for ever. The order: regions and rings,
	// which the worker's last turn may have touched; then what that turn reached them by, the process's memory file
	// and its pidfd; at last the accounts.
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
		}
		c.pidfd.close()
		c.give(c.booked)
		c.untie()
	}()
}

// untie drops a reference to the session. The last one takes it off its user's account. It is called on threads of
// the closer and by reap, and takes accounts.mu.
func (c *session) untie() {
	if c.ties.Add(-1) == 0 {
		c.srv.accounts.leave(c.who.Uid)
	}
}

// retire waits until gone is closed, and calls free, so that the client may reuse its memory when it gets the answer.
// If the session ends first, since the memory blocks for example, reap calls free later. A gone that is nil says that
// no worker ever touches what free frees.
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

// closeDoorbells ends the doorbells. No shard accesses them any more when it returns.
func (c *session) closeDoorbells() {
	for i, b := range c.doorbells {
		c.unit.doorbells[i].remove(b)
		_ = unix.Close(b.wake)
	}
	c.doorbells = nil
}

// stuckAfter is how long an access may wait for one page of a client. It holds up nobody else: a shard goes on without
// a turn that takes long. But each such access keeps a thread.
const stuckAfter = 5 * time.Second

// stuck ends the connection of a client whose memory blocks the worker, on a thread. The worker's watch calls it on a
// goroutine of its own, while the access still blocks (slowmem.Options.OnStuck). Until the access returns the thread
// stays booked to the user, like all that reap frees.
func (c *session) stuck(thread int) {
	call, where := procmem.Waiting(thread)
	c.srv.log.Warn("a client is dropped: an access to its memory does not return", "pid", c.who.Pid, "uid", c.who.Uid,
		"seconds", int(c.srv.stuckAfter.Seconds()), "call", call, "kernel", where)
	c.hangUp()
}

// hangUp makes serve return. It does not block. Anybody may call it, at any time and more than once; shut holds
// Server.mu. The requests that the client has sent before are not read any more.
func (c *session) hangUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended || c.hungUp { // SetDeadline on a connection that is being closed would wait for the close
		return
	}
	c.hungUp = true
	close(c.ending)
	// A deadline in the past ends reads that are under way, and leaves the descriptor to closeConn.
	_ = c.conn.SetDeadline(time.Unix(1, 0))
}

// closeConn has the user's closer close the connection: unread descriptors in it may block that.
func (c *session) closeConn() {
	c.mu.Lock()
	// hangUp may come at any later time: from now on it leaves the descriptor alone, whose number may be another
	// file's.
	c.ended = true
	c.mu.Unlock()
	c.user.closer.closeConn(func() {
		_ = c.conn.Close()
		c.untie()
	})
}

// Alloc returns the memory for rings that came with the request (device.Tenant), which answer has mapped. Verbs call it
// on the session's goroutine, those that create a QP, CQ or SRQ with Device.mu held, for which all clients wait: so it
// does nothing that a client can make last. If the verb fails later, answer unmaps the memory.
func (c *session) Alloc(size int) ([]byte, error) {
	bad := func(attr string, value any, allowed string) ([]byte, error) {
		return nil, driver.Refuse(c.op.String(), attr, value, allowed, ib.ErrInvalid)
	}
	if c.brought == nil {
		return bad("descriptors", 0, fmt.Sprintf("one, of a memfd of %d bytes", size))
	}
	if err := cmp.Or(c.take(c.op, pinned, int64(size)), c.take(c.op, mappings, 1)); err != nil {
		return nil, err
	}
	if !c.brought.cut(size) {
		return bad("bytes of the memfd", len(c.brought.buf), fmt.Sprintf("at least %d", size))
	}
	c.made, c.brought = c.brought, nil
	return c.made.buf, nil
}

// Notify is never called: the tenant of a CQ is its queue, which has the CQ's channel.
func (c *session) Notify(*device.CQ) {}

// Fault ends the session after an access to its shared memory has faulted (device.Tenant). It is called where the
// fault was met: in a shard, under its lock or that of its doorbells; in a turn of the worker; or in a verb of the
// session (safely).
func (c *session) Fault(addr uintptr) {
	if faultsEnd {
		panic(fmt.Sprintf("memory of a client is not there: %#x", addr))
	}
	stack := debug.Stack() // shows the access
	c.srv.totals.faults.Add(1)
	go func() { // does not hold the caller's locks
		c.srv.log.Error("a client is dropped: access to its memory faults", "pid", c.who.Pid, "uid", c.who.Uid,
			"address", fmt.Sprintf("%#x", addr), "stack", string(stack))
		c.hangUp()
	}()
}

// safely calls f, which may access memory shared with the client, on the session's goroutine,
// where faults are panics (debug.SetPanicOnFault). After a fault the session ends.
func (c *session) safely(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			// A panic for another reason is a bug, which must not look like a client's fault.
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

// Event sends the client an asynchronous event (device.Tenant). Shards call it with their lock held. An object
// without a handle is closed, or its request is under way: the client does not know it. An event whose note is queued
// still is not sent again, and does not count: libibverbs waits at the end of an object for as many as were sent
// (CloseReply).
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
	defer c.mu.Unlock()
	if object == nil {
		c.tell(e.Type)
		return
	}
	for o := c.handles[object]; o != nil; o = o.also {
		if c.events.put(o.noteOf(e.Type)) {
			o.events.Add(1)
		}
	}
}

// tell sends an asynchronous event of the device. There is one note of each type, so what a client does not read is
// one message of each.
func (c *session) tell(t ib.EventType) {
	if int(t) < len(c.notes) {
		c.events.put(&c.notes[t])
	}
}

// noteOf returns the note of an object's asynchronous events of a type. The caller holds session.mu. There are as
// many as types of events that the object has had, so what a client does not read is bounded by its objects.
func (o *object) noteOf(t ib.EventType) *note {
	message := eventOf(t, o.handle)
	for _, n := range o.notes {
		if n.message == message {
			return n
		}
	}
	n := &note{message: message}
	o.notes = append(o.notes, n)
	return n
}

// eventOf returns an encoded abi.Event.
func eventOf(t ib.EventType, h abi.Handle) string {
	return string(abi.Put(nil, &abi.Event{Type: uint32(t), Object: h}))
}

// add assigns a handle to an object. It is the last step of a handler that makes an object: what the request has
// booked is the object's from here on, and events find it.
func (c *session) add(o *object) abi.Handle {
	// Handles go up, so that one that a client closes by mistake twice is not another object yet; 0 means none.
	for c.last++; c.last == 0 || c.objects[c.last] != nil; c.last++ {
	}
	o.handle = c.last
	c.objects[c.last] = o
	c.change(o)
	c.mu.Lock()
	defer c.mu.Unlock()
	// Several handles of one target QP: the newest leads to the others.
	o.also = c.handles[o.value]
	c.handles[o.value] = o
	return o.handle
}

// remove undoes add. Only the session's goroutine writes handles, so reading the map for compact takes no lock.
func (c *session) remove(o *object) {
	delete(c.objects, o.handle)
	c.objects = compact(c.objects, &c.deleted[0])
	c.mu.Lock()
	c.unlist(o)
	c.mu.Unlock()
	smaller := compact(c.handles, &c.deleted[1]) // without mu, for which shards wait
	c.mu.Lock()
	c.handles = smaller
	c.mu.Unlock()
}

// unlist takes an object out of handles. The caller holds mu.
func (c *session) unlist(o *object) {
	first := c.handles[o.value]
	switch {
	case first != o:
		for ; first.also != o; first = first.also {
		}
		first.also = o.also
	case o.also != nil:
		c.handles[o.value] = o.also
	default:
		delete(c.handles, o.value)
	}
}

// lookup returns the object of a handle, which must be of type T.
func lookup[T any](c *session, op abi.Op, attr string, h abi.Handle) (v T, err error) {
	o := c.objects[h]
	if o == nil {
		return v, driver.Refuse(op.String(), attr, uint32(h), "a handle of this connection that is open", ib.ErrClosed)
	}
	v, ok := o.value.(T)
	if !ok {
		return v, driver.Refuse(op.String(), attr, fmt.Sprintf("handle %d, a %T", h, o.value),
			fmt.Sprintf("a %T", v), ib.ErrInvalid)
	}
	return v, nil
}

// optional is lookup, but returns the zero value for handle 0.
func optional[T any](c *session, op abi.Op, attr string, h abi.Handle) (v T, err error) {
	if h == 0 {
		return v, nil
	}
	return lookup[T](c, op, attr, h)
}
