package conformance

import (
	"fmt"

	"github.com/goroce/goroce/ib"
)

// An XRC connection has one direction (IBTA A14): the active half has an initiator, the passive one a target, and SRQs
// that requests name by number.

func xrcInitiator(s *setup) {
	s.init.Type = ib.XRCINI
	s.init.Cap.MaxRecvWR, s.init.Cap.MaxRecvSGE = 0, 0
}

// xrcTarget makes the setup an XRC target whose peer sends to a shared queue by default.
func xrcTarget(d ib.XRCD, q *sharedQueue) func(*setup) {
	return func(s *setup) {
		s.init = ib.QPInit{Type: ib.XRCTGT, XRCD: d}
		s.srq = q
	}
}

// newXRCQueue creates an XRC SRQ, with the queue for completions of its receives.
func (e *End) newXRCQueue(pd ib.PD, d ib.XRCD) (*sharedQueue, *queue) {
	rq := e.newQueue(4 * depth)
	srq := e.newSRQ(pd, ib.SRQInit{Type: ib.SRQXRC, SRQAttr: ib.SRQAttr{MaxWR: depth, MaxSGE: 2}, XRCD: d, CQ: rq.cq})
	if srq.Num() == 0 {
		e.fatalf("the XRC SRQ has no number")
	}
	return &sharedQueue{e, srq}, rq
}

// xrcPassive creates a domain, an SRQ and a connected target. Receives complete on its rq.
func (e *End) xrcPassive() (*conn, ib.XRCD) {
	d := e.newXRCD()
	q, rq := e.newXRCQueue(e.pd(), d)
	c := e.connect(xrcTarget(d, q))
	c.rq = rq
	return c, d
}

func xrcCases() []Case {
	needs := both(ib.CapXRC)
	var list []Case
	for _, o := range dataOps {
		for _, n := range []int{0, 8, 5000} {
			list = append(list, Case{
				Name: fmt.Sprintf("xrc/%s/%d", o.name, n), Needs: needs,
				Active:  func(e *End) { o.transfer(e.connect(xrcInitiator), n) },
				Passive: func(e *End) { c, _ := e.xrcPassive(); o.take(c, n) },
			})
		}
	}
	list = append(list,
		Case{Name: "xrc/atomics", Active: xrcAtomic, Passive: xrcAtomicPassive},
		Case{Name: "xrc/requests-choose-their-srq", Active: xrcTwoSRQs, Passive: xrcTwoSRQsPassive},
		Case{Name: "xrc/targets-share-an-srq", Active: xrcTwoTargets, Passive: xrcTwoTargetsPassive},
		Case{Name: "xrc/waits-for-a-receive", Active: xrcWaits, Passive: xrcWaitsPassive},
		Case{Name: "xrc/no-such-srq", Active: xrcRefused(func(c *conn) uint32 { return c.peer.SRQ ^ 0x800000 }),
			Passive: func(e *End) {
				c, _ := e.xrcPassive()
				e.sync("failed")
				c.wantState(ib.StateErr)
			}},
		Case{Name: "xrc/srq-of-another-domain", Active: xrcRefused(func(c *conn) uint32 {
			return hear[uint32](c.e, "stranger")
		}), Passive: func(e *End) {
			c, _ := e.xrcPassive()
			other, rq := e.newXRCQueue(e.pd(), e.newXRCD())
			other.recv(1, nil)
			e.tell("stranger", other.srq.Num())
			e.sync("failed")
			c.wantState(ib.StateErr)
			rq.empty()
		}},
		Case{Name: "xrc/memory-is-of-the-srq's-pd", Active: xrcWrite(ib.WCRemAccessErr), Passive: xrcPD(false)},
		Case{Name: "xrc/memory-need-not-be-of-the-target's-pd", Active: xrcWrite(ib.WCSuccess), Passive: xrcPD(true)},
		Case{Name: "xrc/initiators-take-no-receives", Alone: func(e *End) {
			c := e.newConn(xrcInitiator)
			_, err := c.qp.PostRecv([]ib.RecvWR{{ID: 1}})
			e.is(err, "posting a receive to an XRC initiator", ib.ErrInvalid, ib.ErrNotSupported, ib.ErrQueueFull,
				ib.ErrState)
		}},
		Case{Name: "xrc/targets-take-no-requests", Alone: func(e *End) {
			d := e.newXRCD()
			c := e.into(ib.StateRTS, xrcTarget(d, nil))
			_, err := c.qp.PostSend([]ib.SendWR{{Opcode: ib.WRSend}})
			e.is(err, "posting a request to an XRC target", ib.ErrInvalid, ib.ErrNotSupported, ib.ErrQueueFull,
				ib.ErrState)
			_, err = c.qp.PostRecv([]ib.RecvWR{{ID: 1}})
			e.is(err, "posting a receive to an XRC target", ib.ErrInvalid, ib.ErrNotSupported, ib.ErrQueueFull,
				ib.ErrState)
		}},
		Case{Name: "xrc/srq-needs-domain-and-cq", Alone: func(e *End) {
			d, cq := e.newXRCD(), e.newQueue(1).cq
			attr := ib.SRQAttr{MaxWR: 4, MaxSGE: 1}
			_, err := e.pd().CreateSRQ(ib.SRQInit{Type: ib.SRQXRC, SRQAttr: attr, CQ: cq})
			e.names(err, "creating an XRC SRQ without a domain", "XRCD", ib.ErrInvalid, ib.ErrForeign)
			_, err = e.pd().CreateSRQ(ib.SRQInit{Type: ib.SRQXRC, SRQAttr: attr, XRCD: d})
			e.names(err, "creating an XRC SRQ without a CQ", "CQ", ib.ErrInvalid, ib.ErrForeign)
			_, err = e.pd().CreateQP(ib.QPInit{Type: ib.XRCTGT})
			e.names(err, "creating an XRC target without a domain", "XRCD", ib.ErrInvalid, ib.ErrForeign)
		}})
	for i := range list {
		list[i].Needs = needs
	}
	return list
}

