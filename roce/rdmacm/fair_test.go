package rdmacm_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/rdmacm"
	"github.com/goroce/goroce/roce/simtest"
	"github.com/goroce/goroce/tests/require"
	"github.com/goroce/goroce/wire"
)

// TestHogConfirmsNothing: a host that sends many requests and never confirms keeps others out of a listener for no
// longer than a handshake takes.
func TestHogConfirmsNothing(t *testing.T) {
	simulateOn(t, simtest.Config{Hosts: 3, Wrap: only(0, without(wire.AttrRTU))}, func(t *testing.T, hosts []*node) {
		hog, b, a := hosts[0], hosts[1], hosts[2]
		const room = 4
		l := listen(t, b, b.at("0"), rdmacm.ListenConfig{Backlog: room})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // a REP is repeated for 22 s
		defer cancel()
		accepted := make(chan *rdmacm.Conn, 1)
		go func() {
			s, err := l.Accept(ctx)
			if err != nil {
				t.Error(err)
			}
			accepted <- s
		}()
		var dials sync.WaitGroup
		defer dials.Wait()
		for range 2 * room {
			dials.Go(func() {
				if c, err := hog.cm.Dial(ctx, l.Addr().String(), rdmacm.Config{}); err == nil {
					<-c.Done()
					_ = c.Close()
				}
			})
		}
		require.Until(t, "the hog has all the room",
			func() bool { s := b.cm.Stats(); return s.Sent.Of(wire.AttrREP) >= room })
		c, err := a.cm.Dial(ctx, l.Addr().String(), rdmacm.Config{})
		if err != nil {
			t.Fatal(err)
		}
		s := <-accepted
		if s == nil || s.RemoteAddr() != c.LocalAddr() {
			t.Errorf("accepted %v, want it from %v", s, c.LocalAddr())
		}
		must(t, l.Close()) // which ends the hog's
		must(t, c.Close())
	})
}

// TestHogFillsBacklog: requests of a host that fills a backlog are rejected, the oldest first, in favour of a host that
// has fewer.
func TestHogFillsBacklog(t *testing.T) {
	simulateOn(t, simtest.Config{Hosts: 3}, func(t *testing.T, hosts []*node) {
		hog, b, a := hosts[0], hosts[1], hosts[2]
		const room = 4
		l := listen(t, b, b.at("0"), rdmacm.ListenConfig{Backlog: room})
		ctx := patience(t)
		rejected := make(chan error, 2*room)
		var dials sync.WaitGroup
		defer dials.Wait()
		dial := func(h *node) {
			dials.Go(func() {
				_, err := h.cm.Dial(ctx, l.Addr().String(), rdmacm.Config{})
				rejected <- err
			})
		}
		for range room {
			dial(hog)
		}
		full := func(n uint64) func() bool {
			return func() bool { return requests(b) == n }
		}
		require.Until(t, "the backlog is full", full(room))
		dial(a)
		if err := <-rejected; !errors.Is(err, &rdmacm.RejectError{Reason: ib.RejectNoResources}) {
			t.Errorf("the hog's oldest: %v, want %v", err, ib.RejectNoResources)
		}
		var sources []string
		for range room {
			r, err := l.Request(ctx)
			must(t, err)
			sources = append(sources, r.RemoteAddr().Addr().String())
			must(t, r.Reject(nil))
		}
		if sources[room-1] != a.addr.String() {
			t.Errorf("requests of %v, want the last of %v", sources, a.addr)
		}
	})
}
