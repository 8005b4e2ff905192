package cm

import (
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/wire"
)

// restart makes h lose all state, like a host that restarts.
func (h *host) restart(seed uint64) {
	o := h.opts
	o.Seed = seedOf(seed)
	h.Manager = New(o)
}

// A host restarts and connects with a QP number that it has used before. The other end detects that and ends the old
// connection, and the next REQ succeeds.
func TestStaleREQ(t *testing.T) {
	w := newWorld(t, 2, Options{})
	_, b := w.connect()
	A, B := w.hosts[0], w.hosts[1]
	A.restart(99)
	_, err := A.Connect(w.now, A.wish(B))
	w.check(err)
	if e := A.event(Rejected); e.Reason != ib.RejectStale {
		t.Fatalf("%+v, want %v", e, ib.RejectStale)
	}
	if e := B.event(Disconnected); e.ID != b {
		t.Fatalf("%+v, want ID %v", e, b)
	}
	w.want("A REQ", "B REJ", "B DREQ", "A DREP")

	// B is in timewait, but the number is free again.
	_, err = A.Connect(w.now, A.wish(B))
	w.check(err)
	B.event(Request)
	w.want("A REQ")
	// When B leaves timewait, the QP number still belongs to the new connection.
	w.pass(second)
	B.event(TimewaitExit)
	w.log = nil
	A.restart(100)
	_, err = A.Connect(w.now, A.wish(B))
	w.check(err)
	B.event(Dropped)
	A.event(Rejected)
	w.want("A REQ", "B REJ")
	if B.stats.Stale != 2 {
		t.Fatalf("%+v, want 2 stale", B.stats)
	}
}

// A REQ of another host that names the same QP, of the same GUID even, ends nothing.
func TestNotStale(t *testing.T) {
	w := newWorld(t, 3, Options{})
	a, b := w.connect()
	A, B, C := w.hosts[0], w.hosts[1], w.hosts[2]
	C.opts.GUID = A.opts.GUID
	_, err := C.Connect(w.now, C.wish(B))
	w.check(err)
	if e := B.event(Request); e.ID == b || e.Path.Remote != C.gid {
		t.Fatalf("%+v, want another ID than %v, from %v", e, b, C.gid)
	}
	w.want("C REQ")
	w.quiet()
	for id, h := range map[ID]*host{a: A, b: B} {
		if s := h.conns[id].state; s != established {
			t.Fatalf("%s is in %v, want %v", h.name, s, established)
		}
	}
}

// The restarted host accepts with a QP number that is part of an old connection of the connector.
func TestStaleREP(t *testing.T) {
	w := newWorld(t, 2, Options{})
	old, _ := w.connect()
	A, B := w.hosts[0], w.hosts[1]
	B.restart(99)
	B.listen(testService, false)
	c := A.wish(B)
	c.QPN++
	a, err := A.Connect(w.now, c)
	w.check(err)
	_, err = B.Accept(w.now, B.event(Request).ID, consent())
	w.check(err)
	if e := A.event(Disconnected); e.ID != old {
		t.Fatalf("%+v, want ID %v", e, old)
	}
	if e := B.event(Rejected); e.Reason != ib.RejectStale {
		t.Fatalf("%+v, want %v", e, ib.RejectStale)
	}
	w.want("A REQ", "B REP", "A REJ", "A DREQ", "B DREP")

	// A keeps asking, and B may try again.
	b := B.wait(Request).ID
	A.event(TimewaitExit)
	_, err = B.Accept(w.now, b, consent())
	w.check(err)
	if e := A.event(Replied); e.ID != a {
		t.Fatalf("%+v, want ID %v", e, a)
	}
}

// A connector gives up and connects again with the same QP, while the old request still waits: the old one is dropped.
func TestStaleRequest(t *testing.T) {
	w := newWorld(t, 2, Options{})
	A, B := w.hosts[0], w.hosts[1]
	B.listen(testService, false)
	a, old := w.request()
	w.loseFirst(A, wire.AttrREJ, 1)
	A.Release(w.now, a)
	_, err := A.Connect(w.now, A.wish(B))
	w.check(err)
	if e := B.event(Dropped); e.ID != old {
		t.Fatalf("%+v, want ID %v", e, old)
	}
	A.event(Rejected)
	_, err = A.Connect(w.now, A.wish(B))
	w.check(err)
	B.event(Request)
	w.want("A REQ", "A REJ lost", "A REQ", "B REJ", "A REQ")
}

