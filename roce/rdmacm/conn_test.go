package rdmacm_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/rdmacm"
	"github.com/goroce/goroce/roce/simtest"
	"github.com/goroce/goroce/tests/require"
	"github.com/goroce/goroce/wire"
)

// TestDisconnect: both ends know who wanted it, and the work in their QPs is
// flushed.
func TestDisconnect(t *testing.T) {
	simulate(t, func(t *testing.T, a, b *node) {
		post := func(c *rdmacm.Conn) error {
			_, err := c.QP().PostRecv([]ib.RecvWR{{ID: 5}})
			return err
		}
		c, s := connect(t, a, b, rdmacm.Config{Prepare: post}, rdmacm.Config{Prepare: post})
		if c.Err() != nil || s.Err() != nil {
			t.Errorf("connected: %v, %v", c.Err(), s.Err())
		}
		must(t, s.Disconnect(patience(t)))
		for _, e := range []struct {
			conn *rdmacm.Conn
			want error
		}{{c, rdmacm.ErrDisconnected}, {s, ib.ErrClosed}} {
			<-e.conn.Done()
			if err := e.conn.Err(); !errors.Is(err, e.want) {
				t.Errorf("ended with %v, want %v", err, e.want)
			}
			if wc := poll(t, e.conn.RecvCQ()); wc.ID != 5 || wc.Status != ib.WCWRFlushErr {
				t.Errorf("%+v, want a flushed receive", wc)
			}
			must(t, e.conn.Disconnect(patience(t))) // it has ended: no error
			must(t, e.conn.Close())
			must(t, e.conn.Close())
			if _, err := e.conn.QP().Query(); !errors.Is(err, ib.ErrClosed) {
				t.Errorf("the QP after Close: %v, want %v", err, ib.ErrClosed)
			}
		}
		require.Until(t, "timewait is over", func() bool { return a.cm.Idle() && b.cm.Idle() })
	})
}

// TestDisconnectBoth: the DREQs cross, or do not; from several goroutines at each
// end.
func TestDisconnectBoth(t *testing.T) {
	simulate(t, func(t *testing.T, a, b *node) {
		for range 50 {
			c, s := connect(t, a, b, rdmacm.Config{}, rdmacm.Config{})
			var done sync.WaitGroup
			for _, conn := range []*rdmacm.Conn{c, s, c, s} {
				done.Go(func() {
					if err := conn.Disconnect(patience(t)); err != nil {
						t.Error(err)
					}
					<-conn.Done()
				})
			}
			done.Wait()
		}
	})
}

// TestDisconnectUnanswered: it ends with the context, the error says at which step.
func TestDisconnectUnanswered(t *testing.T) {
	simulateOn(t, simtest.Config{Wrap: only(0, without(wire.AttrDREQ))}, func(t *testing.T, hosts []*node) {
		a, b := hosts[0], hosts[1]
		c, s := connect(t, a, b, rdmacm.Config{}, rdmacm.Config{})
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		defer cancel()
		var timeout *rdmacm.TimeoutError
		if err := c.Disconnect(ctx); !errors.As(err, &timeout) || timeout.Step != "DREQ" ||
			!errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Disconnect returned %v, want a timeout at DREQ, %v", err, context.DeadlineExceeded)
		}
		must(t, s.Disconnect(patience(t))) // the other's gets through
		<-c.Done()
		if err := c.Err(); !errors.Is(err, ib.ErrClosed) {
			t.Errorf("ended with %v, want %v", err, ib.ErrClosed)
		}
	})
}

// TestClose: it tells the peer; memory in the PD that was made is the caller's to
// close first.
func TestClose(t *testing.T) {
	simulate(t, func(t *testing.T, a, b *node) {
		c, s := connect(t, a, b, rdmacm.Config{}, rdmacm.Config{})
		m, err := c.PD().RegMR(ib.MRInit{Buf: make([]byte, 8)})
		must(t, err)
		if err := c.Close(); !errors.Is(err, ib.ErrBusy) {
			t.Errorf("Close with a region in the PD: %v, want %v", err, ib.ErrBusy)
		}
		<-s.Done()
		if err := s.Err(); !errors.Is(err, rdmacm.ErrDisconnected) {
			t.Errorf("the peer's end: %v, want %v", err, rdmacm.ErrDisconnected)
		}
		must(t, m.Close())
		must(t, c.Close())
		if err := c.Err(); !errors.Is(err, ib.ErrClosed) || !strings.Contains(err.Error(), s.LocalAddr().String()) {
			t.Errorf("ended with %v, want %v and %q", err, ib.ErrClosed, s.LocalAddr().String())
		}
		if _, err := c.PD().AllocMW(ib.MWType1); !errors.Is(err, ib.ErrClosed) {
			t.Errorf("the PD after Close: %v, want %v", err, ib.ErrClosed)
		}
	})
}

