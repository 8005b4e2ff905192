package device_test

import (
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/tests/require"
)

// pollUntilAside polls until the device's goroutine stands aside.
func (w *world) pollUntilAside(h *host) {
	w.t.Helper()
	var wcs [1]ib.WC
	for end := time.Now().Add(require.Patience); !h.dev.StandsAside(); {
		if n, err := h.cq.Poll(wcs[:]); n != 0 || err != nil {
			w.t.Fatalf("%d completions, %v; want none", n, err)
		}
		if time.Now().After(end) {
			w.t.Fatal("the shard's goroutine does not stand aside for the polling application")
		}
	}
}

// TestPollerDrives: an application that polls an empty CQ drives the device, which sends and
// receives messages.
func TestPollerDrives(t *testing.T) {
	w := newLive(t, 4096)
	w.connectTo(w.a.gid(), w.b.gid(), ib.MTU1024, nil)
	for i := range 200 {
		w.pollUntilAside(w.a)
		w.send(w.a, ib.SendWR{ID: uint64(i), Opcode: ib.WRWrite, SGL: w.a.sge(0, 3000), RemoteAddr: w.b.mr.Addr(),
			RKey: w.b.mr.RKey()})
		if wc := w.wait(w.a); wc.Err() != nil || wc.ID != uint64(i) {
			t.Fatalf("completion %+v, want success of request %d", wc, i)
		}
	}
}

// TestPollerLeaves: the device's goroutine resumes when the application stops polling.
func TestPollerLeaves(t *testing.T) {
	w := newLive(t, 4096)
	w.connectTo(w.a.gid(), w.b.gid(), ib.MTU1024, nil)
	for i := range 200 {
		w.pollUntilAside(w.a)
		w.send(w.b, ib.SendWR{ID: uint64(i), Opcode: ib.WRWrite, SGL: w.b.sge(0, 3000), RemoteAddr: w.a.mr.Addr(),
			RKey: w.a.mr.RKey()})
		if wc := w.wait(w.b); wc.Err() != nil || wc.ID != uint64(i) {
			t.Fatalf("completion %+v, want success of request %d", wc, i)
		}
	}
}

// TestPollerSleeps: an application that polled arms the CQ and waits, and is woken.
func TestPollerSleeps(t *testing.T) {
	w := newLive(t, 4096)
	ch, err := w.a.dev.CreateChannel()
	if err != nil {
		t.Fatal(err)
	}
	if w.a.cq, err = w.a.dev.CreateCQ(ib.CQInit{Entries: 16, Channel: ch}); err != nil {
		t.Fatal(err)
	}
	w.connectTo(w.a.gid(), w.b.gid(), ib.MTU1024, nil)
	for i := range 200 {
		w.recv(w.a, ib.RecvWR{ID: uint64(i), SGL: w.a.sge(0, 8)})
		w.pollUntilAside(w.a)
		if err := w.a.cq.Arm(false); err != nil {
			t.Fatal(err)
		}
		w.send(w.b, ib.SendWR{Opcode: ib.WRSend, SGL: w.b.sge(0, 8)})
		if _, err := ch.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if wc := w.wait(w.a); wc.Err() != nil || wc.ID != uint64(i) {
			t.Fatalf("completion %+v, want success of receive %d", wc, i)
		}
		w.wait(w.b)
	}
}
