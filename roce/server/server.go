package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/abi"
)

// Limits bound what one client may hold. A field of 0 takes the default.
type Limits struct {
	Objects int   // of all kinds together; 65,536
	Entries int   // of completion queues, together; 4 Mi
	Memory  int64 // bytes registered; 1 GiB
}

func (l Limits) withDefaults() Limits {
	if l.Objects == 0 {
		l.Objects = 1 << 16
	}
	if l.Entries == 0 {
		l.Entries = 4 << 20
	}
	if l.Memory == 0 {
		l.Memory = 1 << 30
	}
	return l
}

// Options adjust a server. The zero value suits most.
type Options struct {
	Limits Limits
	Log    *slog.Logger // nil for none
	// Allow says whether a client's user may use the daemon; nil for all that can
	// connect. Its error is what the client gets.
	Allow func(uid, gid uint32) error
}

// Server gives other processes what its devices have.
type Server struct {
	opts  Options
	log   *slog.Logger
	units []*unit // in the order in which clients see them

	mu       sync.Mutex
	sessions map[*session]struct{}
	closed   bool
	running  sync.WaitGroup
}

// unit is a device, and what listens to its clients' doorbells.
type unit struct {
	name   string
	dev    *roce.Device
	towers []*tower // by shard

	mu       sync.Mutex
	sessions map[*session]struct{}
}

// New returns a server of the devices, which stay the caller's: they are closed after
// the server, and do nothing else meanwhile that waits for their events.
func New(devices []*roce.Device, o Options) (*Server, error) {
	if len(devices) < 1 || len(devices) > abi.MaxDevices {
		return nil, &ib.AttrError{Op: "serve", Attr: "devices", Value: len(devices), Allowed: fmt.Sprintf("1 to %d", abi.MaxDevices), Err: ib.ErrInvalid}
	}
	o.Limits = o.Limits.withDefaults()
	s := &Server{opts: o, log: o.Log, sessions: map[*session]struct{}{}}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	for _, dev := range devices {
		u := &unit{name: dev.Attr().Name, dev: dev, sessions: map[*session]struct{}{}}
		for i := range dev.Shards() {
			t, err := newTower()
			if err == nil {
				err = dev.SetBells(i, t, t.epoll)
			}
			if err != nil {
				return nil, fmt.Errorf("serve device %s: %w", u.name, err)
			}
			u.towers = append(u.towers, t)
		}
		s.units = append(s.units, u)
	}
	return s, nil
}

// Serve answers the clients that connect to l, a Unix socket of packets, until ctx ends
// or l is closed; it closes l. All clients' objects are gone when it returns.
func (s *Server) Serve(ctx context.Context, l *net.UnixListener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, u := range s.units {
		s.running.Go(func() { u.passEvents(ctx) })
	}
	defer s.running.Wait()
	stop := context.AfterFunc(ctx, func() { s.shut(l) })
	defer stop()
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			cancel()
			s.shut(l)
			if errors.Is(err, net.ErrClosed) {
				return nil
			}
			return err
		}
		s.running.Go(func() { s.attend(conn) })
	}
}

// shut ends all sessions.
func (s *Server) shut(l *net.UnixListener) {
	_ = l.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for c := range s.sessions {
		_ = c.conn.Close()
	}
}

// attend serves one client until its connection ends.
func (s *Server) attend(conn *net.UnixConn) {
	defer conn.Close()
	who, err := peerOf(conn)
	if err != nil {
		s.log.Warn("client without credentials", "err", err)
		return
	}
	c := newSession(s, conn, who)
	if !s.enter(c) {
		return
	}
	s.log.Info("client connected", "pid", who.Pid, "uid", who.Uid)
	err = c.serve()
	c.end()
	s.mu.Lock()
	delete(s.sessions, c)
	s.mu.Unlock()
	s.log.Info("client gone", "pid", who.Pid, "uid", who.Uid, "err", err)
}

func (s *Server) enter(c *session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.sessions[c] = struct{}{}
	}
	return !s.closed
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
	return nil, &ib.AttrError{Op: "open device", Attr: "name", Value: name, Allowed: fmt.Sprintf("those of the daemon: %q", names), Err: ib.ErrInvalid}
}
