package cm

import (
	"errors"
	"runtime"
	"slices"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/wire"
)

// flood sends h n REQs from one address, each with another QP and communication ID.
func flood(h *host, from ib.GID, first, n int) {
	path := Path{Local: h.gid, Remote: from}
	for i := first; i < first+n; i++ {
		req := wire.REQ{LocalID: uint32(i), ServiceID: 1, CAGUID: 7, QPN: ib.QPN(i + 2), PathMTU: 1024,
			RemoteResponseTimeout: 20, MaxCMRetries: 15}
		req.Primary.RemoteGID = h.gid
		var mad [wire.MADLen]byte
		format(&mad, wire.AttrREQ, 1, &req)
		h.Handle(h.w.now, path, mad[:])
	}
}

// A flood of requests uses bounded memory. The oldest are evicted; the consumer and their senders are told.
func TestFlood(t *testing.T) {
	for _, test := range []struct {
		name              string
		sources, each     int
		wantHeld, dropped int
	}{
		{"one source", 1, 1000, 20, 980},
		{"two sources", 2, 1000, 40, 1960},
		{"many sources", 1000, 1, 50, 950},
		{"below the bounds", 5, 10, 50, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, 1, Options{MaxHalfOpen: 50, MaxHalfOpenSource: 20})
			A := w.hosts[0]
			A.listen(1, false)
			requests := 0
			for i := range test.each {
				for s := range test.sources {
					flood(A, ib.GID{0: 0x20, 14: byte(s >> 8), 15: byte(s)}, i, 1)
					w.settle()
				}
			}
			newest := ID(0)
			for _, e := range A.events {
				switch e.Kind {
				case Request:
					requests, newest = requests+1, e.ID
				case Dropped:
					if e.ID == newest {
						t.Fatal("the newest was dropped")
					}
				default:
					t.Fatalf("event %v", e)
				}
			}
			if held := len(A.conns); held != test.wantHeld || A.half.Len() != held || len(A.byRemote) != held ||
				len(A.byQP) != held {
				t.Errorf("it holds %d, want %d; %s", held, test.wantHeld, A.leftover())
			}
			if n := int(A.stats.HalfOpenDropped); n != test.dropped || len(A.events) != requests+n {
				t.Errorf("%d dropped, want %d; %d events, %d requests", n, test.dropped, len(A.events), requests)
			}
			for _, m := range w.sent {
				if d := describe(&m.MAD); d != "REJ(REQ:3)" {
					t.Fatal("it sent", d)
				}
			}
			if len(w.sent) != test.dropped {
				t.Errorf("%d messages, want one for each dropped", len(w.sent))
			}
		})
	}
}

// A flood from one source does not evict another source's request.
func TestFloodSpares(t *testing.T) {
	w := newWorld(t, 2, Options{MaxHalfOpen: 50, MaxHalfOpenSource: 20})
	A, B := w.hosts[0], w.hosts[1]
	B.listen(testService, false)
	B.listen(1, false)
	a, b := w.request()
	flood(B, gidOf(50), 0, 500)
	w.settle()
	B.events = nil
	_, err := B.Accept(w.now, b, consent())
	w.check(err)
	if e := A.event(Replied); e.ID != a {
		t.Fatal(e)
	}
	// An established connection is not half open any more.
	w.check(A.Confirm(w.now, a, nil))
	B.event(Established)
	for source := range 100 {
		flood(B, gidOf(100+source), source*1000, 10)
		w.settle()
	}
	if B.conns[b].state != established {
		t.Fatal("the connection is gone")
	}
}

// TestFloodOfFew: whoever asks once gets in beside a few that flood, however much they send meanwhile.
func TestFloodOfFew(t *testing.T) {
	w := newWorld(t, 2, Options{MaxHalfOpen: 50, MaxHalfOpenSource: 20})
	A, B := w.hosts[0], w.hosts[1]
	B.listen(testService, false)
	B.listen(1, false)
	deluge := func(first int) {
		for source := range 8 {
			flood(B, gidOf(100+source), first, 100)
			w.settle()
		}
	}
	deluge(0)
	B.events = nil
	a, err := A.Connect(w.now, A.wish(B))
	w.check(err)
	w.settle()
	i := slices.IndexFunc(B.events, func(e Event) bool { return e.Kind == Request })
	if i < 0 {
		t.Fatalf("events %v, want a Request", B.events)
	}
	b := B.events[i].ID
	deluge(1000)
	B.events = nil
	_, err = B.Accept(w.now, b, consent())
	w.check(err)
	deluge(2000)
	if e := A.event(Replied); e.ID != a {
		t.Errorf("connection %v got the REP, want %v", e.ID, a)
	}
}

// An accepted connection that waits for the RTU is half open, too; when it is evicted, its consumer gets Unreachable.
func TestFloodAccepted(t *testing.T) {
	w := newWorld(t, 1, Options{MaxHalfOpenSource: 1})
	A := w.hosts[0]
	A.listen(1, false)
	flood(A, gidOf(9), 0, 1)
	id := A.event(Request).ID
	_, err := A.Accept(w.now, id, consent())
	w.check(err)
	flood(A, gidOf(9), 1, 1)
	if e := A.event(Unreachable); e.ID != id || e.Waited != "REP" || e.Sent != 1 {
		t.Fatalf("%+v, want ID %v, one REP", e, id)
	}
	A.event(Request)
	w.want("A REP", "A REJ")
}

