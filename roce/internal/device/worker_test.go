package device_test

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/qp/ring"
	"github.com/goroce/goroce/roce/internal/device"
	"github.com/goroce/goroce/tests/require"
)

// gated is memory whose accesses block while its gate is shut.
type gated struct {
	mr.Memory
	gate    chan struct{} // closed: open
	entered chan struct{} // gets a value when an access begins to wait at the gate
	within  atomic.Int32  // number of accesses under way, or waiting at the gate
	slept   atomic.Uint64 // how often an access had to wait
	inline  atomic.Bool   // the last access was by the loop of a shard
	pieces  atomic.Int64  // that were written by WriteVector
}

func newGated(size int) *gated {
	return &gated{Memory: mr.Bytes(make([]byte, size)), gate: make(chan struct{}), entered: make(chan struct{}, 64)}
}

func (g *gated) pass() {
	g.within.Add(1)
	var stack [4096]byte
	g.inline.Store(bytes.Contains(stack[:runtime.Stack(stack[:], false)], []byte("engine.(*Shard).run(")))
	select {
	case <-g.gate:
		return
	default:
		g.slept.Add(1)
	}
	select {
	case g.entered <- struct{}{}:
	default:
	}
	<-g.gate
}

func (g *gated) WriteVector(pieces []mr.Piece) error {
	g.pass()
	defer g.within.Add(-1)
	g.pieces.Add(int64(len(pieces)))
	for _, p := range pieces {
		if err := g.Memory.WriteAt(p.B, p.Off); err != nil {
			return err
		}
	}
	return nil
}

func (g *gated) Direct() []byte { return nil }

func (g *gated) ReadAt(p []byte, off uint64) error {
	g.pass()
	defer g.within.Add(-1)
	return g.Memory.ReadAt(p, off)
}

func (g *gated) WriteAt(p []byte, off uint64) error {
	g.pass()
	defer g.within.Add(-1)
	return g.Memory.WriteAt(p, off)
}

// silent is a tenant that only answers.
type silent struct{}

func (silent) Alloc(size int) ([]byte, error) { return ring.Alloc(size), nil }
func (silent) Notify(*device.CQ)              {}
func (silent) QPFailed(device.QPFailure)      {}
func (silent) Fault(uintptr)                  {}
func (silent) Stage(*device.QP) bool          { return true }
func (silent) Event(ib.Event)                 {}

const anyAccess = ib.LocalWrite | ib.RemoteWrite | ib.RemoteRead | ib.RemoteAtomic

// await fails the test if nothing arrives on c within a time that no machine needs.
func await[T any](t *testing.T, what string, c <-chan T) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(require.Patience):
		t.Fatalf("%s: not within 20 s", what)
	}
}

// stuckWorld is two hosts, of which B has a second QP, of a tenant, whose memory blocks
// accesses; A has a QP that is connected to it.
type stuckWorld struct {
	*world
	tenant world // the QPs
	mem    *gated
	worker *device.Worker
	stuck  chan struct{}
}

// newStuck makes a stuckWorld, where shards take turns of the worker inline, or not.
func newStuck(t *testing.T, inline bool) *stuckWorld { return newStuckOn(t, newLive(t, 1<<17), inline) }

// newStuckOn is newStuck with two hosts that there are.
func newStuckOn(t *testing.T, on *world, inline bool) *stuckWorld {
	w := &stuckWorld{world: on, mem: newGated(1 << 16), stuck: make(chan struct{}, 8)}
	w.connectTo(w.a.gid(), w.b.gid(), ib.MTU1024, nil)
	o := device.WorkerOptions{OnStuck: func(int) { w.stuck <- struct{}{} }, StuckAfter: 10 * time.Millisecond}
	if inline {
		o.Stalls = w.mem.slept.Load
	}
	w.worker = w.b.dev.NewWorker(o)
	t.Cleanup(w.worker.Close)
	a, b := *w.a, host{dev: w.b.dev}
	pd, err := b.dev.AllocPDFor(silent{}, w.worker)
	if err != nil {
		t.Fatal(err)
	}
	if b.cq, err = b.dev.CreateCQFor(silent{}, ib.CQInit{Entries: 16}); err != nil {
		t.Fatal(err)
	}
	if b.mr, err = pd.RegMemory(w.mem, 0, anyAccess); err != nil {
		t.Fatal(err)
	}
	if a.cq, err = a.dev.CreateCQ(ib.CQInit{Entries: 16}); err != nil {
		t.Fatal(err)
	}
	b.pd = pd
	w.tenant = world{t: t, a: &a, b: &b}
	w.tenant.connectTo(a.gid(), b.gid(), ib.MTU1024,
		func(a *ib.QPAttr) { a.Timeout = 20 }) // longer than the test waits
	return w
}