// A copy of a REQ that arrives when its connection has ended does not create another.
func TestLateREQ(t *testing.T) {
	w := newWorld(t, 2, Options{})
	a, _ := w.connect()
	A, B := w.hosts[0], w.hosts[1]
	req := w.sent[0]
	w.check(A.Disconnect(w.now, a, nil))
	A.event(Disconnected)
	B.event(Disconnected)
	w.log = nil
	w.carry(req.from, req.Message)
	w.want("A REQ", "B REJ")
	w.quiet()
}

// The peer's first data arrive before the RTU, or the RTU is lost.
func TestDataArrived(t *testing.T) {
	w := newWorld(t, 2, Options{})
	A, B := w.hosts[0], w.hosts[1]
	w.loseFirst(A, wire.AttrRTU, 100)
	B.listen(testService, false)
	a, b := w.request()
	B.DataArrived(w.now, b) // too early to mean anything
	w.quiet()
	conn, err := B.Accept(w.now, b, consent())
	w.check(err)
	A.event(Replied)
	w.check(A.Confirm(w.now, a, nil))
	w.settle()
	B.DataArrived(w.now, b)
	B.DataArrived(w.now, b)
	if e := B.event(Established); e.Conn != conn || e.PrivateData != nil {
		t.Fatalf("%+v, want %v and no private data", e, conn)
	}
	w.pass(10 * second)
	w.want("A REQ", "B REP", "A RTU lost") // the REP is not sent again
	w.quiet()
}

// A manager connects to itself: both ends in one.
func TestSelf(t *testing.T) {
	w := newWorld(t, 1, Options{})
	A := w.hosts[0]
	A.listen(testService, false)
	a, err := A.Connect(w.now, A.wish(A))
	w.check(err)
	b := A.event(Request).ID
	_, err = A.Accept(w.now, b, consent())
	w.check(err)
	A.event(Replied)
	w.check(A.Confirm(w.now, a, nil))
	if e := A.event(Established); e.ID != b {
		t.Fatalf("%+v, want ID %v", e, b)
	}
	w.check(A.Disconnect(w.now, b, nil))
	A.event(Disconnected)
	A.event(Disconnected)
	w.pass(4 * second)
	A.event(TimewaitExit)
	A.event(TimewaitExit)
	w.empty()
}

// Both ends disconnect at once: the DREQs cross.
func TestBothDisconnect(t *testing.T) {
	w := newWorld(t, 2, Options{})
	a, b := w.connect()
	A, B := w.hosts[0], w.hosts[1]
	w.check(A.Disconnect(w.now, a, nil))
	w.check(B.Disconnect(w.now, b, nil))
	A.event(Disconnected)
	B.event(Disconnected)
	w.pass(4 * second)
	A.event(TimewaitExit)
	B.event(TimewaitExit)
	w.empty()
}

// Timewait is twice the local ACK timeout, within 1 ms and 4 s.
func TestTimewait(t *testing.T) {
	for code, want := range map[uint8]ib.Instant{0: millisecond, 10: 2 * 4096 << 10, 16: 2 * 4096 << 16, 19: 4 * second,
		31: 4 * second} {
		w := newWorld(t, 2, Options{})
		A, B := w.hosts[0], w.hosts[1]
		B.listen(testService, false)
		c := A.wish(B)
		c.AckTimeout = code
		a, err := A.Connect(w.now, c)
		w.check(err)
		_, err = B.Accept(w.now, B.event(Request).ID, consent())
		w.check(err)
		A.event(Replied)
		w.check(A.Confirm(w.now, a, nil))
		w.check(A.Disconnect(w.now, a, nil))
		A.event(Disconnected)
		if got := A.Deadline() - w.now; got != want {
			t.Errorf("ACK timeout code %d: timewait is %d ns, want %d", code, got, want)
		}
	}
}

// IDs in use differ from one another, hardly any is that of a manager with another seed,
// and none says what the next one will be.
func TestIDs(t *testing.T) {
	const n = 50_000
	seen, ordered, shared := map[ID]bool{}, 0, 0
	for seed := range uint64(2) {
		m := New(Options{Seed: seedOf(seed)})
		last := ID(0)
		for range n {
			id := m.add(Path{}).id
			switch {
			case id == 0:
				t.Fatalf("seed %d: ID 0, want another", seed)
			case seen[id]:
				shared++
			case id == last+1:
				ordered++
			}
			seen[id], last = true, id
		}
		if len(m.conns) != n {
			t.Errorf("seed %d: %d connections, want %d", seed, len(m.conns), n)
		}
	}
	if ordered > 2 || shared > 8 { // expected: 0 and 1
		t.Errorf("%d IDs follow their predecessors, %d are the other manager's, want at most 2 and 8", ordered, shared)
	}
	if a, b := New(Options{Seed: seedOf(5)}).newID(), New(Options{Seed: seedOf(5)}).newID(); a != b {
		t.Error("one seed gives two sequences")
	}
}
