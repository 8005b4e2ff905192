package conformance

import (
	"strings"

	"github.com/goroce/goroce/ib"
)

// cmResolve finds a datagram service with that Q_Key.
func cmResolve(qkey uint32) func(*End) {
	return func(e *End) {
		c := e.newCM()
		id := c.towards(ib.CMIDInit{Type: ib.UD})
		p := ib.CMConnParam{}
		c.cmLens("Connect", 180, func(b []byte) error { p.PrivateData = b; return id.Connect(p) })
		ev := c.next(ib.CMEstablished)
		if want := hear[ib.QPN](e, "QPN"); ev.Param.QPN != want || ev.Param.QKey != qkey || ev.AH.DGID != e.peer.GID {
			e.fatalf("resolved QP %#x, Q_Key %#x, to %v; want %#x, %#x", uint32(ev.Param.QPN), ev.Param.QKey,
				ev.AH.DGID.Addr(), uint32(want), qkey)
		}
		c.holds("the answer", ev.Param.PrivateData, strings.Repeat("x", 136), 136)
	}
}

func cmDatagrams(qkey uint32) func(*End) {
	return func(e *End) {
		c := e.newCM()
		q, init := c.cmService(ib.UD)
		c.listen(init, 0)
		id, ev := c.request()
		c.holds("the request", ev.Param.PrivateData, strings.Repeat("x", 180), 180)
		if ev.AH.DGID != e.peer.GID {
			e.fatalf("the way back is to %v", ev.AH.DGID.Addr())
		}
		p := ib.CMConnParam{QPN: q.qp.Num(), QKey: qkey}
		c.cmLens("Accept", 136, func(b []byte) error { p.PrivateData = b; return id.Accept(p) })
		e.tell("QPN", q.qp.Num())
	}
}

func cmUDRejected(e *End) {
	c := e.newCM()
	id := c.towards(ib.CMIDInit{Type: ib.UD})
	e.must(id.Connect(ib.CMConnParam{}), "connect")
	c.holds("the refusal", c.failed(ib.CMUnreachable, 2).Param.PrivateData, "no", 136)
}

func cmUDReject(e *End) {
	c := e.newCM()
	c.listen(ib.CMIDInit{Type: ib.UD}, 0)
	id, _ := c.request()
	e.must(id.Reject(ib.CMReject{PrivateData: []byte("no")}), "reject")
}

func cmJoin(e *End) {
	c := e.newCM()
	id := c.newID(ib.CMIDInit{Type: ib.UD})
	group := e.group(1).Addr()
	e.is(id.JoinMulticast(group), "joining without an address", ib.ErrState, ib.ErrInvalid)
	e.must(id.Bind(e.at(0)), "bind")
	e.must(id.JoinMulticast(group), "join")
	ev := c.next(ib.CMMulticastJoin)
	if ev.Group != group || ev.AH.DGID != e.group(1) || ev.Param.QPN != ib.QPNMulticast ||
		ev.Param.QKey != ib.DefaultCMQKey {
		e.fatalf("joined %+v", ev)
	}
	e.must(id.LeaveMulticast(group), "leave")
	e.is(id.LeaveMulticast(group), "leaving twice", ib.ErrInvalid)
	e.must(id.JoinMulticast(group), "join again")
	e.must(id.LeaveMulticast(group), "leave before the event is read")
	c.none()
	e.names(id.JoinMulticast(e.at(0).Addr()), "joining a unicast address", "group", ib.ErrInvalid)
}

// cmMember joins by the connection manager, too: that makes the network and the host pass on
// what is sent to the group.
func cmMember(e *End) {
	c := e.newCM()
	id := c.newID(ib.CMIDInit{Type: ib.UD})
	e.must(id.Bind(e.at(0)), "bind")
	e.must(id.JoinMulticast(e.group(1).Addr()), "join")
	c.next(ib.CMMulticastJoin)
	d := e.member()
	e.sync("attached")
	d.got(64, 5)
	e.sync("received")
}
