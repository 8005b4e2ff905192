package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/daemon/abi"
	"github.com/goroce/goroce/roce/daemon/machine"
	"github.com/goroce/goroce/roce/internal/device"
)

// Options adjust a server. The zero value suits most.
type Options struct {
	Client Limits // of each client
	User   Limits // of all clients of a user together
	// OwnProcesses lets clients of the daemon's own user register any of their memory, not
	// only memfds; OtherProcesses lets clients of other users do so.
	OwnProcesses, OtherProcesses bool
	// NoAdministrator makes root and the daemon's own user users like all others: where every container has its own
	// root, the user says nothing.
	NoAdministrator bool
	Log             *slog.Logger // nil for none
	// Allow returns an error, which the client gets, if a user may not use the daemon. If it
	// is nil, every user that can connect may.
	Allow func(uid, gid uint32) error
	// OnEvent, if it is not nil, is told of the asynchronous events of a device as a whole, on a
	// goroutine of the device, once clients have been.
	OnEvent func(roce.Device, ib.Event)
}

// Server lets other processes use its devices.
type Server struct {
	opts  Options
	log   *slog.Logger
	units []*unit // in the order in which clients see them; constant from New to Close

	privileged func(uid uint32) bool                                          // privileged, except in tests
	rest       func()                                                         // rest, except in tests
	send       func(c *abi.Conn, h abi.Header, body []byte, fds ...int) error // abi.Conn.Send, except in tests
	stuckAfter time.Duration                                                  // stuckAfter, except in tests

	// Each of these guards itself; the package comment has the order of locks.
	looking                      sync.Mutex // held by inspections, by turns; taken first
	accounts                     accounts
	memfds                       memfds
	failures                     failures
	visits                       visits
	cm                           cmAccounts
	strangers                    *closer // for connections whose user is not known
	totals                       totals
	ownProcesses, otherProcesses atomic.Bool // Options

	// mu guards what follows, but for left and running. No call of a device is made while it is held.
	mu       sync.Mutex
	sessions map[*session]struct{}
	listener abi.Listener
	closed   bool
	empty    chan struct{}  // made by Drain; closed when the last client leaves
	lastLeft time.Time      // when the last client left, or the server was made
	left     sync.Once      // closes empty once: a client accepted before Drain may enter after the last has left
	running  sync.WaitGroup // the sessions' goroutines, and those of passEvents
}

// unit is a device with the doorbells of its clients.
type unit struct {
	name        string
	index       int // in Server.units
	dev         *device.Device
	doorbells   []*doorbells         // by shard
	objects     [numResources]scarce // those of the device itself, guarded by accounts.mu
	clockOffset int64                // see clockOffset

	// A session is here from open to end: who opened the device is told of its events.
	mu       sync.Mutex
	sessions map[*session]struct{}

	domains domains
	groups  groups
}

// Alive waits until each shard of all devices has taken a turn. If ctx ends before, the error names the others. The
// daemon's watchdog calls it: a shard that hangs keeps the service manager from hearing that all is well.
func (s *Server) Alive(ctx context.Context) error {
	errs := make([]error, len(s.units))
	var asked sync.WaitGroup
	for i, u := range s.units { // at once, so that all have the same time
		asked.Go(func() { errs[i] = u.dev.Alive(ctx) })
	}
	asked.Wait()
	return errors.Join(errs...)
}

// New returns a server of the devices. The caller closes the devices, after Serve has returned
// and before it calls Server.Close. Meanwhile only the server may call their NextEvent.
func New(devices []roce.Device, o Options) (*Server, error) {
	if len(devices) < 1 || len(devices) > abi.MaxDevices {
		return nil, driver.Refuse("serve", "devices", len(devices), fmt.Sprintf("1 to %d", abi.MaxDevices),
			ib.ErrInvalid)
	}
	s := &Server{opts: o, log: o.Log, privileged: privileged, rest: rest, send: (*abi.Conn).Send,
		stuckAfter: stuckAfter, strangers: newCloser(), sessions: map[*session]struct{}{}, lastLeft: time.Now(),
		cm: cmAccounts{owners: map[uint32]*cmOwner{}}}
	if o.NoAdministrator {
		s.privileged = func(uint32) bool { return false }
	}
	// Before SetLimits, which derives limits of a user from what the machine has.
	s.accounts.setMachine(machine.Read())
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.SetLimits(o.Client, o.User)
	s.SetProcesses(o.OwnProcesses, o.OtherProcesses)
	for i, dev := range devices {
		u, err := newUnit(i, dev)
		if err != nil {
			return nil, err
		}
		s.units = append(s.units, u)
	}
	// Before any client: devices that have channels cannot be joined.
	s.joinCM()
	return s, nil
}

