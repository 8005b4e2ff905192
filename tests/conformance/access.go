package conformance

import "github.com/goroce/goroce/ib"

// accessCases: each operation needs one right of the region and one of the queue pair, and no other.
func accessCases() []Case {
	var list []Case
	for _, o := range remoteOps {
		lacking := allAccess &^ o.access
		if o.wr == ib.WRFlush {
			lacking = allAccess
		}
		list = append(list,
			Case{
				Name: "access/region-lacks/" + o.name, Needs: o.needs(),
				Active: func(e *End) { refusedRequest(e, o, ib.WCRemAccessErr) },
				Passive: func(e *End) {
					refusingPassive(e, o, qpAccess, func() *target { return e.good(o.length(), lacking) })
				},
			},
			Case{
				Name: "access/qp-lacks/" + o.name, Needs: o.needs(),
				// IBTA 9.7.4.1.5 (table 46): an operation that the QP is not enabled for is
				// an invalid request.
				Active: func(e *End) { refusedRequest(e, o, ib.WCRemInvReqErr) },
				Passive: func(e *End) {
					refusingPassive(e, o, qpAccess&^o.access,
						func() *target { return e.good(o.length(), ib.LocalWrite|o.access) })
				},
			},
			Case{
				Name: "access/no-more-than-needed/" + o.name, Needs: o.needs(),
				Active:  func(e *End) { permittedRequest(e, o) },
				Passive: func(e *End) { permittingPassive(e, o) },
			})
	}
	return append(list,
		Case{Name: "access/qp-rights-change", Active: rightsChange, Passive: rightsChangePassive},
		Case{Name: "access/reads-into-memory-need-local-write", Active: readIntoConst, Passive: untouchedPassive},
		Case{Name: "access/receives-need-local-write", Active: func(e *End) {
			c := e.connect()
			m := e.mem(64, 0)
			hear[bool](e, "posted")
			c.broken(ib.SendWR{ID: 1, Opcode: ib.WRSend, SGL: m.all()}, ib.WCRemOpErr)
			e.sync("failed")
		}, Passive: func(e *End) {
			c := e.connect()
			m := e.mem(64, ib.RemoteRead)
			c.recv(1, m.all())
			e.tell("posted", true)
			c.rq.fails(1, ib.WCLocProtErr)
			e.sync("failed")
			m.check()
		}},
		Case{Name: "access/remote-write-needs-local-write", Alone: badRights(ib.RemoteWrite)},
		Case{Name: "access/remote-atomic-needs-local-write", Alone: badRights(ib.RemoteAtomic)},
	)
}

// permittedRequest is a request for which exactly the necessary rights are granted.
func permittedRequest(e *End, o op) {
	c := e.connect()
	t := e.good(o.length(), o.localAccess())
	c.do(o.request(1, t.sgl(), e.peerMem()))
	e.sync("done")
}

func permittingPassive(e *End, o op) {
	c := e.connect(grants(o.access))
	access := o.access
	if access&(ib.RemoteWrite|ib.RemoteAtomic) != 0 {
		access |= ib.LocalWrite
	}
	t := e.good(o.length(), access)
	if o.recv {
		c.recv(1, nil)
	}
	e.tell("memory", t.remote())
	e.sync("done")
}

// rightsChange: Modify in RTS grants and revokes the right to an operation.
func rightsChange(e *End) {
	c := e.connect()
	m := e.mem(8, 0)
	r := e.peerMem()
	c.do(opWrite.request(1, m.all(), r))
	e.sync("written")
	e.sync("closed")
	c.broken(opWrite.request(2, m.all(), r), ib.WCRemInvReqErr)
	e.sync("failed")
}

func rightsChangePassive(e *End) {
	c := e.connect()
	m := e.mem(8, allAccess)
	m.expose()
	e.sync("written")
	c.modify(ib.QPAttr{Access: ib.RemoteRead}, ib.AttrAccess)
	e.sync("closed")
	e.sync("failed")
	c.wantState(ib.StateErr)
}

func readIntoConst(e *End) {
	c := e.connect()
	m := e.mem(16, ib.RemoteRead)
	r := e.peerMem()
	c.broken(opRead.request(1, m.all(), r), ib.WCLocProtErr)
	m.check()
	e.sync("done")
}

// badRights registers memory with an invalid combination of rights (IBTA 11.2.8.2).
func badRights(a ib.Access) func(*End) {
	return func(e *End) {
		mr, err := e.pd().RegMR(ib.MRInit{Buf: e.bytes(64), Access: a})
		if err == nil {
			mr.Close()
		}
		e.names(err, "registering memory that peers may write and we may not", "Access", ib.ErrInvalid)
	}
}
