package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/goroce/goroce/ib"
)

// Party is a device that takes part.
type Party struct {
	Device ib.Device
	// Kind is the kind of device in the table of deviations: "goroce", "rdma_rxe/6.1".
	Kind string
	// GIDIndex is the row of the GID table that it sends from. The addresses of both parties are of one family.
	GIDIndex int
	// Alloc returns n bytes of memory to register; nil stands for Go's allocator.
	Alloc func(n int) []byte
}

var (
	errHungUp = errors.New("the other side hung up")
	errSuite  = errors.New("the two sides are of different builds of the suite")
)

// session is one side of a connection.
type session struct {
	party    Party
	me, peer hello
	wire     *wire
	hub      *hub
	orders   chan order // at the server

	mu      sync.Mutex
	box     mailbox
	err     error         // why the connection has ended
	changed chan struct{} // closed and replaced when box or err change
}

// mailbox has what the other half has sent in the current case.
type mailbox struct {
	values   map[string][]json.RawMessage
	finished *verdict
	closed   *verdict
}

// newSession exchanges hellos with the other side and starts to listen.
func newSession(conn net.Conn, p Party) (*session, error) {
	s := &session{party: p, wire: newWire(conn), orders: make(chan order, 1), changed: make(chan struct{})}
	if err := s.introduce(); err != nil {
		return nil, err
	}
	s.hub = openHub(p.Device)
	go s.listen()
	return s, nil
}

func (s *session) introduce() error {
	p := &s.party
	port, err := p.Device.QueryPort(1)
	if err != nil {
		return err
	}
	gids, err := p.Device.GIDs(1)
	if err != nil {
		return err
	}
	s.me = hello{Suite: digest(), Kind: p.Kind, Attr: p.Device.Attr(), Port: port, GIDIndex: -1}
	for _, g := range gids {
		if g.Index == p.GIDIndex {
			s.me.GID, s.me.GIDIndex = g.GID, g.Index
		}
	}
	if s.me.GIDIndex < 0 {
		return fmt.Errorf("the GID table of %s has no row %d: %v: %w", s.me.Attr.Name, p.GIDIndex, gids, ib.ErrInvalid)
	}
	sent := make(chan error, 1)
	go func() { sent <- s.wire.send(message{Hello: &s.me}) }()
	m, err := s.wire.receive()
	if err == nil && m.Hello == nil {
		err = errors.New("the other side did not introduce itself")
	}
	if err = errors.Join(err, <-sent); err != nil {
		return err
	}
	s.peer = *m.Hello
	switch {
	case s.peer.Suite != s.me.Suite:
		return fmt.Errorf("%w: %s here, %s there", errSuite, s.me.Suite, s.peer.Suite)
	case s.peer.GID.Is4() != s.me.GID.Is4():
		return fmt.Errorf("GID %v here and %v there are of two families: %w", s.me.GID.Addr(), s.peer.GID.Addr(),
			ib.ErrInvalid)
	}
	return nil
}

// listen receives messages until the other side disconnects.
func (s *session) listen() {
	for {
		m, err := s.wire.receive()
		s.mu.Lock()
		switch {
		case err != nil:
			s.err = err
		case m.Run != nil:
			s.box = mailbox{}
		case m.Tell != nil:
			if s.box.values == nil {
				s.box.values = map[string][]json.RawMessage{}
			}
			s.box.values[m.Tell.Name] = append(s.box.values[m.Tell.Name], m.Tell.Value)
		case m.Finished != nil:
			s.box.finished = m.Finished
		case m.Closed != nil:
			s.box.closed = m.Closed
		}
		close(s.changed)
		s.changed = make(chan struct{})
		s.mu.Unlock()
		if err != nil {
			close(s.orders)
			return
		}
		if m.Run != nil {
			s.orders <- *m.Run
		}
	}
}

// newCase clears the mailbox. The leader calls it before it sends the order, so nothing of the new case can be lost.
func (s *session) newCase() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.box = mailbox{}
}

// await waits until ready returns true, the connection has ended, or ctx ends. It calls ready with the mailbox locked.
func (s *session) await(ctx context.Context, ready func(*mailbox) bool) error {
	for {
		s.mu.Lock()
		ok, err, changed := ready(&s.box), s.err, s.changed
		s.mu.Unlock()
		switch {
		case ok:
			return nil
		case err != nil:
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// tell sends a value to the other half.
func (s *session) tell(name string, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("tell %s: %w", name, err)
	}
	return s.wire.send(message{Tell: &value{name, raw}})
}

// hear returns the oldest value with that name from the other half.
func (s *session) hear(ctx context.Context, name string, v any) error {
	var raw json.RawMessage
	err := s.await(ctx, func(b *mailbox) bool {
		if list := b.values[name]; len(list) > 0 {
			raw, b.values[name] = list[0], list[1:]
		}
		return raw != nil || b.finished != nil
	})
	if err != nil {
		return fmt.Errorf("waiting for %q from the other half: %w", name, err)
	}
	if raw == nil {
		return &peerError{fmt.Sprintf("the other half ended without telling %q", name)}
	}
	return json.Unmarshal(raw, v)
}

// peerError is an error that the other half has caused.
type peerError struct{ text string }

func (e *peerError) Error() string { return e.text }

// close ends the session.
func (s *session) close() {
	s.hub.close()
	s.wire.conn.Close()
}