// newUnit makes a device look at the doorbells of clients. The descriptor of each shard's epoll set is the server's:
// the device only watches it, until it is closed itself.
func newUnit(index int, front roce.Device) (*unit, error) {
	dev, ok := front.(*device.Device)
	if !ok {
		return nil, driver.Refuse("serve", fmt.Sprintf("devices[%d]", index), front, "what roce.Open returns",
			ib.ErrInvalid)
	}
	u := &unit{name: dev.Attr().Name, index: index, dev: dev, clockOffset: clockOffset(dev),
		objects: scarceObjects(dev.Attr()), groups: newGroups(dev.Attr()),
		sessions: map[*session]struct{}{},
		domains:  domains{all: map[domainKey]*domain{}}}
	for i := range dev.Shards() {
		t, err := newDoorbells()
		if err == nil {
			err = dev.SetDoorbells(i, t, t.epoll)
		}
		if err != nil {
			if t != nil {
				_ = unix.Close(t.epoll)
			}
			return nil, fmt.Errorf("serve device %s: %w", u.name, err)
		}
		u.doorbells = append(u.doorbells, t)
	}
	return u, nil
}

// Close closes the descriptors that wake the devices' shards. Before it is called, Serve must have returned, if it
// was called, and the devices must be closed, as they use the descriptors. A link that still watched one would
// otherwise be told of whatever file gets its number next.
func (s *Server) Close() (err error) {
	for _, u := range s.units {
		for _, t := range u.doorbells {
			err = errors.Join(err, os.NewSyscallError("close", unix.Close(t.epoll)))
		}
	}
	s.units = nil
	return err
}

// SetLimits changes the limits. A client or user that holds more already keeps it, but gets no more.
func (s *Server) SetLimits(client, user Limits) {
	s.accounts.set(client, user)
	s.cm.mu.Lock()
	defer s.cm.mu.Unlock()
	for uid, o := range s.cm.owners {
		s.units[0].dev.SetCMLimits(o.CMOwner, s.cmLimits(uid, o.user))
	}
}

// SetProcesses changes Options.OwnProcesses and Options.OtherProcesses. Memory that is registered
// stays so.
func (s *Server) SetProcesses(own, other bool) {
	s.ownProcesses.Store(own)
	s.otherProcesses.Store(other)
}

// Drain stops accepting clients and waits until all have left, or ctx ends.
func (s *Server) Drain(ctx context.Context) error {
	s.mu.Lock()
	// Connections that nobody has accepted yet end with the listener. The accept loop then waits for ctx.
	if s.listener != nil {
		_ = s.listener.Close()
	}
	left := len(s.sessions)
	if s.empty == nil {
		s.empty = make(chan struct{})
		if left == 0 {
			s.left.Do(func() { close(s.empty) })
		}
	}
	empty := s.empty
	s.mu.Unlock()
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("clients have not left: %w", context.Cause(ctx))
	}
}

// Clients returns how many clients are connected.
func (s *Server) Clients() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sessions)
}

// Serve serves the clients that connect to l, a Unix socket of type SOCK_SEQPACKET, until ctx
// ends; it closes l. All clients' objects are closed when it returns, unless a session does not
// end within endLimit. Then Serve returns an error, and the session's objects stay until the
// process ends. Serve is called once.
func (s *Server) Serve(ctx context.Context, l *net.UnixListener) (err error) {
	listener, err := abi.Listen(l)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	return s.ServeListener(ctx, listener)
}

// ServeListener is Serve for any Listener.
func (s *Server) ServeListener(ctx context.Context, l abi.Listener) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, u := range s.units {
		// Counted in running, so awaitSessions waits for it, too. It ends with ctx: that is why cancel is called
		// before an error is returned. The deferred cancel runs last, which is too late.
		s.running.Go(func() { u.passEvents(ctx, s.opts.OnEvent) })
	}
	s.mu.Lock()
	s.listener = l
	s.mu.Unlock()
	defer func() { err = errors.Join(err, s.awaitSessions()) }()
	defer s.shut()
	// Accept does not look at ctx.
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	for {
		conn, err := l.Accept()
		switch {
		case err == nil:
			if c := s.admit(conn); c != nil {
				s.running.Go(func() { s.attend(c) })
			}
		case errors.Is(err, net.ErrClosed):
			<-ctx.Done() // if Drain has closed l, go on serving the present clients
			return nil
		// Descriptors are short, or the like. Clients that are there go on; full has waited a moment.
		case full(ctx, err):
			s.log.Warn("no more clients can connect", "err", err)
		default:
			cancel()
			return err
		}
	}
}

