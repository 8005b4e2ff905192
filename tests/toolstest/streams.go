package toolstest

import (
	"context"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"
)

// Streams is a network for connections in memory, in place of TCP: in a simulation their reads and deadlines wait in
// virtual time. Ports belong to no host. The zero value is ready.
type Streams struct {
	mu        sync.Mutex
	listeners map[string]*listener // by port
}

// Listen listens at the port of an address.
func (s *Streams) Listen(_ context.Context, _, address string) (net.Listener, error) {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listeners[port] != nil {
		return nil, syscall.EADDRINUSE
	}
	if s.listeners == nil {
		s.listeners = map[string]*listener{}
	}
	l := &listener{streams: s, port: port, waiting: make(chan *stream, 16), closed: make(chan struct{})}
	s.listeners[port] = l
	return l, nil
}

// DialContext connects to a listener.
func (s *Streams) DialContext(_ context.Context, _, address string) (net.Conn, error) {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	l := s.listeners[port]
	s.mu.Unlock()
	if l == nil {
		return nil, syscall.ECONNREFUSED
	}
	there, here := newHalf(), newHalf()
	select {
	case l.waiting <- &stream{in: there, out: here}:
		return &stream{in: here, out: there}, nil
	case <-l.closed:
		return nil, syscall.ECONNREFUSED
	}
}

type listener struct {
	streams *Streams
	port    string
	waiting chan *stream
	closing sync.Once
	closed  chan struct{}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.waiting:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.closing.Do(func() {
		l.streams.mu.Lock()
		defer l.streams.mu.Unlock()
		delete(l.streams.listeners, l.port)
		close(l.closed)
	})
	return nil
}

func (l *listener) Addr() net.Addr { return nowhere }

// nowhere is the address of all streams.
var nowhere net.Addr = net.TCPAddrFromAddrPort(netip.MustParseAddrPort("0.0.0.0:0"))

// stream is one end of a connection.
type stream struct{ in, out *half }

func (s *stream) Read(p []byte) (int, error)  { return s.in.read(p) }
func (s *stream) Write(p []byte) (int, error) { return s.out.write(p) }

func (s *stream) Close() error {
	s.in.change(func(h *half) { h.left = true })
	s.out.change(func(h *half) { h.ended = true })
	return nil
}

func (s *stream) LocalAddr() net.Addr  { return nowhere }
func (s *stream) RemoteAddr() net.Addr { return nowhere }

func (s *stream) SetDeadline(t time.Time) error { return s.SetReadDeadline(t) }

func (s *stream) SetReadDeadline(t time.Time) error {
	s.in.change(func(h *half) { h.deadline = t })
	return nil
}

// SetWriteDeadline does nothing: Write does not wait.
func (s *stream) SetWriteDeadline(time.Time) error { return nil }

// half is one direction of a connection. It has room for everything.
type half struct {
	mu       sync.Mutex
	data     []byte
	ended    bool // the writer has closed its end
	left     bool // the reader has
	deadline time.Time
	changed  chan struct{} // closed and replaced when something above changes
}

func newHalf() *half { return &half{changed: make(chan struct{})} }

func (h *half) change(f func(*half)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f(h)
	close(h.changed)
	h.changed = make(chan struct{})
}

func (h *half) write(p []byte) (n int, err error) {
	h.change(func(h *half) {
		switch {
		case h.ended:
			err = net.ErrClosed
		case h.left:
			err = syscall.ECONNRESET
		default:
			h.data, n = append(h.data, p...), len(p)
		}
	})
	return n, err
}

func (h *half) read(p []byte) (int, error) {
	for {
		h.mu.Lock()
		n, err := h.take(p)
		changed, deadline := h.changed, h.deadline
		h.mu.Unlock()
		if n > 0 || err != nil || len(p) == 0 {
			return n, err
		}
		var expired <-chan time.Time
		if !deadline.IsZero() {
			expired = time.After(time.Until(deadline))
		}
		select {
		case <-changed:
		case <-expired:
		}
	}
}

// take reads what is there.
func (h *half) take(p []byte) (int, error) {
	switch {
	case h.left:
		return 0, net.ErrClosed
	case !h.deadline.IsZero() && !time.Now().Before(h.deadline):
		return 0, os.ErrDeadlineExceeded
	case len(h.data) == 0 && h.ended:
		return 0, io.EOF
	}
	n := copy(p, h.data)
	h.data = h.data[n:]
	return n, nil
}
