package conformance

import "github.com/goroce/goroce/ib"

// asyncCases: events without a completion (IBTA 11.6.3). Others are with what raises them: the send queue drained
// (sqd.go), limit and last receive of SRQs (srq.go), CQ overrun (cq.go).
func asyncCases() []Case {
	var list []Case
	for _, o := range []op{opWrite, opRead, opFAA} {
		list = append(list, Case{
			Name:   "events/access-error/" + o.name,
			Active: func(e *End) { refusedRequest(e, o, ib.WCRemAccessErr) },
			Passive: func(e *End) {
				c := e.connect()
				e.tell("memory", remote{Addr: 0x1000, RKey: 0xF500_0001, Len: 8})
				e.event(ib.EventQPAccessErr, c.qp)
				e.sync("failed")
			},
		}, Case{
			Name:   "events/request-error/" + o.name,
			Active: func(e *End) { refusedRequest(e, o, ib.WCRemInvReqErr) },
			Passive: func(e *End) {
				c := e.connect(grants(0))
				m := e.mem(64, allAccess)
				m.expose()
				e.event(ib.EventQPReqErr, c.qp)
				e.sync("failed")
			},
		})
	}
	return append(list,
		Case{Name: "events/communication-established", Active: earlySend, Passive: established},
		Case{Name: "events/none-for-the-requester", Active: func(e *End) {
			c := e.connect()
			c.broken(opWrite.request(1, nil, remote{}), ib.WCRemInvReqErr)
			e.noEvent(ib.EventQPReqErr, c.qp)
			e.noEvent(ib.EventQPAccessErr, c.qp)
			e.noEvent(ib.EventQPFatal, c.qp)
		}, Passive: func(e *End) {
			c := e.connect(grants(0))
			c.wantState(ib.StateErr)
		}},
	)
}

// established: the first message that arrives in RTR shows that the peer is ready.
func established(e *End) {
	c := e.newConn()
	m := e.mem(64, ib.LocalWrite)
	c.meet()
	c.recv(1, m.all())
	hear[bool](e, "sent")
	e.noEvent(ib.EventCommEst, c.qp)
	c.rtr()
	e.event(ib.EventCommEst, c.qp)
	c.rq.received(1, 64)
	c.rts()
}
