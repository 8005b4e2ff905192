package device_test

import (
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/internal/device"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/mem"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/tests/require"
)

// TestCloseWithWorkPosted closes devices while work is posted: a doorbell that no turn
// takes any more must not keep the loop awake for ever.
func TestCloseWithWorkPosted(t *testing.T) {
	for range 100 {
		w := newLive(t, 4096)
		w.connect(ib.MTU1024, nil)
		closed := make(chan error, 1)
		go func() {
			_, err := w.a.qp.PostSend([]ib.SendWR{{Opcode: ib.WRSend, SGL: w.a.sge(0, 8)}})
			closed <- errors.Join(err, w.a.dev.Close())
		}()
		select {
		case err := <-closed:
			if err != nil {
				t.Fatal(err)
			}
		case <-time.After(require.Patience):
			t.Fatal("Close did not return within 20 s")
		}
		w.b.dev.Close()
	}
}

// TestLastACK ends a QP right after it has completed a receive, while the ACK is still
// delayed. The QP sends the ACK before it ends.
func TestLastACK(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(w *world) error
	}{
		{"to ERR", func(w *world) error { return w.b.qp.Modify(ib.QPAttr{State: ib.StateErr}, ib.AttrState) }},
		{"to RESET", func(w *world) error { return w.b.qp.Modify(ib.QPAttr{State: ib.StateReset}, ib.AttrState) }},
		{"close the QP", func(w *world) error { return w.b.qp.Close() }},
		{"close the device", func(w *world) error { return w.b.dev.Close() }},
	} {
		t.Run(c.name, func(t *testing.T) {
			network := mem.NewNetwork()
			open := func(gid ib.GID) *host {
				return openHost(t, wrap.Seal(network.Open([]ib.GID{gid}, mem.Options{})),
					device.Options{Manual: true, Seed: 1, AckDelay: time.Hour}, 4096)
			}
			w := &world{t: t, a: open(gidA), b: open(gidB)}
			w.connect(ib.MTU1024, nil)
			w.recv(w.b, ib.RecvWR{ID: 7, SGL: w.b.sge(0, 8)})
			w.send(w.a, ib.SendWR{ID: 1, Opcode: ib.WRSend, SGL: w.a.sge(0, 8)})
			w.settle()
			var wcs [1]ib.WC
			if n, _ := w.b.cq.Poll(wcs[:]); n != 1 || wcs[0].ID != 7 {
				t.Fatalf("%d receives completed, want only number 7", n)
			}
			if n, _ := w.a.cq.Poll(wcs[:]); n != 0 {
				t.Fatal("the ACK did not wait")
			}
			if err := c.end(w); err != nil {
				t.Fatal(err)
			}
			w.a.dev.Step(w.now)
			w.wantDone(w.a, 1)
		})
	}
}

// guarded is a link that counts calls of Send while another goroutine is in Wait.
type guarded struct {
	link.Link
	waiting atomic.Bool
	sent    atomic.Int32
}

func (g *guarded) Wait(d time.Duration, writable bool) error {
	g.waiting.Store(true)
	defer g.waiting.Store(false)
	return g.Link.Wait(d, writable)
}

func (g *guarded) Send(now ib.Instant, runs []link.Run) (int, error) {
	if g.waiting.Load() {
		g.sent.Add(1)
	}
	return g.Link.Send(now, runs)
}

// TestLastACKWhileAsleep: the last ACK is sent at once although the shard's loop is in
// Link.Wait, and two goroutines never use the link at the same time.
func TestLastACKWhileAsleep(t *testing.T) {
	for name, end := range map[string]func(q ib.QP) error{
		"to ERR": func(q ib.QP) error { return q.Modify(ib.QPAttr{State: ib.StateErr}, ib.AttrState) },
		"close":  ib.QP.Close,
	} {
		t.Run(name, func(t *testing.T) {
			network := mem.NewNetwork()
			open := func(gid ib.GID) (*host, *guarded) {
				g := &guarded{Link: network.Open([]ib.GID{gid}, mem.Options{})}
				return openHost(t, wrap.Seal(g), device.Options{Seed: 1, AckDelay: time.Hour}, 4096), g
			}
			a, _ := open(gidA)
			b, asleep := open(gidB)
			w := &world{t: t, a: a, b: b}
			w.connect(ib.MTU1024, nil)
			w.recv(w.b, ib.RecvWR{ID: 7, SGL: w.b.sge(0, 8)})
			w.send(w.a, ib.SendWR{ID: 1, Opcode: ib.WRSend, SGL: w.a.sge(0, 8)})
			var wcs [1]ib.WC
			for n := 0; n == 0; n, _ = w.b.cq.Poll(wcs[:]) {
				runtime.Gosched()
			}
			for !asleep.waiting.Load() {
				runtime.Gosched()
			}
			if err := end(w.b.qp); err != nil {
				t.Fatal(err)
			}
			if wc := w.wait(w.a); wc.Err() != nil {
				t.Fatal(wc.Err())
			}
			if n := asleep.sent.Load(); n != 0 {
				t.Errorf("the link was asked to send while it waited, %d times, want 0", n)
			}
		})
	}
}
