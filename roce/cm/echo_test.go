package cm

import (
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/wire"
)

// TestEcho: who asks what has become of a REQ is told in its REJ; who does not ask, or asks somebody without a clock,
// gets the REJ alone. Copies of a question do not count, and sessions are bounded.
func TestEcho(t *testing.T) {
	w := newWorld(t, 3, Options{Wall: func() int64 { return 77 }})
	A, B, C := w.hosts[0], w.hosts[1], w.hosts[2]
	C.opts.Wall = nil
	ask := func(to *host, session, nonce uint64, ecn wire.ECN) (a wire.EchoAnswer, ok bool) {
		t.Helper()
		c := A.wish(to)
		c.ServiceID, c.Path.TrafficClass = wire.EchoService, uint8(ecn)
		c.PrivateData = (&wire.EchoAsk{Session: session, Nonce: nonce}).Append(nil)
		_, err := A.Connect(w.now, c)
		w.check(err)
		e := A.event(Rejected)
		if e.Reason != ib.RejectInvalidServiceID {
			t.Fatalf("got %+v, want REJ with reason %v", e, ib.RejectInvalidServiceID)
		}
		return a, a.Decode(e.PrivateData)
	}
	for i, want := range []wire.EchoAnswer{
		{Nonce: 1, ECN: wire.ECT0, Received: 1, Wall: 77}, {Nonce: 2, ECN: wire.CE, Received: 2, Wall: 77},
		{Nonce: 2, ECN: wire.CE, Received: 2, Wall: 77}, {Nonce: 4, Received: 3, Wall: 77},
	} {
		if a, ok := ask(B, 9, want.Nonce, want.ECN); !ok || a != want {
			t.Errorf("question %d: got %+v, %v; want %+v", i, a, ok, want)
		}
	}
	if a, ok := ask(C, 9, 1, wire.ECT0); ok {
		t.Errorf("got %+v of a host without a clock, want no answer", a)
	}
	if _, ok := ask(B, 10, 4, 0); !ok || len(B.echoes) != 2 {
		t.Errorf("%d sessions, want 2", len(B.echoes))
	}
	for i := range uint64(200) {
		if a, ok := ask(B, 100+i, 0, 0); !ok || a.Received != 1 || len(B.echoes) > echoSessions {
			t.Fatalf("session %d: got %+v, %v, and %d sessions; want 1 received, at most %d sessions", i, a, ok,
				len(B.echoes), echoSessions)
		}
	}
	if a, _ := ask(B, 9, 5, 0); a.Received != 1 {
		t.Errorf("got %+v, want that the session is forgotten", a)
	}
	c := A.wish(B) // for the same service, with other private data
	c.ServiceID, c.PrivateData = wire.EchoService, []byte("GOEQ")
	_, err := A.Connect(w.now, c)
	w.check(err)
	if a := new(wire.EchoAnswer); a.Decode(A.event(Rejected).PrivateData) {
		t.Errorf("got %+v for what is no question, want no answer", a)
	}
}
