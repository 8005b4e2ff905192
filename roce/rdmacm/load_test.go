package rdmacm_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/roce/rdmacm"
	"github.com/goroce/goroce/roce/simtest"
	"github.com/goroce/goroce/tests/require"
)

// serve accepts until the listener is closed, and closes each connection when the peer has ended it. The returned
// function waits for all of them.
func serve(t testing.TB, l *rdmacm.Listener) (wait func()) {
	t.Helper()
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			s, err := l.Accept(t.Context())
			if err != nil {
				return
			}
			conns.Go(func() {
				<-s.Done()
				if err := s.Err(); !errors.Is(err, rdmacm.ErrDisconnected) {
					t.Errorf("accepted connection ended with %v, want %v", err, rdmacm.ErrDisconnected)
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
		}
	})
	return func() {
		_ = l.Close()
		conns.Wait()
	}
}

// visit dials, disconnects and closes.
func visit(t testing.TB, h *node, addr string, o rdmacm.Config) {
	ctx := patience(t)
	c, err := h.cm.Dial(ctx, addr, o)
	if err != nil {
		t.Error(err)
		return
	}
	if err := c.Disconnect(ctx); err != nil {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// short configures a connection that leaves timewait soon.
var short = rdmacm.Config{AckTimeout: 1}

// TestInARow opens and closes a thousand connections.
func TestInARow(t *testing.T) {
	simulate(t, func(t *testing.T, a, b *node) {
		l := listen(t, b, b.at("0"), rdmacm.ListenConfig{})
		wait := serve(t, l)
		for range 1000 {
			visit(t, a, l.Addr().String(), short)
		}
		wait()
		require.Until(t, "nothing is left", func() bool { return a.cm.Idle() && b.cm.Idle() })
		if s := b.cm.Stats(); s.Stale != 0 {
			t.Errorf("%d requests came from the QP of an older connection, want 0", s.Stale)
		}
	})
}

// together opens n connections concurrently, and closes them when all are established.
func together(t *testing.T, a, b *node, n int) {
	l := listen(t, b, b.at("0"), rdmacm.ListenConfig{Backlog: n})
	wait := serve(t, l)
	ctx := patience(t)
	conns := make([]*rdmacm.Conn, n)
	var dials sync.WaitGroup
	for i := range conns {
		dials.Go(func() {
			var err error
			if conns[i], err = a.cm.Dial(ctx, l.Addr().String(), short); err != nil {
				t.Error(err)
			}
		})
	}
	dials.Wait()
	if t.Failed() {
		t.FailNow()
	}
	qpns := map[any]bool{}
	for _, c := range conns {
		qpns[c.QPAttr().DestQPN] = true
		dials.Go(func() {
			if err := c.Disconnect(ctx); err != nil {
				t.Error(err)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	dials.Wait()
	wait()
	if len(qpns) != n {
		t.Errorf("%d QPs at the other end, want %d as there are connections", len(qpns), n)
	}
	require.Until(t, "nothing is left", func() bool { return a.cm.Idle() && b.cm.Idle() })
}

// TestAtOnce opens two hundred connections at once.
func TestAtOnce(t *testing.T) {
	simulate(t, func(t *testing.T, a, b *node) { together(t, a, b, 200) })
}

// TestLoss: if one frame of twenty is lost in each direction, all of a hundred connections are established and ended,
// and none leaks.
func TestLoss(t *testing.T) {
	c := simtest.Config{Seeds: 5, Fault: wrap.FaultConfig{Drop: 0.05, Duplicate: 0.05, Reorder: 0.05}}
	simulateOn(t, c, func(t *testing.T, hosts []*node) {
		together(t, hosts[0], hosts[1], 100)
		if s := hosts[0].cm.Stats(); s.Resent == 0 {
			t.Error("nothing was lost")
		}
	})
}
