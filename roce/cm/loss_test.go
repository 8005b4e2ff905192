package cm

import (
	"fmt"
	"slices"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/wire"
)

// A connection is made and ended while the first two copies of one message are lost. Both ends get all their events,
// each once.
func TestLostMessage(t *testing.T) {
	for _, test := range []struct {
		from string
		attr wire.CMAttr
		want []string
	}{
		{"A", wire.AttrREQ, []string{"A REQ lost", "A REQ lost", "A REQ", "B REP", "A RTU", "A DREQ", "B DREP"}},
		// After 200 ms both ends retransmit, and the copy of the REQ is answered by a REP, too.
		{"B", wire.AttrREP, []string{"A REQ", "B REP lost", "A REQ", "B REP lost", "B REP", "A RTU", "A DREQ",
			"B DREP"}},
		{"A", wire.AttrRTU, []string{"A REQ", "B REP", "A RTU lost", "B REP", "A RTU lost", "B REP", "A RTU", "A DREQ",
			"B DREP"}},
		{"A", wire.AttrDREQ, []string{"A REQ", "B REP", "A RTU", "A DREQ lost", "A DREQ lost", "A DREQ", "B DREP"}},
		{"B", wire.AttrDREP, []string{"A REQ", "B REP", "A RTU", "A DREQ", "B DREP lost", "A DREQ", "B DREP lost",
			"A DREQ", "B DREP"}},
	} {
		t.Run(test.attr.String(), func(t *testing.T) {
			w := newWorld(t, 2, Options{})
			A, B := w.hosts[0], w.hosts[1]
			w.loseFirst(w.hosts[test.from[0]-'A'], test.attr, 2)
			B.listen(testService, false)
			a, err := A.Connect(w.now, A.wish(B))
			w.check(err)
			b := B.wait(Request).ID
			_, err = B.Accept(w.now, b, consent())
			w.check(err)
			A.wait(Replied)
			w.check(A.Confirm(w.now, a, nil))
			B.wait(Established)
			w.check(A.Disconnect(w.now, a, nil))
			A.wait(Disconnected)
			B.event(Disconnected)
			w.pass(4 * second)
			A.event(TimewaitExit)
			B.event(TimewaitExit)
			w.want(test.want...)
			w.empty()
		})
	}
}

// The first retransmission is after 200 ms; the interval doubles up to 1.6 s. The sender gives up after 15
// retransmissions, or at GiveUp if that is earlier.
func TestGiveUp(t *testing.T) {
	for _, test := range []struct {
		giveUp, took ib.Instant // from now
		sent         int
	}{
		{driver.Never, 22200 * millisecond, 16},
		{0, 22200 * millisecond, 16},
		{100 * millisecond, 100 * millisecond, 1},
		{3 * second, 3 * second, 4}, // at 0, 200, 600 and 1400 ms
		{60 * second, 60 * second, 40},
	} {
		for _, waited := range []string{"REQ", "SIDR_REQ"} {
			t.Run(fmt.Sprintf("%s/%d", waited, test.giveUp), func(t *testing.T) {
				w := newWorld(t, 2, Options{})
				A := w.hosts[0]
				giveUp := test.giveUp
				if giveUp != driver.Never && giveUp != 0 {
					giveUp += w.now
				}
				start := w.now
				nobody := Path{Local: A.gid, Remote: gidOf(99)}
				var err error
				if waited == "REQ" {
					c := A.wish(A)
					c.Path, c.GiveUp = nobody, giveUp
					_, err = A.Connect(w.now, c)
				} else {
					_, err = A.Resolve(w.now, Resolve{Path: nobody, ServiceID: 1, GiveUp: giveUp})
				}
				w.check(err)
				for len(A.events) == 0 {
					w.settle()
					w.now = A.Deadline()
					A.Timeout(w.now)
					A.takeEvents()
				}
				if took := w.now - start; took != test.took {
					t.Errorf("it took %d ms, want %d", took/millisecond, test.took/millisecond)
				}
				e := A.event(Unreachable)
				if e.Waited != waited || e.Sent != test.sent || e.Datagram != (waited == "SIDR_REQ") {
					t.Errorf("event %+v, want %d sent", e, test.sent)
				}
				w.settle()
				if last := w.log[len(w.log)-1]; waited == "REQ" && last != "A REJ" {
					t.Errorf("the last message is %q, want A REJ, which tells the peer", last)
				}
				if n := int(A.stats.Sent.Of(wire.AttrREQ) + A.stats.Sent.Of(wire.AttrSIDRREQ)); n != e.Sent {
					t.Errorf("%d were sent, want %d as the event says", n, e.Sent)
				}
				w.empty()
			})
		}
	}
}

