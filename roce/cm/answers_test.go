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
	_, b := w.request()
	w.check(B.Reject(w.now, b, ib.RejectConsumer, nil, []byte("no")))
	if e := A.wait(Rejected); e.Reason != ib.RejectConsumer || string(e.PrivateData[:2]) != "no" {
		t.Errorf("rejected for %v, %q; want %v, \"no\"", e.Reason, e.PrivateData, ib.RejectConsumer)
	}
	w.want("A REQ", "B REJ lost", "A REQ", "B REJ lost", "A REQ", "B REJ")
	w.empty()
}

// The same holds for the answer to a SIDR_REQ, and if the request is released without an answer.
func TestLostSIDRREP(t *testing.T) {
	for _, test := range []struct {
		name   string
		answer func(B *host, id ID) error
		want   EventKind
		qpn    ib.QPN
		qkey   uint32
	}{
		{"answered", func(B *host, id ID) error { return B.Answer(B.w.now, id, Answer{QPN: 0x500, QKey: 7}) },
			Resolved, 0x500, 7},
		{"released", func(B *host, id ID) error { B.Release(B.w.now, id); return nil }, Rejected, 0, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, 2, Options{})
			A, B := w.hosts[0], w.hosts[1]
			w.loseFirst(B, wire.AttrSIDRREP, 1)
			B.listen(testService, true)
			_, err := A.Resolve(w.now, Resolve{Path: A.pathTo(B), ServiceID: testService})
			w.check(err)
			w.check(test.answer(B, B.wait(Request).ID))
			if e := A.wait(test.want); e.Conn.RemoteQPN != test.qpn || e.QKey != test.qkey {
				t.Errorf("%+v, want QPN %#x, Q_Key %#x", e, test.qpn, test.qkey)
			}
			w.want("A SIDR_REQ", "B SIDR_REP lost", "A SIDR_REQ", "B SIDR_REP")
			w.empty()
		})
	}
}

// refused sends a REQ from A to B, which listens and rejects it.
func (w *world) refused() {
	w.t.Helper()
	_, b := w.request()
	w.check(w.hosts[1].Reject(w.now, b, ib.RejectConsumer, nil, nil))
	w.hosts[0].event(Rejected)
}

// A copy of a rejected REQ arrives when its sender has used the QP for another REQ. It does not end that as stale. A
// REQ with another transaction ID is no copy.
func TestLateCopyOfREQ(t *testing.T) {
	w := newWorld(t, 2, Options{})
	A, B := w.hosts[0], w.hosts[1]
	B.listen(testService, false)
	w.refused()
	_, b := w.request()
	req := w.sent[0]
	w.want("A REQ", "B REJ", "A REQ")

	w.carry(req.from, req.Message)
	w.want("A REQ", "B REJ")
	w.quiet()
	if B.stats.Duplicates != 1 || B.stats.Stale != 0 {
		t.Errorf("%+v, want 1 duplicate and none stale", B.stats)
	}
	w.check(B.Reject(w.now, b, ib.RejectConsumer, nil, nil))
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
		w.refused()
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