// TestCloseRaces closes ends while they are dialled, accepted, disconnected.
func TestCloseRaces(t *testing.T) {
	simulate(t, func(t *testing.T, a, b *node) {
		ctx := patience(t)
		l := listen(t, b, b.at("0"), rdmacm.ListenConfig{})
		go func() {
			for {
				s, err := l.Accept(ctx)
				if err != nil {
					return
				}
				go s.Disconnect(ctx)
				go s.Close()
			}
		}()
		var done sync.WaitGroup
		for range 50 {
			done.Go(func() {
				prepared := make(chan *rdmacm.Conn, 1)
				go func() {
					c := <-prepared
					_ = c.Close()
				}()
				c, err := a.cm.Dial(ctx, l.Addr().String(),
					rdmacm.Config{Prepare: func(c *rdmacm.Conn) error { prepared <- c; return nil }})
				if err == nil {
					_ = c.Disconnect(ctx)
					err = c.Close()
				} else if errors.Is(err, ib.ErrClosed) {
					err = nil
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		done.Wait()
		must(t, l.Close())
		require.Until(t, "nothing is left", func() bool { return a.cm.Idle() && b.cm.Idle() })
	})
}

// TestQPFails: where the QP does not go to RTS, the peer gets a consumer's reject; a
// REP of such an end never leaves.
func TestQPFails(t *testing.T) {
	simulate(t, func(t *testing.T, a, b *node) {
		ctx := patience(t)
		spoil := rdmacm.Config{Prepare: func(c *rdmacm.Conn) error {
			return c.QP().Modify(ib.QPAttr{State: ib.StateErr}, ib.AttrState)
		}}
		l := listen(t, b, b.at("0"), rdmacm.ListenConfig{})
		dialled := make(chan error, 1)
		go func() { _, err := a.cm.Dial(ctx, l.Addr().String(), rdmacm.Config{}); dialled <- err }()
		r, err := l.Request(ctx)
		must(t, err)
		if _, err := r.Accept(ctx, spoil); !errors.Is(err, ib.ErrState) {
			t.Errorf("Accept returned %v, want %v", err, ib.ErrState)
		}
		if err := <-dialled; !errors.Is(err, &rdmacm.RejectError{Reason: ib.RejectConsumer}) {
			t.Errorf("Dial returned %v, want %v", err, ib.RejectConsumer)
		}
		if s := a.cm.Stats(); s.Received.Of(wire.AttrREP) != 0 {
			t.Error("the dialler got a REP")
		}

		accepted := make(chan error, 1)
		go func() {
			r, err := l.Request(ctx)
			if err == nil {
				_, err = r.Accept(ctx, rdmacm.Config{})
			}
			accepted <- err
		}()
		if _, err := a.cm.Dial(ctx, l.Addr().String(), spoil); !errors.Is(err, ib.ErrState) {
			t.Errorf("Dial returned %v, want %v", err, ib.ErrState)
		}
		if err := <-accepted; !errors.Is(err, &rdmacm.RejectError{Reason: ib.RejectConsumer}) {
			t.Errorf("Accept returned %v, want %v", err, ib.RejectConsumer)
		}
		must(t, l.Close())
		require.Until(t, "nothing is left", func() bool { return a.cm.Idle() && b.cm.Idle() })
	})
}

// TestAcceptGoesOn: a handshake that the peer breaks off leaves nothing behind, and
// room for the next one.
func TestAcceptGoesOn(t *testing.T) {
	simulate(t, func(t *testing.T, a, b *node) {
		must(t, b.cm.Close())
		counted := newCounter(b.dev)
		var err error
		b.cm, err = rdmacm.Open(counted, rdmacm.Options{})
		must(t, err)
		before := counted.left()
		ctx := patience(t)
		l := listen(t, b, b.at("0"), rdmacm.ListenConfig{Backlog: 1})
		accepted := make(chan *rdmacm.Conn, 1)
		go func() { s, _ := l.Accept(ctx); accepted <- s }()
		own := errors.New("changed my mind")
		for range 3 {
			broken := rdmacm.Config{Prepare: func(c *rdmacm.Conn) error {
				return c.QP().Modify(ib.QPAttr{State: ib.StateErr}, ib.AttrState)
			}}
			if _, err := a.cm.Dial(ctx, l.Addr().String(), broken); !errors.Is(err, ib.ErrState) {
				t.Fatalf("Dial returned %v, want %v", err, ib.ErrState)
			}
			if _, err := a.cm.Dial(ctx, l.Addr().String(),
				rdmacm.Config{Prepare: func(*rdmacm.Conn) error { return own }}); !errors.Is(err, own) {
				t.Fatalf("Dial returned %v, want %v", err, own)
			}
		}
		c, err := a.cm.Dial(ctx, l.Addr().String(), rdmacm.Config{})
		must(t, err)
		s := <-accepted
		if s == nil || s.RemoteAddr() != c.LocalAddr() {
			t.Fatalf("accepted %v, want it from %v", s, c.LocalAddr())
		}
		for _, o := range []interface{ Close() error }{c, s, l} {
			must(t, o.Close())
		}
		require.Until(t, "nothing is left", func() bool {
			return a.cm.Idle() && b.cm.Idle() && cmp.Equal(before,
				counted.left())
		})
	})
}

// TestAcceptUnanswered: the RTU never comes; it ends with the context, the peer is
// told.
func TestAcceptUnanswered(t *testing.T) {
	simulateOn(t, simtest.Config{Wrap: only(0, without(wire.AttrRTU))}, func(t *testing.T, hosts []*node) {
		mute, b := hosts[0], hosts[1]
		l := listen(t, b, b.at("0"), rdmacm.ListenConfig{})
		dialled := make(chan *rdmacm.Conn, 1)
		go func() {
			c, err := mute.cm.Dial(patience(t), l.Addr().String(), rdmacm.Config{})
			if err != nil {
				t.Error(err)
			}
			dialled <- c
		}()
		r, err := l.Request(patience(t))
		must(t, err)
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		var timeout *rdmacm.TimeoutError
		if _, err := r.Accept(ctx, rdmacm.Config{}); !errors.As(err, &timeout) || timeout.Step != "REP" ||
			!errors.Is(err, context.DeadlineExceeded) || !strings.HasPrefix(err.Error(),
			"accept "+r.RemoteAddr().String()) {
			t.Errorf("Accept returned %v, want a timeout at REP, %v", err, context.DeadlineExceeded)
		}
		c := <-dialled
		if c == nil {
			t.FailNow()
		}
		<-c.Done()
		must(t, c.Close())
	})
}
