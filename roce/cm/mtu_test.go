package cm

import (
	"slices"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/wire"
)

// mtuWorld is A, which may have any path MTU, and B, which takes 1024 at most.
func mtuWorld(t *testing.T) (w *world, A, B *host) {
	w = newWorld(t, 2, Options{})
	A, B = w.hosts[0], w.hosts[1]
	B.opts.PathMTU = func(Path) ib.MTU { return ib.MTU1024 }
	B.listen(testService, false)
	return w, A, B
}

// TestSmallerMTU: a REQ for more than the passive end's way carries is rejected, with what it does carry (IBTA
// 12.6.7.2, reason 26), and its sender asks for that. Neither application notices.
func TestSmallerMTU(t *testing.T) {
	w, A, B := mtuWorld(t)
	wish := A.wish(B)
	wish.PathMTU = ib.MTU4096
	a, err := A.Connect(w.now, wish)
	w.check(err)
	got := B.event(Request)
	if got.Conn.PathMTU != ib.MTU1024 || string(got.PrivateData) != string(padded("hello", 56)) {
		t.Errorf("the request is for path MTU %d, with %q; want 1024, with the private data of Connect",
			got.Conn.PathMTU, got.PrivateData)
	}
	_, err = B.Accept(w.now, got.ID, consent())
	w.check(err)
	if e := A.event(Replied); e.ID != a || e.Conn.PathMTU != ib.MTU1024 {
		t.Errorf("the reply is for ID %#x with path MTU %d, want %#x and 1024", e.ID, e.Conn.PathMTU, a)
	}
	w.check(A.Confirm(w.now, a, nil))
	B.event(Established)
	w.want("A REQ", "B REJ", "A REQ", "B REP", "A RTU")
	if len(A.events)+len(B.events) > 0 {
		t.Errorf("further events: %v, %v; want none", A.events, B.events)
	}
}

// TestSmallerMTULate: each copy of the first REQ is answered; the REJs that come late are not about the second one.
func TestSmallerMTULate(t *testing.T) {
	w, A, B := mtuWorld(t)
	lost := 0
	w.lose = func(from *host, attr wire.CMAttr) bool {
		if from == B && attr == wire.AttrREJ {
			lost++
			return lost == 1
		}
		return false
	}
	wish := A.wish(B)
	wish.PathMTU = ib.MTU2048
	_, err := A.Connect(w.now, wish)
	w.check(err)
	w.pass(second) // the REQ is repeated, and its REJ arrives
	B.event(Request)
	first := w.sent[slices.IndexFunc(w.sent, func(m sentMessage) bool { return attrOf(&m.MAD) == wire.AttrREJ })]
	A.Handle(w.now, back(first.Path), first.MAD[:])
	A.takeEvents()
	if len(A.events) > 0 || A.stats.Duplicates != 1 {
		t.Errorf("after a late REJ: events %+v, %d duplicates, want none and 1", A.events, A.stats.Duplicates)
	}
}

// TestMTUStays: whoever wants this path MTU and no other, or is told none that is smaller, is rejected.
func TestMTUStays(t *testing.T) {
	for _, c := range []struct {
		name string
		mtu  ib.MTU
		only bool
		info []byte // in place of B's
	}{
		{"fixed", ib.MTU4096, true, nil},
		{"none is said", ib.MTU4096, false, []byte{}},
		{"no MTU", ib.MTU4096, false, []byte{0}},
		{"no MTU either", ib.MTU4096, false, []byte{255}},
		{"the same", ib.MTU2048, false, []byte{4}},
		{"a larger one", ib.MTU2048, false, []byte{5}},
	} {
		w, A, B := mtuWorld(t)
		if c.info != nil {
			B.opts.PathMTU = nil
		}
		wish := A.wish(B)
		wish.PathMTU, wish.FixedMTU = c.mtu, c.only
		_, err := A.Connect(w.now, wish)
		w.check(err)
		if c.info != nil {
			w.check(B.Reject(w.now, B.event(Request).ID, ib.RejectInvalidMTU, c.info, nil))
		}
		if e := A.event(Rejected); e.Reason != ib.RejectInvalidMTU {
			t.Errorf("%s: rejected for %v, want %v", c.name, e.Reason, ib.RejectInvalidMTU)
		}
		w.empty()
	}
}
