package device_test

import (
	"context"
	"errors"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/internal/device"
	"github.com/goroce/goroce/roce/link/udp"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
)

// liveTimeout is an ACK timeout of 2.1 s: on a busy machine a thread may not run for longer
// than half a second, which is the sum of eight timeouts of 67 ms.
const liveTimeout = 19

// newLive is newWorld over UDP sockets on loopback, in real time.
func newLive(t testing.TB, bufSize int) *world {
	t.Helper()
	open := func() *host {
		l, err := udp.Open([]netip.Addr{linktest.Loopback()}, udp.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return openHost(t, wrap.Seal(wrap.Loopback(l)), device.Options{}, bufSize)
	}
	return &world{t: t, a: open(), b: open(), timeout: liveTimeout}
}

// wait returns h's next completion, in real time.
func (w *world) wait(h *host) ib.WC {
	w.t.Helper()
	var wc [1]ib.WC
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		if n, err := h.cq.Poll(wc[:]); err != nil {
			w.t.Fatal(err)
		} else if n == 1 {
			return wc[0]
		}
		runtime.Gosched()
	}
	w.t.Fatal("no completion within a minute")
	return ib.WC{}
}

// TestRewrittenMemory changes a region continuously while a peer READs it and a SEND sends
// it: packets carry a copy, so no ICRC is wrong.
func TestRewrittenMemory(t *testing.T) {
	w := newLive(t, 1<<16)
	w.connectTo(w.a.gid(), w.b.gid(), ib.MTU1024, nil)
	var stop atomic.Bool
	var done sync.WaitGroup
	done.Go(func() {
		for i := 0; !stop.Load(); i++ {
			w.a.buf[i%len(w.a.buf)]++
		}
	})
	defer func() {
		stop.Store(true)
		done.Wait()
	}()
	for i := range require.Rounds(20, 300) {
		w.send(w.b, ib.SendWR{Opcode: ib.WRRead, SGL: w.b.sge(0, 1<<15), RemoteAddr: w.a.mr.Addr(),
			RKey: w.a.mr.RKey()})
		w.recv(w.b, ib.RecvWR{SGL: w.b.sge(1<<15, 1<<15)})
		w.send(w.a, ib.SendWR{Opcode: ib.WRSend, SGL: w.a.sge(0, 1<<15)})
		for _, h := range []*host{w.b, w.b, w.a} {
			if wc := w.wait(h); wc.Err() != nil {
				t.Fatalf("round %d: %v", i, wc.Err())
			}
		}
	}
	for _, h := range []*host{w.a, w.b} {
		if n := h.dev.Stats().RxICRCErrors; n != 0 {
			t.Errorf("%v: got %d packets with a wrong ICRC, want none", h.gid().Addr(), n)
		}
	}
}

// TestOwnAddress connects two QPs of one device: packets to the device's own GID are
// delivered to it.
func TestOwnAddress(t *testing.T) {
	w := newLive(t, 1<<16)
	w.b = &host{dev: w.a.dev, pd: w.a.pd, cq: w.a.cq, buf: w.a.buf, mr: w.a.mr}
	w.connectTo(w.a.gid(), w.a.gid(), ib.MTU1024, nil)
	fill(w.a.buf[:1<<15], 3)
	w.send(w.a, ib.SendWR{ID: 1, Opcode: ib.WRWrite, SGL: w.a.sge(0, 1<<15), RemoteAddr: w.a.mr.Addr() + 1<<15,
		RKey: w.a.mr.RKey()})
	if wc := w.wait(w.a); wc.Err() != nil {
		t.Fatal(wc.Err())
	}
	if string(w.a.buf[:1<<15]) != string(w.a.buf[1<<15:]) {
		t.Error("data differ")
	}
}

// TestEvents arms a CQ and waits on its channel.
func TestEvents(t *testing.T) {
	w := newLive(t, 4096)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	ch, err := w.a.dev.CreateChannel()
	if err != nil {
		t.Fatal(err)
	}
	if w.a.cq, err = w.a.dev.CreateCQ(ib.CQInit{Entries: 16, Channel: ch}); err != nil {
		t.Fatal(err)
	}
	w.b = &host{dev: w.a.dev, pd: w.a.pd, cq: w.a.cq, buf: w.a.buf, mr: w.a.mr}
	w.connectTo(w.a.gid(), w.a.gid(), ib.MTU1024, nil)
	for range 100 {
		if err := w.a.cq.Arm(false); err != nil {
			t.Fatal(err)
		}
		w.send(w.a, ib.SendWR{Opcode: ib.WRWrite, SGL: w.a.sge(0, 8), RemoteAddr: w.a.mr.Addr() + 8,
			RKey: w.a.mr.RKey()})
		cq, err := ch.Wait(ctx)
		if err != nil || cq != w.a.cq {
			t.Fatalf("Wait returned %v, %v; want the CQ", cq, err)
		}
		if wc := w.wait(w.a); wc.Err() != nil {
			t.Fatal(wc.Err())
		}
	}
	if err := ch.Close(); !errors.Is(err, ib.ErrBusy) {
		t.Errorf("closing a channel in use: %v, want ErrBusy", err)
	}
	if err := w.a.pd.Close(); !errors.Is(err, ib.ErrBusy) {
		t.Errorf("closing a PD in use: %v, want ErrBusy", err)
	}
	w.a.dev.Close()
	if _, err := ch.Wait(ctx); !errors.Is(err, ib.ErrClosed) {
		t.Errorf("Wait on a closed device: %v, want ErrClosed", err)
	}
	if _, err := w.a.qp.PostSend(nil); !errors.Is(err, ib.ErrClosed) {
		t.Errorf("PostSend on a closed device: %v, want ErrClosed", err)
	}
}
