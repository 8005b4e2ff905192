package conformance

import (
	"github.com/goroce/goroce/ib"
)

func unreliable(s *setup) { s.init.Type = ib.UC }

func ucCases() []Case {
	var list []Case
	for _, o := range []op{opSend, opSendImm, opWrite, opWriteImm} {
		for _, s := range sizes {
			if s.name != "1MiB" { // on UC it may overrun the socket's buffer
				list = append(list, sizeCase(o, s, nil, ib.UC))
			}
		}
	}
	return append(list,
		Case{Name: "uc/no-receive-is-silent", Active: ucNoReceive, Passive: ucNoReceivePassive},
		Case{Name: "uc/write-with-a-bad-key-is-silent", Active: ucSilent(func(c *conn, r remote) {
			m := c.e.mem(8, 0)
			r.RKey = badKey(r.RKey)
			c.do(opWrite.request(1, m.all(), r))
		}), Passive: ucSilentPassive(ib.RemoteWrite)},
		Case{Name: "uc/write-out-of-bounds-is-silent", Active: ucSilent(func(c *conn, r remote) {
			m := c.e.mem(r.Len+1, 0)
			c.do(opWrite.request(1, m.all(), r))
		}), Passive: ucSilentPassive(ib.RemoteWrite)},
		Case{Name: "uc/write-without-the-right-is-silent", Active: ucSilent(func(c *conn, r remote) {
			m := c.e.mem(8, 0)
			c.do(opWrite.request(1, m.all(), r))
		}), Passive: ucSilentPassive(0)},
		Case{Name: "uc/lost-peer-is-silent", Active: ucLost, Passive: func(e *End) {
			c := e.connect(unreliable)
			c.reset()
			e.sync("gone")
			e.sync("failed")
		}},
		Case{Name: "uc/long-message-to-a-short-receive-writes-nothing-else", Active: ucLong, Passive: ucShort},
		Case{Name: "uc/failure-stops-only-the-send-queue", Active: sendQueueError(ib.UC),
			Passive: sendQueueErrorPassive(ib.UC)},
		Case{Name: "uc/no-reads-and-atomics", Alone: func(e *End) {
			c := e.into(ib.StateRTS, unreliable)
			m := e.mem(8, ib.LocalWrite)
			for _, o := range []op{opRead, opCAS, opFAA} {
				_, err := c.qp.PostSend([]ib.SendWR{o.request(1, m.all(), m.remote())})
				e.names(err, "posting "+o.name+" on UC", "Opcode", ib.ErrNotSupported, ib.ErrInvalid)
			}
		}},
		Case{Name: "uc/has-no-retries", Alone: func(e *End) {
			c := e.into(ib.StateRTR, unreliable)
			a := c.attrs()
			a.State = ib.StateRTS
			e.names(c.qp.Modify(a, ib.Required(ib.RC, ib.StateRTS)), "modify UC to RTS with retries", "mask",
				ib.ErrInvalid)
			c.rts()
		}},
	)
}

func ucLost(e *End) {
	c := e.connect(unreliable)
	e.sync("gone")
	m := e.mem(5000, 0)
	for i := range 3 {
		c.do(ib.SendWR{ID: uint64(i), Opcode: ib.WRSend, SGL: m.all()})
	}
	c.wantState(ib.StateRTS)
	e.sync("failed")
}

func ucLong(e *End) {
	c := e.connect(unreliable)
	m := e.mem(3*int(e.mtu()), 0)
	hear[bool](e, "posted")
	c.do(ib.SendWR{ID: 1, Opcode: ib.WRSend, SGL: m.all()})
	e.sync("sent")
}

func ucShort(e *End) {
	c := e.connect(unreliable)
	m := e.mem(32, ib.LocalWrite)
	c.recv(1, m.all())
	e.tell("posted", true)
	e.sync("sent")
	if wc, ok := c.rq.poll(); ok && wc.Status == ib.WCSuccess {
		e.fatalf("a receive of 32 bytes succeeded with more")
	}
	m.check()
}

