package rdmacm_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/rdmacm"
	"github.com/goroce/goroce/tests/require"
	"github.com/goroce/goroce/wire"
)

// TestNoCM: the error says that the device has no connection manager.
func TestNoCM(t *testing.T) {
	simulate(t, func(t *testing.T, a, _ *node) {
		if _, err := rdmacm.Open(struct{ ib.Device }{a.dev}, rdmacm.Options{}); !errors.Is(err, ib.ErrNotSupported) ||
			!strings.Contains(err.Error(), "has none") {
			t.Errorf("Open returned %v, want %v and %q", err, ib.ErrNotSupported, "has none")
		}
	})
}

// TestCloseCM: all that waits returns, peers learn of it, and the devices are as they were. The simulation would not
// end if a goroutine were left.
func TestCloseCM(t *testing.T) {
	simulate(t, func(t *testing.T, hostA, hostB *node) {
		open := func(h *node) (*counter, *rdmacm.CM) {
			d := newCounter(h.dev)
			c, err := rdmacm.Open(d, rdmacm.Options{})
			must(t, err)
			return d, c
		}
		devA, a := open(hostA)
		devB, b := open(hostB)
		ctx := patience(t)
		l, err := b.Listen(ctx, ":7471", rdmacm.ListenConfig{})
		must(t, err)
		conns := connections(t, a, l, 3)
		idle, err := b.Listen(ctx, ":7472", rdmacm.ListenConfig{})
		must(t, err)
		var waiting sync.WaitGroup
		wait := func(name string, f func() error) {
			waiting.Go(func() {
				if err := f(); !errors.Is(err, ib.ErrClosed) {
					t.Errorf("%s: %v, want %v", name, err, ib.ErrClosed)
				}
			})
		}
		wait("Accept", func() error { _, err := l.Accept(ctx); return err })
		wait("Request", func() error { _, err := idle.Request(ctx); return err })
		wait("Dial", func() error { _, err := b.Dial(ctx, "192.0.2.9:1", rdmacm.Config{}); return err })
		wait("Resolve", func() error { _, err := b.Resolve(ctx, "192.0.2.9:1", rdmacm.Config{}); return err })
		require.Until(t, "both have asked", func() bool {
			s := b.Stats()
			return s.Sent.Of(wire.AttrREQ) > 0 && s.Sent.Of(wire.AttrSIDRREQ) > 0
		})

		must(t, b.Close())
		waiting.Wait()
		for _, c := range conns {
			<-c.Done()
			if err := c.Err(); !errors.Is(err, rdmacm.ErrDisconnected) {
				t.Errorf("a peer's connection: %v, want %v", err, rdmacm.ErrDisconnected)
			}
			must(t, c.Disconnect(ctx))
		}
		for name, f := range map[string]func() error{
			"Dial":    func() error { _, err := b.Dial(ctx, "192.0.2.1:1", rdmacm.Config{}); return err },
			"Resolve": func() error { _, err := b.Resolve(ctx, "192.0.2.1:1", rdmacm.Config{}); return err },
			"Listen":  func() error { _, err := b.Listen(ctx, ":1", rdmacm.ListenConfig{}); return err },
		} {
			if err := f(); !errors.Is(err, ib.ErrClosed) {
				t.Errorf("%s on a closed CM: %v, want %v", name, err, ib.ErrClosed)
			}
		}
		must(t, b.Close())
		must(t, l.Close())
		must(t, a.Close())
		for _, d := range []*counter{devA, devB} {
			if diff := cmp.Diff(map[string]int{}, d.left()); diff != "" {
				t.Error("left on the device:", diff)
			}
			must(t, d.Close())
		}
	})
}

// connections dials n times to a listener for all addresses of 192.0.2.2.
func connections(t *testing.T, from *rdmacm.CM, l *rdmacm.Listener, n int) (conns []*rdmacm.Conn) {
	t.Helper()
	for range n {
		accepted := make(chan error, 1)
		go func() { _, err := l.Accept(patience(t)); accepted <- err }()
		c, err := from.Dial(patience(t), fmt.Sprintf("192.0.2.2:%d", l.Addr().Port()), rdmacm.Config{})
		must(t, err)
		must(t, <-accepted)
		conns = append(conns, c)
	}
	return conns
}

// TestDeviceCloses: the CM ends with its device.
func TestDeviceCloses(t *testing.T) {
	simulate(t, func(t *testing.T, a, b *node) {
		c, s := connect(t, a, b, rdmacm.Config{}, rdmacm.Config{})
		l := listen(t, a, ":0", rdmacm.ListenConfig{})
		accepted := make(chan error, 1)
		go func() { _, err := l.Accept(patience(t)); accepted <- err }()
		must(t, a.dev.Close())
		<-c.Done()
		for _, err := range []error{c.Err(), <-accepted} {
			if !errors.Is(err, ib.ErrClosed) {
				t.Errorf("ended with %v, want %v", err, ib.ErrClosed)
			}
		}
		<-s.Done()
		if err := s.Err(); !errors.Is(err, rdmacm.ErrDisconnected) {
			t.Errorf("the peer's end: %v, want %v", err, rdmacm.ErrDisconnected)
		}
	})
}

// TestOnEvent: events come in the order of the connection's life.
func TestOnEvent(t *testing.T) {
	simulate(t, func(t *testing.T, a, b *node) {
		must(t, b.cm.Close())
		var kinds []ib.CMEventType
		watched, err := rdmacm.Open(b.dev, rdmacm.Options{OnEvent: func(ev ib.CMEvent) {
			kinds = append(kinds,
				ev.Type)
		}})
		must(t, err)
		b.cm = watched
		if b.cm.Device() != b.dev {
			t.Error("another device")
		}
		c, s := connect(t, a, b, rdmacm.Config{}, rdmacm.Config{})
		must(t, c.Disconnect(patience(t)))
		<-s.Done()
		must(t, watched.Close())
		want := []ib.CMEventType{ib.CMConnectRequest, ib.CMEstablished, ib.CMDisconnected}
		if diff := cmp.Diff(want, kinds); diff != "" {
			t.Error(diff)
		}
	})
}

// TestGarbage: what is sent to QP 1 and is no message is dropped and counted; the CM
// goes on.
func TestGarbage(t *testing.T) {
	simulate(t, func(t *testing.T, a, b *node) {
		d := newUD(t, a)
		must(t, d.qp.Modify(ib.QPAttr{QKey: 0x80010000}, ib.AttrQKey)) // the Q_Key that requests for QP 1 carry
		gids, err := a.dev.GIDs(1)
		must(t, err)
		rng := rand.New(rand.NewPCG(1, 1))
		for round := range uint64(20) {
			for _, n := range []int{0, 4, 255, 256, 257, 512} {
				junk := make([]byte, n)
				for i := range junk {
					junk[i] = byte(rng.Uint32())
				}
				d.send(t, ib.AHAttr{DGID: ib.GIDFromAddr(b.addr), SGIDIndex: gids[0].Index}, ib.QPNGSI, 0x80010000,
					string(junk))
			}
			require.Until(t, "all is counted", func() bool {
				s := b.cm.Stats()
				return s.BadLength == 5*(round+1) && s.BadHeader == round+1
			})
		}
		connect(t, a, b, rdmacm.Config{}, rdmacm.Config{})
	})
}
