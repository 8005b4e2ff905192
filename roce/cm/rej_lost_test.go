package cm

import (
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/wire"
)

// A REJ is sent once, and the rejected request is forgotten (Linux's cm_reset_to_idle). If the
// REJ is lost, the peer repeats the REQ, which raises Request again (in Linux, too:
// cm_dup_req_handler does not find the old request).
func TestLostREJOfREQ(t *testing.T) {
	w := newWorld(t, 2, Options{})
	A, B := w.hosts[0], w.hosts[1]
	w.loseFirst(B, wire.AttrREJ, 2)
	B.listen(testService, false)
	_, err := A.Connect(w.now, A.wish(B))
	w.check(err)
	for range 3 {
		w.check(B.Reject(w.now, B.wait(Request).ID, wire.RejectConsumer, nil, []byte("no")))
	}
	if e := A.wait(Rejected); e.Reason != wire.RejectConsumer {
		t.Errorf("rejected for %v", e.Reason)
	}
	w.want("A REQ", "B REJ lost", "A REQ", "B REJ lost", "A REQ", "B REJ")
	w.empty()
}

// If the REJ of a REP is lost, the passive end repeats the REP, and the active end answers that
// it has no such connection (IBTA 12.6.7.2, reason 6; Linux is silent then).
func TestLostREJOfREP(t *testing.T) {
	w := newWorld(t, 2, Options{})
	A, B := w.hosts[0], w.hosts[1]
	w.loseFirst(A, wire.AttrREJ, 1)
	B.listen(testService, false)
	a, err := A.Connect(w.now, A.wish(B))
	w.check(err)
	_, err = B.Accept(w.now, B.wait(Request).ID, consent())
	w.check(err)
	A.wait(Replied)
	w.check(A.Reject(w.now, a, wire.RejectConsumer, nil, nil))
	if e := B.wait(Rejected); e.Reason != wire.RejectInvalidCommID {
		t.Errorf("rejected for %v", e.Reason)
	}
	w.want("A REQ", "B REP", "A REJ lost", "B REP", "A REJ")
	w.pass(ib.Instant(10 * second))
	w.empty()
}