// ucNoReceive: a message without a receive is dropped. The WRITE after it shows when that has happened.
func ucNoReceive(e *End) {
	c := e.connect(unreliable)
	m := e.mem(77, 0)
	m.putWord(0, 12345)
	r := e.peerMem()
	c.do(ib.SendWR{ID: 1, Opcode: ib.WRSend, SGL: m.sgl(0, 5)})
	c.do(opWrite.request(2, m.sgl(0, 8), r))
	e.sync("receive posted")
	c.do(ib.SendWR{ID: 3, Opcode: ib.WRSend, SGL: m.all()})
	e.sync("received")
}

func ucNoReceivePassive(e *End) {
	c := e.connect(unreliable)
	m, in := e.mem(64, allAccess), e.mem(77, ib.LocalWrite)
	m.putWord(0, 0)
	m.expose()
	m.awaitWord(0, 12345)
	c.recv(1, in.all())
	e.sync("receive posted")
	c.rq.received(1, 77)
	c.wantState(ib.StateRTS)
	e.sync("received")
}

// ucSilent sends a request that the peer cannot execute: it succeeds nevertheless, and the next message works.
func ucSilent(bad func(c *conn, r remote)) func(*End) {
	return func(e *End) {
		c := e.connect(unreliable)
		bad(c, e.peerMem())
		c.do(ib.SendWR{ID: 2, Opcode: ib.WRSend, SGL: e.mem(77, 0).all()})
		c.wantState(ib.StateRTS)
		e.sync("received")
	}
}

func ucSilentPassive(access ib.Access) func(*End) {
	return func(e *End) {
		c := e.connect(unreliable, grants(access))
		m, in := e.mem(64, ib.LocalWrite|ib.RemoteWrite), e.mem(77, ib.LocalWrite)
		c.recv(2, in.all())
		m.expose()
		c.rq.received(2, 77)
		c.wantState(ib.StateRTS)
		m.check()
		e.sync("received")
	}
}

// sendQueueError: on UC and UD a request that cannot be sent stops the send queue (SQE). The receive queue goes on, and
// Modify to RTS restarts the send queue (IBTA 10.3.1.6).
func sendQueueError(t ib.QPType) func(*End) {
	return func(e *End) {
		c, to := e.connectOrMeet(t)
		m := e.mem(64, ib.LocalWrite)
		bad := ib.SendWR{ID: 1, Opcode: ib.WRSend, SGL: []ib.SGE{{Addr: m.addr(0), Length: 8,
			LKey: badKey(m.mr.LKey())}}}
		good := ib.SendWR{ID: 2, Opcode: ib.WRSend, SGL: m.sgl(0, 8)}
		to(&bad)
		to(&good)
		c.recv(100, m.all())
		c.post(bad, good)
		c.sq.fails(1, ib.WCLocProtErr)
		c.sq.fails(2, ib.WCWRFlushErr)
		c.wantState(ib.StateSQE)
		e.tell("send to me", true)
		c.rq.next() // the receive queue still works
		c.wantState(ib.StateSQE)
		c.modify(ib.QPAttr{State: ib.StateRTS}, ib.AttrState)
		c.do(good)
	}
}

func sendQueueErrorPassive(t ib.QPType) func(*End) {
	return func(e *End) {
		c, to := e.connectOrMeet(t)
		m := e.mem(64, ib.LocalWrite)
		c.recv(1, m.all())
		hear[bool](e, "send to me")
		wr := ib.SendWR{ID: 1, Opcode: ib.WRSend}
		to(&wr)
		c.do(wr)
		c.rq.done(1, ib.WCRecv)
	}
}

// connectOrMeet is connect for UC and datagram for UD; to sets the destination of a request.
func (e *End) connectOrMeet(t ib.QPType) (c *conn, to func(*ib.SendWR)) {
	if t == ib.UD {
		d := e.datagram()
		return d.conn, d.address
	}
	return e.connect(func(s *setup) { s.init.Type = t }), func(*ib.SendWR) {}
}