// shut ends all sessions. hangUp does not block, so that no client delays the end of another. Once closed is set,
// enter lists no session any more: one of the two ends each connection that was accepted.
func (s *Server) shut() {
	_ = s.listener.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for c := range s.sessions {
		c.hangUp()
	}
}

// endLimit is how long sessions may take to end after shut. They do not wait for clients' memory,
// but a system call about a client's process may block in the kernel.
const endLimit = 3 * time.Second

// awaitSessions waits up to endLimit for all sessions to end, so that no client can keep the daemon from ending.
// After that the goroutine which waits, the sessions that hang, and what they hold are left to the end of the
// process.
func (s *Server) awaitSessions() error {
	ended := make(chan struct{})
	go func() {
		s.running.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-time.After(endLimit):
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var pids []int32
	for c := range s.sessions {
		pids = append(pids, c.who.Pid)
	}
	return fmt.Errorf("%w: those of processes %d have not ended %v after they were dropped", errStuck, pids, endLimit)
}

// errStuck says that sessions do not end.
var errStuck = errors.New("sessions of clients hang")

// admit returns the session of a new connection; nil if it is refused. It runs in the accept loop, on which all
// clients wait, so it neither reads from the connection nor waits for it: what it asks, the kernel noted when the
// client connected.
func (s *Server) admit(conn *abi.Conn) *session {
	who, err := peerOf(conn)
	if err != nil {
		s.strangers.closeConn(func() { _ = conn.Close() })
		s.log.Warn("client without credentials", "err", err)
		return nil
	}
	user, crowd, err := s.accounts.enter(who.Uid)
	if err == nil {
		err = spareConn(conn)
	}
	if err != nil {
		// It closes the connection, and ends the count of enter.
		s.refuse(conn, who.Uid, user, crowd, err)
		return nil
	}
	return newSession(s, conn, who, user)
}

// attend serves one client until its connection ends. It is the session's goroutine. The memory may be unmapped, and
// the connection closed, after it has returned: by reap, and by the user's closer.
func (s *Server) attend(c *session) {
	// For this goroutine only. Shards have their own way (package engine, fault.go).
	debug.SetPanicOnFault(true) // see session.safely
	defer c.closeConn()
	if !s.enter(c) {
		return
	}
	log := s.log.With("pid", c.who.Pid, "uid", c.who.Uid)
	log.Debug("client connected")
	c.visit = s.visits.enter(c.who.Pid, c.who.Uid)
	err := c.serve()
	// In this order: Clients counts a session until its objects are closed, so that whoever waits for 0 finds the
	// devices without them.
	c.end()
	s.exit(c)
	if err != nil {
		log.Info("client gone", "err", err)
	} else {
		log.Debug("client gone")
	}
	if s.visits.leave(c.visit) {
		c.visit.log(s.log)
	}
}

// enter lists a session, for shut and for inspections. It returns false if the server has ended, or will as nobody
// has used it (AwaitIdle): the caller then closes the connection without having read from it.
func (s *Server) enter(c *session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.totals.clients.Add(1)
	// A connection that was accepted while shut ran would not be hung up by it.
	if !s.closed {
		s.sessions[c] = struct{}{}
	}
	return !s.closed
}

// exit undoes enter, after the session's objects were closed. If it was the last session, Drain returns, and the wait
// of AwaitIdle begins anew.
func (s *Server) exit(c *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, c)
	s.lastLeft = time.Now()
	if len(s.sessions) == 0 && s.empty != nil {
		s.left.Do(func() { close(s.empty) })
	}
}

// passEvents passes asynchronous events of the device as a whole to all of its clients. It runs on a goroutine of its
// own for each device, until ctx ends or the device is closed. Events of a client's object do not come this way: the
// device calls the tenant (session.Event).
func (u *unit) passEvents(ctx context.Context, also func(roce.Device, ib.Event)) {
	for {
		e, err := u.dev.NextEvent(ctx)
		if err != nil {
			return
		}
		u.mu.Lock()
		// tell does not block: a client that does not read has one note of each kind queued.
		for c := range u.sessions {
			c.tell(e.Type)
		}
		u.mu.Unlock()
		if also != nil {
			also(u.dev, e)
		}
	}
}

// find returns the unit with that name, or the first one for "".
func (s *Server) find(name string) (*unit, error) {
	var names []string
	for _, u := range s.units {
		if name == "" || u.name == name {
			return u, nil
		}
		names = append(names, u.name)
	}
	return nil, driver.Refuse("open device", "name", name, fmt.Sprintf("those of the daemon: %q", names), ib.ErrInvalid)
}
