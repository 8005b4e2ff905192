package cm

import (
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/wire"
)

// A REJ is not repeated by itself. If it is lost, the peer repeats the REQ, and gets the REJ again: the consumer is not
// asked once more (in Linux it is, as cm_dup_req_handler does not find the old request).
func TestLostREJOfREQ(t *testing.T) {
	w := newWorld(t, 2, Options{})
	A, B := w.hosts[0], w.hosts[1]
	w.loseFirst(B, wire.AttrREJ, 2)
	B.listen(testService, false)
	_, err := A.Connect(w.now, A.wish(B))
	w.check(err)
	w.check(B.Reject(w.now, B.wait(Request).ID, wire.RejectConsumer, nil, []byte("no")))
	if e := A.wait(Rejected); e.Reason != wire.RejectConsumer || string(e.PrivateData[:2]) != "no" {
		t.Errorf("rejected for %v, %q", e.Reason, e.PrivateData)
	}
	w.want("A REQ", "B REJ lost", "A REQ", "B REJ lost", "A REQ", "B REJ")
	w.empty()
}

// The same holds for the answer to a SIDR_REQ, and for a request that is released without an answer.
func TestLostSIDRREP(t *testing.T) {
	for _, released := range []bool{false, true} {
		w := newWorld(t, 2, Options{})
		A, B := w.hosts[0], w.hosts[1]
		w.loseFirst(B, wire.AttrSIDRREP, 1)
		B.listen(testService, true)
		_, err := A.Resolve(w.now, Resolve{Path: A.pathTo(B), ServiceID: testService})
		w.check(err)
		want := Resolved
		if id := B.wait(Request).ID; released {
			B.Release(w.now, id)
			want = Rejected
		} else {
			w.check(B.Answer(w.now, id, Answer{QPN: 0x500, QKey: 7}))
		}
		if e := A.wait(want); !released && (e.Conn.RemoteQPN != 0x500 || e.QKey != 7) {
			t.Errorf("resolved %+v", e)
		}
		w.want("A SIDR_REQ", "B SIDR_REP lost", "A SIDR_REQ", "B SIDR_REP")
		w.empty()
	}
}

// A copy of a rejected REQ arrives when its sender has used the QP for another REQ. It does not end that as stale. A
// REQ with another transaction ID is no copy.
func TestLateCopyOfREQ(t *testing.T) {
	w := newWorld(t, 2, Options{})
	A, B := w.hosts[0], w.hosts[1]
	B.listen(testService, false)
	_, err := A.Connect(w.now, A.wish(B))
	w.check(err)
	w.check(B.Reject(w.now, B.event(Request).ID, wire.RejectConsumer, nil, nil))
	A.event(Rejected)
	_, err = A.Connect(w.now, A.wish(B))
	w.check(err)
	id := B.event(Request).ID
	req := w.sent[0]
	w.want("A REQ", "B REJ", "A REQ")

	w.carry(req.from, req.Message)
	w.want("A REQ", "B REJ")
	w.quiet()
	if B.stats.Duplicates != 1 || B.stats.Stale != 0 {
		t.Errorf("%+v", B.stats)
	}
	w.check(B.Reject(w.now, id, wire.RejectConsumer, nil, nil))
	A.event(Rejected)

	req.MAD[15]++ // the last byte of the transaction ID
	w.carry(req.from, req.Message)
	B.event(Request)
}

// Answers are remembered up to a limit; the oldest is forgotten first, and what asks again then is a new request.
func TestAnswersAreBounded(t *testing.T) {
	w := newWorld(t, 2, Options{})
	A, B := w.hosts[0], w.hosts[1]
	B.listen(testService, false)
	for range maxAnswers + 2 {
		_, err := A.Connect(w.now, A.wish(B))
		w.check(err)
		w.check(B.Reject(w.now, B.event(Request).ID, wire.RejectConsumer, nil, nil))
		A.event(Rejected)
	}
	if n, indexed := len(B.answers.ring), len(B.answers.index); n != maxAnswers || indexed != n {
		t.Fatalf("%d answers, %d of them to be found, want %d", n, indexed, maxAnswers)
	}
	for i, isNew := range []bool{true, true, false} {
		w.carry(A, w.sent[2*i].Message)
		w.settle()
		if got := len(B.events) > 0; got != isNew {
			t.Errorf("REQ %d is a new request: %v, want %v", i, got, isNew)
		}
		B.events = nil
	}
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