// Messages and events that are not taken out are limited: later input is dropped, as on a lossy network.
func TestOverrun(t *testing.T) {
	w := newWorld(t, 1, Options{})
	A := w.hosts[0]
	A.listen(1, false)
	for i := range 5000 {
		flood(A, ib.GID{0: 0x20, 14: byte(i >> 8), 15: byte(i)}, 0, 1)
	}
	if A.Manager.events.len() > queueRoom+2 || A.stats.Overrun == 0 {
		t.Fatalf("%d events; %+v; want at most %d, and some overrun", A.Manager.events.len(), A.stats, queueRoom+2)
	}
	// Timeouts respect the limit, too, and lose nothing.
	w.now = A.Deadline()
	A.Timeout(w.now)
	if A.Deadline() > w.now {
		t.Fatal("a full queue took all timeouts")
	}
	for A.Deadline() != driver.Never {
		w.now = A.Deadline()
		A.takeEvents()
		A.Timeout(w.now)
	}
	A.takeEvents()
	dropped := 0
	for _, e := range A.events {
		if e.Kind == Dropped {
			dropped++
		}
	}
	if dropped*2 != len(A.events) {
		t.Fatalf("%d of %d events are Dropped, want half", dropped, len(A.events))
	}
	A.events = nil
	w.empty()
}

// A queue that is never empty does not grow.
func TestQueue(t *testing.T) {
	var q queue[int]
	put, out := 0, 0
	for range 3 {
		q.put(put)
		put++
	}
	for range 10_000 {
		q.put(put)
		put++
		var got int
		if !q.next(&got) || got != out || q.len() != 3 {
			t.Fatalf("got %d, want %d; %d left", got, out, q.len())
		}
		out++
	}
	if n := cap(q.items); n > 32 {
		t.Fatalf("three items take room for %d, want at most 32", n)
	}
}

// IDs are bounded; timewait makes room for what is new.
func TestMaxConns(t *testing.T) {
	w := newWorld(t, 2, Options{MaxConns: 4, MaxTimewait: 3})
	A, B := w.hosts[0], w.hosts[1]
	B.listen(testService, false)
	wish := A.wish(B)
	next := func() (ID, error) {
		wish.QPN++
		return A.Connect(w.now, wish)
	}
	var ids []ID
	for range 4 {
		id, err := next()
		w.check(err)
		ids = append(ids, id)
		p := consent()
		p.QPN = wish.QPN
		_, err = B.Accept(w.now, B.event(Request).ID, p)
		w.check(err)
		A.event(Replied)
		w.check(A.Confirm(w.now, id, nil))
		B.event(Established)
	}
	if _, err := next(); !errors.Is(err, ErrLimit) {
		t.Fatal("the fifth:", err)
	}
	if _, err := A.Resolve(w.now, Resolve{Path: A.pathTo(B)}); !errors.Is(err, ErrLimit) {
		t.Fatal("Resolve:", err)
	}
	flood(B, gidOf(40), 0, 1)
	w.settle()
	if B.listen(1, false); B.stats.NoListener != 1 {
		t.Fatal(B.stats)
	}
	flood(B, gidOf(40), 0, 1)
	w.settle()
	if d := describe(&w.sent[len(w.sent)-1].MAD); d != "REJ(REQ:3)" || B.stats.NoResources != 1 {
		t.Fatal("the answer is", d, B.stats)
	}

	for _, id := range ids {
		w.check(A.Disconnect(w.now, id, nil))
		w.settle()
	}
	// Four are in timewait, where the limit is three: the oldest has left.
	for _, h := range w.hosts {
		exits := 0
		for _, e := range h.events {
			if e.Kind == TimewaitExit {
				exits++
			}
		}
		if exits != 1 || h.waiting.Len() != 3 || h.stats.TimewaitDropped != 1 {
			t.Fatalf("%s: %d left timewait; %+v; want 1, 3 waiting, 1 dropped", h.name, exits, h.stats)
		}
		h.events = nil
	}
	_, err := next()
	w.check(err)
	_, err = next()
	w.check(err)
	if e := A.event(TimewaitExit); e.ID != ids[1] {
		t.Fatal(e)
	}
}

// Ten thousand connections one after the other, and as many at a time, leave
// nothing behind.
func TestNothingLeft(t *testing.T) {
	w := newWorld(t, 2, Options{})
	A, B := w.hosts[0], w.hosts[1]
	B.listen(testService, false)
	wish := A.wish(B)
	const n = 10_000
	cycle := func() {
		wish.QPN++
		a, err := A.Connect(w.now, wish)
		w.check(err)
		p := consent()
		p.QPN = wish.QPN
		_, err = B.Accept(w.now, B.event(Request).ID, p)
		w.check(err)
		A.event(Replied)
		w.check(A.Confirm(w.now, a, nil))
		B.event(Established)
	}
	hangUp := func() {
		for id := range A.conns {
			A.Release(w.now, id)
			w.settle()
		}
		w.log, w.sent, A.events, B.events = nil, nil, nil, nil
	}
	for range n {
		cycle()
		hangUp()
		w.pass(second)
		w.log, w.sent, A.events, B.events = nil, nil, nil, nil
	}
	w.empty()
	before := heapInUse()
	for range n {
		cycle()
	}
	held := (heapInUse() - before) / n
	if len(A.conns) != n || len(B.conns) != n {
		t.Fatalf("%d and %d connections, want %d", len(A.conns), len(B.conns), n)
	}
	hangUp()
	w.pass(4 * second)
	A.events, B.events = nil, nil
	w.empty()
	t.Logf("a connection takes %d bytes, the two ends and the test's record of the messages", held)
}

func heapInUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