// A REJ with reason timeout ends the request at a peer that has not answered yet. The peer finds it by the GUID, for
// the sender does not know the peer's ID.
func TestTimeoutTellsPeer(t *testing.T) {
	w := newWorld(t, 2, Options{})
	A, B := w.hosts[0], w.hosts[1]
	B.listen(testService, false)
	c := A.wish(B)
	c.GiveUp = w.now + second
	_, err := A.Connect(w.now, c)
	w.check(err)
	B.event(Request)
	w.pass(2 * second)
	A.event(Unreachable)
	B.event(Dropped)
	w.want("A REQ", "A REQ", "A REQ", "A REJ")
	w.empty()
}

// The acceptor gives up when no RTU comes, and the other end handles the REJ in every state.
func TestNoRTU(t *testing.T) {
	for _, repLost := range []bool{true, false} {
		w := newWorld(t, 2, Options{Retries: 3})
		A, B := w.hosts[0], w.hosts[1]
		B.listen(testService, false)
		w.lose = func(from *host, attr wire.CMAttr) bool { return repLost && attr == wire.AttrREP }
		c := A.wish(B)
		c.GiveUp = w.now + 600*second
		_, err := A.Connect(w.now, c)
		w.check(err)
		b := B.event(Request).ID
		w.now += 50 * millisecond // the two ends do not resend in step
		_, err = B.Accept(w.now, b, consent())
		w.check(err)
		w.pass(10 * second)
		if e := B.event(Unreachable); e.Waited != "REP" || e.Sent != 4 {
			t.Errorf("event %+v, want REP, 4 times", e)
		}
		if !repLost {
			A.event(Replied)
		}
		if e := A.event(Rejected); e.Reason != ib.RejectTimeout {
			t.Errorf("event %+v, want %v", e, ib.RejectTimeout)
		}
		w.empty()
	}
}

// A peer that does not answer cannot prevent the end of a connection.
func TestNoDREP(t *testing.T) {
	w := newWorld(t, 2, Options{})
	a, _ := w.connect()
	A := w.hosts[0]
	w.lose = func(*host, wire.CMAttr) bool { return true }
	w.check(A.Disconnect(w.now, a, nil))
	w.pass(22 * second)
	w.quiet()
	w.pass(300 * millisecond)
	A.event(Disconnected)
	w.pass(second)
	A.event(TimewaitExit)
	if s := A.leftover(); s != "" {
		t.Fatal("A holds", s)
	}
}

// Delay tells the peer to wait: it does not retransmit before that time.
func TestDelay(t *testing.T) {
	w := newWorld(t, 2, Options{})
	A, B := w.hosts[0], w.hosts[1]
	B.listen(testService, false)
	a, b := w.request()
	w.check(B.Delay(w.now, b, 10*second))
	w.want("A REQ", "B MRA")
	w.pass(5 * second)
	w.want()
	w.pass(2 * second) // A repeats the REQ, in case the answer was lost
	w.want("A REQ", "B MRA")
	_, err := B.Accept(w.now, b, consent())
	w.check(err)
	A.event(Replied)
	w.check(A.Delay(w.now, a, 2*second))
	w.pass(2 * second)
	w.want("B REP", "A MRA")
	w.check(A.Confirm(w.now, a, nil))
	B.event(Established)
	w.want("A RTU")
	w.quiet()
}

