package cm

import (
	"testing"

	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/wire"
)

// TestLost: what the network says ends a request that has had no answer, without a message; it cannot end a connection.
func TestLost(t *testing.T) {
	w := newWorld(t, 2, Options{})
	A, B := w.hosts[0], w.hosts[1]
	w.loseFirst(A, wire.AttrREQ, 1)
	a, err := A.Connect(w.now, A.wish(B))
	w.check(err)
	if !A.Lost(w.now, a) || A.Lost(w.now, a) {
		t.Error("Lost must end a request, once")
	}
	if e := A.event(Unreachable); e.ID != a || e.Waited != "REQ" || e.Sent != 1 || e.Datagram {
		t.Errorf("%+v, want one REQ of ID %v", e, a)
	}
	w.loseFirst(A, wire.AttrSIDRREQ, 1)
	a, err = A.Resolve(w.now, Resolve{Path: A.pathTo(B), ServiceID: testService, GiveUp: driver.Never})
	w.check(err)
	if !A.Lost(w.now, a) {
		t.Error("Lost must end a resolution")
	}
	if e := A.event(Unreachable); e.ID != a || e.Waited != "SIDR_REQ" || !e.Datagram {
		t.Errorf("%+v, want one SIDR_REQ of ID %v", e, a)
	}
	w.empty()
	w.want("A REQ lost", "A SIDR_REQ lost")

	a, b := w.connect()
	if A.Lost(w.now, a) || B.Lost(w.now, b) {
		t.Error("a forged message has ended a connection")
	}
}
