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
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/daemon/abi"
	"github.com/goroce/goroce/roce/daemon/machine"
)

// Options adjust a server. The zero value suits most.
type Options struct {
	Client Limits // of each client
	User   Limits // of all clients of a user together
	// OwnProcesses lets clients of the daemon's own user register any of their memory,
	// OtherProcesses those of others.
	OwnProcesses, OtherProcesses bool
	Log                          *slog.Logger // nil for none
	// Allow says whether a client's user may use the daemon; nil for all that can
	// connect. Its error is what the client gets.
	Allow func(uid, gid uint32) error
}

// Server gives other processes what its devices have.
type Server struct {
	opts  Options
	log   *slog.Logger
	units []*unit // in the order in which clients see them

	privileged func(uid uint32) bool                                          // privileged, but in tests
	send       func(c *abi.Conn, h abi.Header, body []byte, fds ...int) error // abi.Conn.Send, but in tests

	accounts                     accounts
	strangers                    *closer // of those whose user is not known
	totals                       totals
	ownProcesses, otherProcesses atomic.Bool // Options

	mu       sync.Mutex
	sessions map[*session]struct{}
	listener *net.UnixListener
	closed   bool
	empty    chan struct{} // closed when the last client leaves, if somebody waits
	left     sync.Once     // closes it: one that was let in before may come after that
	running  sync.WaitGroup
}

// unit is a device, and what listens to its clients' doorbells.
type unit struct {
	name      string
	dev       *roce.Device
	doorbells []*doorbells // by shard

	mu       sync.Mutex
	sessions map[*session]struct{}
	cmOwners cmOwners
}

// New returns a server of the devices, which stay the caller's: they are closed after
// the server, and do nothing else meanwhile that waits for their events.
func New(devices []*roce.Device, o Options) (*Server, error) {
	if len(devices) < 1 || len(devices) > abi.MaxDevices {
		return nil, ib.Refuse("serve", "devices", len(devices), fmt.Sprintf("1 to %d", abi.MaxDevices), ib.ErrInvalid)
	}
	s := &Server{opts: o, log: o.Log, privileged: privileged, send: (*abi.Conn).Send, strangers: newCloser(),
		sessions: map[*session]struct{}{}}
	s.accounts.setMachine(machine.Read())
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.SetLimits(o.Client, o.User)
	s.SetProcesses(o.OwnProcesses, o.OtherProcesses)
	for _, dev := range devices {
		u := &unit{name: dev.Attr().Name, dev: dev, sessions: map[*session]struct{}{}, cmOwners: cmOwners{}}
		for i := range dev.Shards() {
			t, err := newDoorbells()
			if err == nil {
				err = dev.SetDoorbells(i, t, t.epoll)
			}
			if err != nil {
				return nil, fmt.Errorf("serve device %s: %w", u.name, err)
			}
			u.doorbells = append(u.doorbells, t)
		}
		s.units = append(s.units, u)
	}
	return s, nil
}

// Close gives back the descriptors that wake the devices. Serve has returned, if it was
// called, and the devices are closed: until then they look at them.
func (s *Server) Close() (err error) {
	for _, u := range s.units {
		for _, t := range u.doorbells {
			err = errors.Join(err, os.NewSyscallError("close", unix.Close(t.epoll)))
		}
	}
	s.units = nil
	return err
}

// SetLimits changes the limits. Who holds more already keeps it, and gets no more.
func (s *Server) SetLimits(client, user Limits) {
	s.accounts.set(client, user)
	for _, u := range s.units {
		u.mu.Lock()
		for uid, o := range u.cmOwners {
			u.dev.SetCMLimits(o.CMOwner, s.cmLimits(uid))
		}
		u.mu.Unlock()
	}
}

// SetProcesses changes what processes' memory may be registered (Options). What is
// registered stays.
func (s *Server) SetProcesses(own, other bool) {
	s.ownProcesses.Store(own)
	s.otherProcesses.Store(other)
}

// Drain takes no more clients and waits until all have left, or ctx ends.
func (s *Server) Drain(ctx context.Context) error {
	s.mu.Lock()
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

// Clients returns how many clients there are.
func (s *Server) Clients() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sessions)
}

// Serve answers the clients that connect to l, a Unix socket of packets, until ctx ends;
// it closes l. All clients' objects are gone when it returns, unless a session does not end
// within a few seconds, which is an error: what that one has stays until the process ends.
// Serve is called once.
func (s *Server) Serve(ctx context.Context, l *net.UnixListener) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, u := range s.units {
		s.running.Go(func() { u.passEvents(ctx) })
	}
	s.mu.Lock()
	s.listener = l
	s.mu.Unlock()
	defer func() { err = errors.Join(err, s.awaitSessions()) }()
	defer s.shut()
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	for {
		conn, err := l.AcceptUnix()
		switch {
		case err == nil:
			if c := s.admit(conn); c != nil {
				s.running.Go(func() { s.attend(c) })
			}
		case errors.Is(err, net.ErrClosed):
			<-ctx.Done() // Drain has closed it, and waits for those who are there
			return nil
		case full(ctx, err):
			s.log.Warn("no more clients can connect", "err", err)
		default:
			cancel()
			return err
		}
	}
}

// shut ends all sessions.
func (s *Server) shut() {
	_ = s.listener.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for c := range s.sessions {
		c.hangUp()
	}
}

// endLimit is how long the sessions that were shut may take to end. They wait for no memory;
// but who asks the kernel about a client's process may wait for the kernel.
const endLimit = 3 * time.Second

// awaitSessions waits for all sessions to end, but not for ever: nothing that a client does
// keeps the daemon from ending.
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

// errStuck: sessions do not end.
var errStuck = errors.New("sessions of clients hang")

// admit returns the session of a new connection; nil if it is refused.
func (s *Server) admit(conn *net.UnixConn) *session {
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
		s.refuse(conn, who.Uid, user, crowd, err)
		return nil
	}
	return newSession(s, conn, who, user)
}

// attend serves one client until its connection ends.
func (s *Server) attend(c *session) {
	debug.SetPanicOnFault(true) // see session.safely
	defer c.closeConn()
	if !s.enter(c) {
		return
	}
	s.log.Info("client connected", "pid", c.who.Pid, "uid", c.who.Uid)
	err := c.serve()
	c.end()
	s.exit(c)
	s.log.Info("client gone", "pid", c.who.Pid, "uid", c.who.Uid, "err", err)
}

func (s *Server) enter(c *session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.totals.clients.Add(1)
	if !s.closed {
		s.sessions[c] = struct{}{}
	}
	return !s.closed
}

func (s *Server) exit(c *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, c)
	if len(s.sessions) == 0 && s.empty != nil {
		s.left.Do(func() { close(s.empty) })
	}
}

// passEvents tells all clients of the device what concerns the whole of it.
func (u *unit) passEvents(ctx context.Context) {
	for {
		e, err := u.dev.NextEvent(ctx)
		if err != nil {
			return
		}
		u.mu.Lock()
		for c := range u.sessions {
			c.tell(e.Type, 0)
		}
		u.mu.Unlock()
	}
}

// find returns the unit with that name, the first for "".
func (s *Server) find(name string) (*unit, error) {
	var names []string
	for _, u := range s.units {
		if name == "" || u.name == name {
			return u, nil
		}
		names = append(names, u.name)
	}
	return nil, ib.Refuse("open device", "name", name, fmt.Sprintf("those of the daemon: %q", names), ib.ErrInvalid)
}
