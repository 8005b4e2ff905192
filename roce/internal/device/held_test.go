package device_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/roce/internal/device"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/mem"
	"github.com/goroce/goroce/roce/link/wrap"
)

// TestHeldFrames: a shard writes slow memory from the received frames, and does not receive into them
// before, even if memory blocks or is slow now and then. Of many WRITEs, which take several turns of
// the worker, each has its data in place when it completes.
func TestHeldFrames(t *testing.T) {
	t.Run("udp", func(t *testing.T) { testHeldFrames(t, newLive(t, 1<<17)) })
	t.Run("by mail", func(t *testing.T) { testHeldFrames(t, newMailed(t, 1<<17)) })
}

// newMailed is newLive with two shards, the first of which receives everything.
func newMailed(t *testing.T, bufSize int) *world {
	network := mem.NewNetwork()
	open := func(gid ib.GID) *host {
		links := network.OpenShards([]ib.GID{gid}, mem.Options{Steer: func(*link.Run, int) int { return 0 }}, 2)
		for i := range links {
			links[i] = wrap.Seal(links[i])
		}
		return openHostShards(t, links, 0, device.Options{}, bufSize)
	}
	return &world{t: t, a: open(gidA), b: open(gidB), timeout: liveTimeout}
}

// sometimesSlow is memory that makes a shard sleep now and then, as far as the worker knows.
type sometimesSlow struct {
	*gated
	told *gated // whose sleeps the worker sees
	n    int
}

func (s *sometimesSlow) WriteVector(pieces []mr.Piece) error {
	err := s.gated.WriteVector(pieces)
	if s.inline.Load() {
		if s.n++; s.n%100 == 0 {
			s.told.slept.Add(1)
		}
	}
	return err
}

func testHeldFrames(t *testing.T, on *world) {
	const size, window, rounds = 1 << 10, 512, 50
	const early = 100 // more than a turn of the worker takes, less than a congestion window
	w := newStuckOn(t, on, true)
	a, b := w.tenant.a, w.tenant.b
	if n := b.dev.Shards(); link.ShardOf(b.qp.Num(), n) != n-1 {
		t.Fatal("the QP is on the shard that receives its frames")
	}
	other := world{t: t, a: &host{}, b: &host{}, timeout: liveTimeout} // QPs of the same shard, with direct memory
	*other.a, *other.b = *a, *b
	other.connectTo(a.gid(), b.gid(), ib.MTU1024, nil)
	direct, err := b.pd.(*device.PD).RegMemory(mr.Bytes(make([]byte, 1<<16)), 0, anyAccess)
	must(t, err)

	memory := &sometimesSlow{gated: newGated(window * size), told: w.mem}
	slow, err := b.pd.(*device.PD).RegMemory(memory, 0, anyAccess)
	must(t, err)
	forMany(t, a, window*size, window)
	w.tenant.makeQP(b)
	w.tenant.bringUp(a, b.gid(), b.qp.Num(), ib.MTU1024,
		func(a *ib.QPAttr) { a.Timeout = 20 }) // longer than memory blocks
	w.tenant.bringUp(b, a.gid(), a.qp.Num(), ib.MTU1024, nil)
	posted := 0
	post := func(n int) {
		wrs := make([]ib.SendWR, n)
		for i := range wrs {
			at := posted * 37 % window * size // no two of them are adjacent
			fill(a.buf[at:at+size], byte(posted*11))
			wrs[i] = ib.SendWR{ID: uint64(at), Opcode: ib.WRWrite, Flags: ib.SendSignaled, SGL: a.sge(at, size),
				RemoteAddr: uint64(at), RKey: slow.RKey()}
			posted++
		}
		_, err := a.qp.PostSend(wrs)
		must(t, err)
	}
	got := make([]byte, size)
	check := func(n int) {
		t.Helper()
		for range n {
			wc := w.tenant.wait(a)
			must(t, wc.Err())
			at := int(wc.ID)
			if err := memory.Memory.ReadAt(got, wc.ID); err != nil || !bytes.Equal(got, a.buf[at:at+size]) {
				t.Fatalf("the WRITE to %#x has completed, and its data is not in place: %v", at, err)
			}
		}
	}
	post(early)
	await(t, "the worker is at the memory", memory.entered)
	for range 20 { // the shard goes on, and receives
		other.send(other.a, ib.SendWR{Opcode: ib.WRWrite, SGL: other.a.sge(0, 1<<14), RKey: direct.RKey()})
		if wc := other.wait(other.a); wc.Err() != nil {
			t.Fatal(wc.Err())
		}
	}
	close(memory.gate)
	check(early)
	for inline, begin := 0, time.Now(); inline < rounds; {
		post(window)
		check(window)
		if memory.inline.Load() {
			inline++
		}
		if time.Since(begin) > 20*time.Second {
			t.Fatalf("for 20 s only %d rounds were inline", inline)
		}
	}
}

// TestHeldFramesClosed: an application that goes while a turn is stuck at its memory gets nothing of what the
// shard receives for others meanwhile.
func TestHeldFramesClosed(t *testing.T) {
	w := newStuck(t, true)
	a, b := w.tenant.a, w.tenant.b
	fill(a.buf, 5)
	w.tenant.send(a, ib.SendWR{Opcode: ib.WRWrite, SGL: a.sge(0, 1<<15), RKey: b.mr.RKey()})
	await(t, "the worker is at the memory", w.mem.entered)
	w.worker.Close() // before another goroutine takes over the loop
	copy(w.a.buf[1<<16:], bytes.Repeat([]byte("others"), 1<<13))
	for range 20 {
		w.send(w.a, ib.SendWR{Opcode: ib.WRWrite, SGL: w.a.sge(1<<16, 1<<15), RemoteAddr: w.b.mr.Addr(),
			RKey: w.b.mr.RKey()})
		if wc := w.wait(w.a); wc.Err() != nil {
			t.Fatal(wc.Err())
		}
	}
	close(w.mem.gate)
	await(t, "Done", w.worker.Done())
	got := make([]byte, 1<<15)
	must(t, w.mem.Memory.ReadAt(got, 0))
	for i := range got {
		if got[i] != 0 && got[i] != a.buf[i] {
			t.Fatalf("byte %d of the memory is %q, want 0 or %q", i, got[i:][:12], a.buf[i])
		}
	}
}

// forMany gives h memory of the given size, and a QP for many requests.
func forMany(t *testing.T, h *host, bytes, requests int) {
	t.Helper()
	var err error
	h.buf = make([]byte, bytes)
	h.mr, err = h.pd.RegMR(ib.MRInit{Buf: h.buf, Access: anyAccess})
	must(t, err)
	h.cq, err = h.dev.CreateCQ(ib.CQInit{Entries: requests})
	must(t, err)
	h.qp, err = h.pd.CreateQP(ib.QPInit{Type: ib.RC, SendCQ: h.cq, RecvCQ: h.cq,
		Cap: ib.QPCap{MaxSendWR: requests, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}})
	must(t, err)
}
