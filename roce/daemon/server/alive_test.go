package server

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/internal/device"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/udp"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
)

// holdable is a link whose Recv, in the middle of a turn, or Wait, between two turns, a test can make hang.
type holdable struct {
	link.Link
	recv, wait sync.Mutex
}

func (h *holdable) Recv(now ib.Instant, runs []link.Run) (int, error) {
	h.recv.Lock()
	defer h.recv.Unlock()
	return h.Link.Recv(now, runs)
}

func (h *holdable) Wait(d time.Duration, writable bool) error {
	err := h.Link.Wait(d, writable)
	h.wait.Lock()
	defer h.wait.Unlock()
	return err
}

// TestAlive: a daemon of which one shard hangs is not alive, and says which. Other shards, and those of another device,
// go on.
func TestAlive(t *testing.T) {
	links, err := udp.OpenShards([]netip.Addr{linktest.Loopback()}, udp.Options{}, 2)
	must(t, err)
	held := &holdable{Link: wrap.Seal(wrap.Loopback(links[1]))}
	dev, err := device.OpenShards([]link.Link{wrap.Seal(wrap.Loopback(links[0])), held}, device.Options{Name: "blue"})
	must(t, err)
	l, err := udp.Open([]netip.Addr{linktest.Loopback()}, udp.Options{})
	must(t, err)
	healthy, err := device.OpenShards([]link.Link{wrap.Seal(wrap.Loopback(l))}, device.Options{Name: "red"})
	must(t, err)
	s, err := New([]roce.Device{dev, healthy}, Options{})
	must(t, err)
	defer func() {
		must(t, errors.Join(dev.Close(), healthy.Close()))
		must(t, s.Alive(t.Context())) // a shard that has ended does not hang
		must(t, s.Close())
	}()
	stuck := errors.New("stuck")
	for what, lock := range map[string]*sync.Mutex{"in a turn": &held.recv, "between two turns": &held.wait} {
		must(t, s.Alive(t.Context()))
		lock.Lock()
		require.Until(t, what+": shard 1 alone takes no turns", func() bool {
			ctx, cancel := context.WithTimeoutCause(t.Context(), 300*time.Millisecond, stuck)
			defer cancel()
			err := s.Alive(ctx)
			return errors.Is(err, stuck) && strings.HasPrefix(err.Error(), "shards [1] of device blue take no turns") &&
				!strings.Contains(err.Error(), "red")
		})
		lock.Unlock()
	}
	must(t, s.Alive(t.Context()))
}