// A peer cannot make us wait for a long time by one MRA.
func TestDelayBounded(t *testing.T) {
	w := newWorld(t, 2, Options{})
	A, B := w.hosts[0], w.hosts[1]
	B.listen(testService, false)
	_, b := w.request()
	w.check(B.Delay(w.now, b, 3600*second))
	w.settle()
	if wait := A.Deadline() - w.now; wait != 5*second+200*millisecond {
		t.Fatalf("A waits %d ms, want 5,200", wait/millisecond)
	}
}

// A request that is not answered is dropped when its sender has given up: after 16 times the response timeout in the
// REQ, at most 75 s.
func TestRequestLife(t *testing.T) {
	for code, want := range map[uint8]ib.Instant{10: 16 * 4096 << 10, 18: 16 * 4096 << 18, 20: 16 * 4096 << 20,
		21: 75 * second, 31: 75 * second} {
		m := New(Options{})
		if got := m.requestLife(&wire.REQ{RemoteResponseTimeout: code, MaxCMRetries: 15}); got != want {
			t.Errorf("response timeout %d: %d ns, want %d", code, got, want)
		}
	}
	w := newWorld(t, 2, Options{})
	A, B := w.hosts[0], w.hosts[1]
	B.listen(testService, false)
	a, err := A.Connect(w.now, A.wish(B))
	w.check(err)
	B.event(Request)
	w.lose = func(from *host, attr wire.CMAttr) bool { return attr == wire.AttrREJ }
	w.pass(30 * second)
	if e := A.event(Unreachable); e.ID != a {
		t.Fatal(e)
	}
	w.quiet()
	w.pass(45 * second)
	B.event(Dropped)
	w.empty()
}

// Each message is repeated at each later point of a connection: the only effect is an answer to the copy.
func TestReplays(t *testing.T) {
	w := newWorld(t, 2, Options{})
	A, B := w.hosts[0], w.hosts[1]
	B.listen(testService, false)
	var a, b ID
	var err error
	for _, step := range []struct {
		name string
		do   func()
	}{
		{"Connect", func() { a, err = A.Connect(w.now, A.wish(B)); b = B.event(Request).ID }},
		{"Delay", func() { err = B.Delay(w.now, b, second) }},
		{"Accept", func() { _, err = B.Accept(w.now, b, consent()); A.event(Replied) }},
		{"Delay", func() { err = A.Delay(w.now, a, second) }},
		{"Confirm", func() { err = A.Confirm(w.now, a, nil); B.event(Established) }},
		{"Disconnect", func() { err = A.Disconnect(w.now, a, nil); A.event(Disconnected); B.event(Disconnected) }},
		{"", func() {}},
	} {
		step.do()
		w.check(err)
		w.settle()
		stateA, stateB := A.conns[a].state, B.conns[b].state
		for _, m := range slices.Clone(w.sent) {
			for range 3 {
				w.carry(m.from, m.Message)
			}
		}
		w.quiet()
		if A.conns[a].state != stateA || B.conns[b].state != stateB {
			t.Fatalf("after %s, copies of old messages changed states: A from %v to %v, B from %v to %v", step.name,
				stateA, A.conns[a].state, stateB, B.conns[b].state)
		}
	}
	w.pass(4 * second)
	A.event(TimewaitExit)
	B.event(TimewaitExit)
	w.empty()
}

// If the REJ of a REP is lost, the passive end repeats the REP, and the active end answers that it has no such
// connection (IBTA 12.6.7.2, reason 6; Linux is silent then).
func TestLostREJOfREP(t *testing.T) {
	w := newWorld(t, 2, Options{})
	A, B := w.hosts[0], w.hosts[1]
	w.loseFirst(A, wire.AttrREJ, 1)
	B.listen(testService, false)
	a, b := w.request()
	_, err := B.Accept(w.now, b, consent())
	w.check(err)
	A.wait(Replied)
	w.check(A.Reject(w.now, a, ib.RejectConsumer, nil, nil))
	if e := B.wait(Rejected); e.Reason != ib.RejectInvalidCommID {
		t.Errorf("rejected for %v, want %v", e.Reason, ib.RejectInvalidCommID)
	}
	w.want("A REQ", "B REP", "A REJ lost", "B REP", "A REJ")
	w.pass(ib.Instant(10 * second))
	w.empty()
}