func xrcAtomic(e *End) {
	c := e.connect(xrcInitiator)
	m := e.mem(8, ib.LocalWrite)
	c.do(opFAA.request(1, m.all(), e.peerMem()))
	m.want(0, word(41))
	m.check()
	e.sync("done")
}

func xrcAtomicPassive(e *End) {
	e.xrcPassive()
	m := e.mem(8, allAccess)
	m.putWord(0, 41)
	m.expose()
	e.sync("done")
	m.want(0, word(42))
	m.check()
}

func xrcTwoSRQs(e *End) {
	c := e.connect(xrcInitiator)
	other := hear[uint32](e, "other SRQ")
	m := e.mem(64, 0)
	for i := range 6 {
		wr := ib.SendWR{ID: uint64(i), Opcode: ib.WRSend, SGL: m.sgl(0, i), RemoteSRQ: c.peer.SRQ}
		if i%2 == 1 {
			wr.RemoteSRQ = other
		}
		c.do(wr)
	}
	e.sync("done")
}

func xrcTwoSRQsPassive(e *End) {
	d := e.newXRCD()
	a, aq := e.newXRCQueue(e.pd(), d)
	b, bq := e.newXRCQueue(e.pd(), d)
	m := e.mem(64, ib.LocalWrite)
	for i := range 3 {
		a.recv(uint64(i), m.all())
		b.recv(uint64(10+i), m.all())
	}
	c := e.connect(xrcTarget(d, a))
	e.tell("other SRQ", b.srq.Num())
	for i := range 3 {
		aq.received(uint64(i), 2*i)
		if wc := bq.received(uint64(10+i), 2*i+1); wc.QPN != c.qp.Num() {
			e.fatalf("the receive completes for QP %#x, not %#x", uint32(wc.QPN), uint32(c.qp.Num()))
		}
	}
	e.sync("done")
}

func xrcTwoTargets(e *End) {
	a, b := e.connect(xrcInitiator), e.connect(xrcInitiator)
	for i := range 6 {
		c := a
		if i%2 == 1 {
			c = b
		}
		c.do(ib.SendWR{ID: uint64(i), Opcode: ib.WRSend})
	}
	e.sync("done")
}

func xrcTwoTargetsPassive(e *End) {
	d := e.newXRCD()
	q, rq := e.newXRCQueue(e.pd(), d)
	for i := range 6 {
		q.recv(uint64(i), nil)
	}
	a, b := e.connect(xrcTarget(d, q)), e.connect(xrcTarget(d, q))
	for i := range 6 {
		c := a
		if i%2 == 1 {
			c = b
		}
		if wc := rq.received(uint64(i), 0); wc.QPN != c.qp.Num() {
			e.fatalf("receive %d completes for QP %#x, not %#x", i, uint32(wc.QPN), uint32(c.qp.Num()))
		}
	}
	e.sync("done")
}

func xrcWaits(e *End) {
	c := e.connect(xrcInitiator)
	c.post(ib.SendWR{ID: 1, Opcode: ib.WRSend})
	e.tell("posted", true)
	c.sq.done(1, ib.WCSend)
	e.sync("done")
}

func xrcWaitsPassive(e *End) {
	c, _ := e.xrcPassive()
	hear[bool](e, "posted")
	c.recv(1, nil)
	c.rq.received(1, 0)
	e.sync("done")
}

// xrcRefused names an SRQ that the target must not use.
func xrcRefused(srq func(c *conn) uint32) func(*End) {
	return func(e *End) {
		c := e.connect(xrcInitiator)
		c.broken(ib.SendWR{ID: 1, Opcode: ib.WRSend, RemoteSRQ: srq(c)}, ib.WCRemInvReqErr)
		e.sync("failed")
	}
}

func xrcWrite(want ib.WCStatus) func(*End) {
	return func(e *End) {
		c := e.connect(xrcInitiator)
		m := e.mem(64, 0)
		m.put(0, pattern(3, 64))
		c.post(opWrite.request(1, m.all(), e.peerMem()))
		if want == ib.WCSuccess {
			c.sq.done(1, ib.WCWrite)
		} else {
			c.sq.fails(1, want)
		}
		e.sync("done")
	}
}

// xrcPD exposes memory of the SRQ's PD, or of the target's, which differs: XRC requests reach memory in the PD of the
// SRQ that they name (IBTA A14.3.3).
func xrcPD(ofSRQ bool) func(*End) {
	return func(e *End) {
		d := e.newXRCD()
		pd := e.newPD()
		q, _ := e.newXRCQueue(pd, d)
		e.connect(xrcTarget(d, q))
		if !ofSRQ {
			pd = e.pd()
		}
		m := e.memIn(pd, 64, allAccess)
		m.expose()
		e.sync("done")
		if ofSRQ {
			m.want(0, pattern(3, 64))
		}
		m.check()
	}
}