// TestStuckMemory: blocked memory of one tenant delays neither the shard nor others, and is
// reported once; when accesses return again the tenant's QP continues.
func TestStuckMemory(t *testing.T) {
	for i, op := range []ib.WROpcode{ib.WRWrite, ib.WRRead, ib.WRWrite, ib.WRRead} {
		inline := i < 2
		t.Run(fmt.Sprintf("%v, inline %v", op, inline), func(t *testing.T) {
			w := newStuck(t, inline)
			a := w.tenant.a
			fill(a.buf, 5)
			post := func(bytes int) {
				w.tenant.send(a, ib.SendWR{Opcode: op, SGL: a.sge(0, bytes), RemoteAddr: 0, RKey: w.tenant.b.mr.RKey()})
			}
			post(1 << 16)
			await(t, "the worker is at the memory", w.mem.entered)
			post(1 << 10) // which waits for the next turn
			await(t, "OnStuck", w.stuck)
			if w.mem.inline.Load() != inline {
				t.Errorf("the worker's turn is inline: got %v, want %v", !inline, inline)
			}
			for i := range 20 { // other data, in buffers that may have held the WRITE's
				w.send(w.a, ib.SendWR{ID: uint64(i), Opcode: ib.WRWrite, SGL: w.a.sge(100*i, 1<<15),
					RemoteAddr: w.b.mr.Addr() + 1<<16, RKey: w.b.mr.RKey()})
				if wc := w.wait(w.a); wc.Err() != nil {
					t.Fatal(wc.Err())
				}
			}
			if len(w.stuck) != 0 {
				t.Error("OnStuck came twice")
			}
			close(w.mem.gate)
			for range 2 {
				if wc := w.tenant.wait(a); wc.Err() != nil {
					t.Fatal(wc.Err())
				}
			}
			if op == ib.WRWrite && inline && w.mem.pieces.Load() < 8 { // what is copied becomes one piece or two
				t.Error("the received frames were copied")
			}
			got := make([]byte, 1<<16)
			if err := w.mem.ReadAt(got, 0); err != nil || !bytes.Equal(got, a.buf[:1<<16]) {
				t.Errorf("memory differs: %v", err)
			}
		})
	}
}

// TestCloseStuckMemory: MR.Close returns when the worker does not touch the memory any more, even
// if the worker is closed meanwhile; closing the QP before is safe.
func TestCloseStuckMemory(t *testing.T) {
	for i := range 4 {
		inline, giveUp := i < 2, i%2 == 1
		t.Run(fmt.Sprintf("inline %v, worker closed %v", inline, giveUp), func(t *testing.T) {
			w := newStuck(t, inline)
			a, b := w.tenant.a, w.tenant.b
			w.tenant.send(a, ib.SendWR{ID: 1, Opcode: ib.WRWrite, SGL: a.sge(0, 1<<16), RemoteAddr: 0,
				RKey: b.mr.RKey()})
			await(t, "the worker is at the memory", w.mem.entered)
			if err := b.qp.Close(); err != nil {
				t.Fatal(err)
			}
			gone, err := b.mr.(*device.MR).Deregister()
			if err != nil {
				t.Fatal(err)
			}
			closed := make(chan error, 1)
			go func() { closed <- b.mr.Close() }()
			<-w.stuck
			if giveUp {
				w.worker.Close()
			}
			select {
			case <-gone:
				t.Error("the memory is let go of while a turn touches it")
			case <-w.worker.Done():
				t.Error("the worker is done while a turn touches memory")
			case err := <-closed:
				t.Errorf("MR.Close returns %v while a turn touches the memory, want it to wait", err)
			default:
			}
			if n := b.mr.Len(); n != 1<<16 {
				t.Errorf("the region has %d bytes, want %d", n, 1<<16)
			}
			close(w.mem.gate)
			if err := <-closed; err != nil {
				t.Fatal(err)
			}
			if n := w.mem.within.Load(); n != 0 {
				t.Errorf("after MR.Close: got %d accesses under way, want none", n)
			}
			await(t, "the memory is let go of", gone)
			w.worker.Close()
			await(t, "Done", w.worker.Done())
		})
	}
}

// TestInlineTurns: a shard's loop takes the turns of a worker until slow memory makes the loop sleep;
// then the worker's own goroutine takes them for some time.
func TestInlineTurns(t *testing.T) {
	w := newStuck(t, true)
	a, b := w.tenant.a, w.tenant.b
	write := func() (inline bool) {
		w.tenant.send(a, ib.SendWR{ID: 1, Opcode: ib.WRWrite, SGL: a.sge(0, 1<<16), RemoteAddr: 0, RKey: b.mr.RKey()})
		if wc := w.tenant.wait(a); wc.Err() != nil {
			t.Fatal(wc.Err())
		}
		return w.mem.inline.Load()
	}
	var first bool
	slow := make(chan time.Time, 1) // the turn has taken long enough, and ends later
	go func() {
		<-w.mem.entered
		first = w.mem.inline.Load()
		<-w.stuck
		slow <- time.Now()
		close(w.mem.gate)
	}()
	write()
	begin := <-slow
	if !first {
		t.Error("a turn of a worker whose memory has kept nobody waiting was not inline")
	}
	if write() && time.Since(begin) < 10*time.Millisecond {
		t.Error("a turn of a worker whose memory made the shard sleep was inline")
	}
	for !write() {
		if time.Since(begin) > 20*time.Second {
			t.Fatal("for 20 s no turn was inline again")
		}
	}
}

// TestNoWorker: a tenant's domain without a worker takes direct memory only.
func TestNoWorker(t *testing.T) {
	w := newLive(t, 4096)
	pd, err := w.a.dev.AllocPDFor(silent{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var attr *ib.AttrError
	if _, err := pd.RegMemory(newGated(64), 0, anyAccess); !errors.Is(err, ib.ErrNotSupported) ||
		!errors.As(err, &attr) {
		t.Errorf("%v, want an *ib.AttrError with ErrNotSupported", err)
	}
	m, err := pd.RegMemory(mr.Bytes(make([]byte, 64)), 0, ib.LocalWrite)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
}
