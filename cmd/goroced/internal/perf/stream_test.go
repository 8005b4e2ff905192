package perf

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/goroce/goroce/ib"
)

// queue is a queue pair that takes everything, and keeps what tests look at.
type queue struct {
	ib.QP
	sent    []ib.SendWR // of the last post, as far as there is room
	posts   int
	recvs   int
	keepAll bool
}

func (q *queue) PostSend(wrs []ib.SendWR) (int, error) {
	q.posts++
	if q.keepAll {
		for _, wr := range wrs {
			wr.SGL = append([]ib.SGE(nil), wr.SGL...)
			q.sent = append(q.sent, wr)
		}
	}
	return len(wrs), nil
}

func (q *queue) PostRecv(wrs []ib.RecvWR) (int, error) {
	q.recvs += len(wrs)
	return len(wrs), nil
}

type region struct{ ib.MR }

func (region) Addr() uint64 { return 0x10000 }
func (region) LKey() ib.Key { return 1 }

// bench is an endpoint with queue pairs of no device.
func bench(o *Options) (*endpoint, []*queue) {
	e := &endpoint{o: o, t: o.traits(), mr: region{}, cycle: minCycle, mem: newMemory(nil, o, minCycle),
		stock: make([]int, o.NumQP), local: make([]address, o.NumQP), remote: make([]address, o.NumQP)}
	var queues []*queue
	for range o.NumQP {
		q := &queue{}
		queues = append(queues, q)
		e.qps = append(e.qps, q)
	}
	return e, queues
}

// TestRequests: whatever the options, a queue holds at most its depth, each request
// is in the memory of both ends, a completion stands for the requests since the one
// before, the last request makes one, and posting never gets stuck.
func TestRequests(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := Defaults(Write, BW)
		o.Size = rapid.IntRange(1, 3*minCycle).Draw(t, "size")
		o.TxDepth = rapid.IntRange(1, 200).Draw(t, "depth")
		o.CQMod = rapid.IntRange(1, o.TxDepth).Draw(t, "mod")
		o.PostList = rapid.IntRange(0, o.TxDepth).Draw(t, "list")
		o.Iters = rapid.IntRange(1, 500).Draw(t, "iterations")
		e, queues := bench(&o)
		q := queues[0]
		q.keepAll = true
		s := newStream(e, 0, o.Size, o.CQMod, int64(o.Iters))
		completed := 0
		for s.reaped < int64(o.Iters) {
			if n := s.room(o.TxDepth); n > 0 {
				if err := s.post(n); err != nil {
					t.Fatal(err)
				}
			}
			if s.posted-s.reaped > int64(o.TxDepth) {
				t.Fatalf("%d requests in a queue, want at most its %d", s.posted-s.reaped, o.TxDepth)
			}
			if s.room(o.TxDepth) > 0 {
				continue // a list at a time
			}
			before := completed
			for completed < len(q.sent) {
				wr := &q.sent[completed]
				completed++
				if wr.Flags&ib.SendSignaled != 0 {
					s.reaped += workCount(wr.ID)
					break
				}
			}
			if s.reaped != int64(completed) {
				t.Fatalf("completions stand for %d requests, want %d, from %d on", s.reaped, completed, before)
			}
		}
		for i, wr := range q.sent {
			offset := wr.RemoteAddr - e.remote[0].vaddr
			if wr.SGL[0].Length != uint32(o.Size) || offset+uint64(o.Size) > uint64(max(o.Size, minCycle)) ||
				wr.SGL[0].Addr != e.mr.Addr()+offset {
				t.Fatalf("request %d: %d bytes at %#x to place %#x, want %d inside the cycle", i,
					wr.SGL[0].Length, wr.SGL[0].Addr, offset, o.Size)
			}
		}
		if len(q.sent) != o.Iters {
			t.Fatalf("%d requests, want %d", len(q.sent), o.Iters)
		}
	})
}

func TestWorkID(t *testing.T) {
	for _, kind := range []int{sendID, recvID} {
		for _, qp := range []int{0, 1, maxQP - 1} {
			for _, n := range []int{1, 100, 1 << 15} {
				id := workID(kind, qp, n)
				if workKind(id) != kind || workIndex(id) != qp || workCount(id) != int64(n) {
					t.Errorf("kind %d, queue pair %d, count %d; want %d, %d, %d", workKind(id), workIndex(id),
						workCount(id), kind, qp, n)
				}
			}
		}
	}
}

// TestNoAllocation: posting, completing and receiving messages allocates nothing.
func TestNoAllocation(t *testing.T) {
	for _, change := range []func(*Options){func(*Options) {}, func(o *Options) { o.Inline = 64 },
		func(o *Options) { o.Duration = time.Hour }} {
		o := Defaults(Send, BW)
		o.Size, o.NumQP, o.Bidirectional, o.CQMod = 64, 4, true, 16
		change(&o)
		e, queues := bench(&o)
		x := e.newTransfer(o.Size)
		for _, s := range x.streams {
			s.limit = 0
		}
		now := time.Now()
		x.sent.begin(now, x.stretch())
		x.received.begin(now, x.stretch())
		if err := x.restock(); err != nil {
			t.Fatal(err)
		}
		wcs := make([]ib.WC, 0, 64)
		allocs := testing.AllocsPerRun(1000, func() {
			if err := x.post(); err != nil {
				t.Fatal(err)
			}
			wcs = wcs[:0]
			for qp := range x.streams {
				for range 8 {
					wcs = append(wcs, ib.WC{ID: workID(sendID, qp, o.CQMod)},
						ib.WC{ID: workID(recvID, qp, 1), ByteLen: uint32(o.Size)})
				}
			}
			if err := x.account(wcs); err != nil {
				t.Fatal(err)
			}
		})
		if allocs != 0 {
			t.Errorf("%v allocations a turn, want none", allocs)
		}
		if queues[3].posts == 0 || queues[3].recvs <= o.RxDepth || x.reaped == 0 || x.arrived == 0 {
			t.Errorf("nothing was done: %d posts, %d receives; want some, and more than %d", queues[3].posts,
				queues[3].recvs, o.RxDepth)
		}
	}
}

// TestNoAllocationOfLatency: nor does a message to and fro.
func TestNoAllocationOfLatency(t *testing.T) {
	o := Defaults(Send, Lat)
	o.Duration = time.Hour
	e, _ := bench(&o)
	v := e.newVolley(o.Size)
	if err := v.restock(); err != nil {
		t.Fatal(err)
	}
	allocs := testing.AllocsPerRun(1000, func() {
		v.out.reaped = v.out.posted
		v.stock[0]--
		if err := v.send(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations a message, want none", allocs)
	}
}

// TestPlaces: small messages go round a page, a cache line apart.
func TestPlaces(t *testing.T) {
	for _, c := range []struct{ size, n, step int }{
		{1, 64, 64}, {64, 64, 64}, {65, 32, 128}, {2048, 2, 2048}, {2049, 1, 2112}, {1 << 20, 1, 1 << 20},
	} {
		if n, step := places(c.size, minCycle); n != c.n || step != c.step {
			t.Errorf("%d bytes: %d places, %d apart; want %d, %d", c.size, n, step, c.n, c.step)
		}
	}
}

// TestPollByte sees the byte, and no other.
func TestPollByte(t *testing.T) {
	buf := ib.Alloc(nil, 16)
	for i := range buf {
		p := newPollByte(&buf[i])
		for j := range buf {
			buf[j] = byte(j) + 1
		}
		if got := p.load(); got != byte(i)+1 {
			t.Errorf("byte %d is %d, want %d", i, got, byte(i)+1)
		}
	}
}
