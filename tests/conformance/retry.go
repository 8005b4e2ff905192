package conformance

import (
	"time"

	"github.com/goroce/goroce/ib"
)

// retryCases: the peer has no receive, or does not answer.
func retryCases() []Case {
	list := []Case{
		{Name: "rnr/retry-0-fails-at-once", Active: rnrFails(opSend, 0), Passive: noReceive},
		{Name: "rnr/retry-2-fails-in-the-end", Active: rnrFails(opSend, 2), Passive: noReceive},
		{Name: "rnr/write-imm-fails-too", Active: rnrFails(opWriteImm, 0), Passive: noReceive},
		{Name: "rnr/retry-7-waits", Active: rnrWaits(opSend), Passive: lateReceive(opSend)},
		{Name: "rnr/write-imm-waits-too", Active: rnrWaits(opWriteImm), Passive: lateReceive(opWriteImm)},
		{Name: "rnr/write-needs-no-receive", Active: func(e *End) {
			c := e.connect(noRNR)
			opWrite.transfer(c, 100)
		}, Passive: func(e *End) {
			c := e.connect()
			opWrite.take(c, 100)
		}},
		{Name: "rnr/order-survives", Active: rnrOrder, Passive: rnrOrderPassive},
		{Name: "retry/no-such-qp", Active: unanswered(opSend), Passive: func(e *End) {
			c := e.connect()
			e.must(c.qp.Close(), "close QP")
			e.sync("gone")
			e.sync("failed")
		}},
		{Name: "retry/zero-retries", Active: unanswered(opSend, func(s *setup) { s.retry = 0 }), Passive: resetPassive},
	}
	for _, o := range []op{opSend, opWrite, opRead, opCAS} {
		list = append(list, Case{Name: "retry/peer-was-reset/" + o.name, Active: unanswered(o), Passive: resetPassive})
	}
	return append(list,
		Case{Name: "retry/peer-is-in-error", Active: unanswered(opWrite), Passive: func(e *End) {
			c := e.connect()
			c.err()
			e.sync("gone")
			e.sync("failed")
		}},
		Case{Name: "retry/later-requests-are-flushed", Active: unansweredMany, Passive: resetPassive},
	)
}

func noRNR(s *setup) { s.rnrRetry = 0 }

// rnrFails sends to a peer without a receive.
func rnrFails(o op, retries uint8) func(*End) {
	return func(e *End) {
		c := e.connect(func(s *setup) { s.rnrRetry = retries })
		m := e.mem(64, 0)
		c.broken(o.request(1, m.all(), e.peerMem()), ib.WCRNRRetryExcErr)
		e.sync("failed")
	}
}

// noReceive has memory but no receive. Its queue pair is not affected.
func noReceive(e *End) {
	c := e.connect()
	m := e.mem(64, allAccess)
	m.expose()
	e.sync("failed")
	c.wantState(ib.StateRTS)
	c.rq.empty()
}

func rnrWaits(o op) func(*End) {
	return func(e *End) {
		c := e.connect()
		m := e.mem(3*int(e.mtu()), 0)
		m.put(0, pattern(1, len(m.buf)))
		c.post(o.request(1, m.all(), e.peerMem()))
		e.tell("posted", true)
		c.sq.done(1, wcOpcodes[o.wr])
	}
}

// lateReceive posts its receive when the sender has most likely got an RNR NAK.
func lateReceive(o op) func(*End) {
	return func(e *End) {
		c := e.connect()
		n := 3 * int(e.mtu())
		m := e.mem(n, ib.LocalWrite|o.access)
		m.expose()
		hear[bool](e, "posted")
		e.linger(10 * time.Millisecond)
		c.rq.empty()
		c.recv(1, m.all())
		o.received(c, n)
		m.want(0, pattern(1, n))
		m.check()
	}
}

// rnrOrder: messages after one that waits for a receive do not overtake it.
func rnrOrder(e *End) {
	c := e.connect()
	m := e.mem(64, 0)
	for i := range 8 {
		c.post(ib.SendWR{ID: uint64(i), Opcode: ib.WRSend, SGL: m.sgl(0, i)})
	}
	for i := range 8 {
		c.sq.done(uint64(i), ib.WCSend)
	}
}

func rnrOrderPassive(e *End) {
	c := e.connect()
	m := e.mem(64, ib.LocalWrite)
	for i := range 8 {
		c.recv(uint64(i), m.all())
		c.rq.received(uint64(i), i)
	}
}

// unanswered sends a request to a peer that does not exist any more.
func unanswered(o op, change ...func(*setup)) func(*End) {
	return func(e *End) {
		c := e.connect(append([]func(*setup){impatient}, change...)...)
		m := e.mem(64, ib.LocalWrite)
		e.sync("gone")
		c.broken(o.request(1, m.sgl(0, o.length()), remote{Addr: 0x1000, RKey: 1}), ib.WCRetryExcErr)
		m.check()
		e.sync("failed")
	}
}

func unansweredMany(e *End) {
	c := e.connect(impatient)
	m := e.mem(64, ib.LocalWrite)
	e.sync("gone")
	for i := range 5 {
		c.post(ib.SendWR{ID: uint64(i), Opcode: ib.WRSend, SGL: m.all()})
	}
	c.sq.fails(0, ib.WCRetryExcErr)
	for i := range 4 {
		c.sq.fails(uint64(i+1), ib.WCWRFlushErr)
	}
	e.sync("failed")
}

func resetPassive(e *End) {
	c := e.connect()
	c.reset()
	e.sync("gone")
	e.sync("failed")
	c.wantState(ib.StateReset)
}
