package conformance

import (
	"errors"

	"github.com/goroce/goroce/ib"
)

// flushCases: what happens to queued requests when a queue pair ends, and to requests that are posted afterwards (IBTA
// 10.3.1.5, 10.8.3.2).
func flushCases() []Case {
	return []Case{
		{Name: "flush-error/both-queues-in-order", Active: flushBoth,
			Passive: func(e *End) { e.connect(); e.sync("flushed") }},
		{Name: "flush-error/posted-in-error/send", Alone: func(e *End) {
			c := e.lonely()
			m := e.mem(64, ib.LocalWrite)
			c.err()
			for i := range 3 {
				c.post(ib.SendWR{ID: uint64(i), Opcode: ib.WRSend, SGL: m.all()})
				c.sq.fails(uint64(i), ib.WCWRFlushErr)
			}
		}},
		{Name: "flush-error/posted-in-error/receive", Alone: func(e *End) {
			c := e.lonely()
			m := e.mem(64, ib.LocalWrite)
			c.err()
			for i := range 3 {
				c.recv(uint64(i), m.all())
				c.rq.fails(uint64(i), ib.WCWRFlushErr)
			}
		}},
		{Name: "flush-error/behind-a-failure", Active: flushBehind, Passive: scratchPassive},
		{Name: "flush-error/receives-of-the-refusing-side",
			Active: func(e *End) { refusedRequest(e, opWrite, ib.WCRemAccessErr) }, Passive: flushedReceives},
		{Name: "flush-error/unsignalled-requests-too", Active: flushUnsignalled,
			Passive: func(e *End) { e.connect(); e.sync("flushed") }},
		{Name: "reset/makes-no-completions", Active: resetSilent,
			Passive: func(e *End) { e.connect(); e.sync("reset") }},
		{Name: "reset/connects-again", Active: connectsAgain, Passive: connectsAgainPassive},
		{Name: "reset/after-error-connects-again", Active: mends, Passive: mendsPassive},
		{Name: "full/send-queue", Active: fullSend, Passive: fullSendPassive},
		{Name: "full/receive-queue", Alone: fullRecv},
		{Name: "full/receive-queue-has-room-again", Active: roomAgain, Passive: roomAgainPassive},
		{Name: "full/queue-of-0-entries", Alone: noQueues},
	}
}

// flushBoth: without a receive at the peer nothing completes, until ERR completes everything, in order, on both queues.
func flushBoth(e *End) {
	c := e.connect()
	m := e.mem(64, ib.LocalWrite)
	for i := range 6 {
		c.post(ib.SendWR{ID: uint64(i), Opcode: ib.WRSend, SGL: m.all()})
		c.recv(uint64(100+i), m.all())
	}
	c.err()
	for i := range 6 {
		c.sq.fails(uint64(i), ib.WCWRFlushErr)
		c.rq.fails(uint64(100+i), ib.WCWRFlushErr)
	}
	c.sq.empty()
	c.rq.empty()
	c.wantState(ib.StateErr)
	e.sync("flushed")
}

func flushBehind(e *End) {
	c := e.connect()
	m := e.mem(64, ib.LocalWrite)
	r := e.peerMem()
	c.recv(100, m.all())
	c.post(opWrite.request(0, m.sgl(0, 8), r),
		ib.SendWR{ID: 1, Opcode: ib.WRWrite, SGL: []ib.SGE{{Addr: m.addr(0), Length: 8, LKey: badKey(m.mr.LKey())}},
			RemoteAddr: r.Addr, RKey: r.RKey},
		opWrite.request(2, m.sgl(8, 8), r), opWrite.request(3, m.sgl(16, 8), r))
	c.sq.done(0, ib.WCWrite)
	c.sq.fails(1, ib.WCLocProtErr)
	c.sq.fails(2, ib.WCWRFlushErr)
	c.sq.fails(3, ib.WCWRFlushErr)
	c.rq.fails(100, ib.WCWRFlushErr)
	e.sync("done")
}

func flushedReceives(e *End) {
	c := e.connect()
	m := e.mem(64, ib.LocalWrite)
	for i := range 4 {
		c.recv(uint64(i), m.all())
	}
	e.tell("memory", remote{m.addr(0), badKey(m.mr.RKey()), 64})
	e.sync("failed")
	for i := range 4 {
		c.rq.fails(uint64(i), ib.WCWRFlushErr)
	}
	c.wantState(ib.StateErr)
	m.check()
}

func flushUnsignalled(e *End) {
	c := e.connect(selective)
	m := e.mem(64, ib.LocalWrite)
	for i := range 4 {
		c.post(ib.SendWR{ID: uint64(i), Opcode: ib.WRSend, SGL: m.all()})
	}
	c.err()
	for i := range 4 {
		c.sq.fails(uint64(i), ib.WCWRFlushErr)
	}
	e.sync("flushed")
}

func resetSilent(e *End) {
	c := e.connect()
	m := e.mem(64, ib.LocalWrite)
	for i := range 4 {
		c.post(ib.SendWR{ID: uint64(i), Opcode: ib.WRSend, SGL: m.all()})
		c.recv(uint64(100+i), m.all())
	}
	c.reset()
	c.sq.empty()
	c.rq.empty()
	c.wantState(ib.StateReset)
	e.sync("reset")
}

// again takes the connection's queue pair through RESET to a new connection with other first PSNs.
func (c *conn) again() {
	c.e.sync("old connection is over")
	c.reset()
	c.s.psn = (c.s.psn + 0x654321) & ib.PSNMask
	c.toInit()
	c.meet()
	c.rtr()
	c.rts()
	c.e.sync("connected again")
}

func connectsAgain(e *End) {
	c := e.connect()
	for range 3 {
		opSend.transfer(c, 5000)
		c.again()
	}
	opSend.transfer(c, 5000)
}

func connectsAgainPassive(e *End) {
	c := e.connect()
	for range 3 {
		opSend.take(c, 5000)
		c.again()
	}
	opSend.take(c, 5000)
}

func mends(e *End) {
	c := e.connect()
	m := e.mem(8, 0)
	r := e.peerMem()
	r.RKey = badKey(r.RKey)
	c.broken(opWrite.request(9, m.all(), r), ib.WCRemAccessErr)
	c.again()
	opWrite.transfer(c, 100)
}

func mendsPassive(e *End) {
	c := e.connect()
	m := e.mem(8, allAccess)
	m.expose()
	c.again()
	opWrite.take(c, 100)
}

// bound is larger than any device's queue of depth entries.
const bound = 64 * depth

// fullSend posts until the queue is full, which must not be earlier than requested, and must give the right error. When
// there is room again, posting works.
func fullSend(e *End) {
	c := e.connect()
	m := e.mem(8, 0)
	n := 0
	for ; n < bound; n++ {
		if _, err := c.qp.PostSend([]ib.SendWR{{ID: uint64(n), Opcode: ib.WRSend, SGL: m.all()}}); err != nil {
			e.is(err, "posting to a full send queue", ib.ErrQueueFull)
			break
		}
	}
	if n < depth || n == bound {
		e.fatalf("a send queue of %d entries took %d requests", depth, n)
	}
	two := []ib.SendWR{{ID: 1, Opcode: ib.WRSend}, {ID: 2, Opcode: ib.WRSend}}
	if got, err := c.qp.PostSend(two); got != 0 || !errors.Is(err, ib.ErrQueueFull) {
		e.fatalf("the full queue took %d of 2 requests: %w", got, err)
	}
	e.tell("count", n)
	for i := range n {
		c.sq.done(uint64(i), ib.WCSend)
	}
	c.do(ib.SendWR{ID: 1000, Opcode: ib.WRSend, SGL: m.all()})
}

func fullSendPassive(e *End) {
	c := e.connect()
	m := e.mem(8, ib.LocalWrite)
	n := hear[int](e, "count")
	for i := range n + 1 {
		c.recv(uint64(i), m.all())
		c.rq.received(uint64(i), 8)
	}
}

func fullRecv(e *End) {
	c := e.newConn()
	m := e.mem(8, ib.LocalWrite)
	n := 0
	for ; n < bound; n++ {
		if _, err := c.qp.PostRecv([]ib.RecvWR{{ID: uint64(n), SGL: m.all()}}); err != nil {
			e.is(err, "posting to a full receive queue", ib.ErrQueueFull)
			break
		}
	}
	if n < depth || n == bound {
		e.fatalf("a receive queue of %d entries took %d", depth, n)
	}
}

func roomAgain(e *End) {
	c := e.connect()
	m := e.mem(8, 0)
	for range 4 * depth {
		hear[bool](e, "posted")
		c.do(ib.SendWR{Opcode: ib.WRSend, SGL: m.all()})
	}
}

func roomAgainPassive(e *End) {
	c := e.connect()
	m := e.mem(8, ib.LocalWrite)
	for i := range depth {
		c.recv(uint64(i), m.all())
	}
	for i := range 4 * depth {
		e.tell("posted", true)
		c.rq.received(uint64(i), 8)
		c.recv(uint64(i+depth), m.all())
	}
}

// noQueues: a queue pair without queues accepts no requests.
func noQueues(e *End) {
	c := e.lonely(func(s *setup) { s.init.Cap = ib.QPCap{} })
	_, err := c.qp.PostSend([]ib.SendWR{{Opcode: ib.WRSend}})
	e.is(err, "posting to a send queue of 0 entries", ib.ErrQueueFull, ib.ErrInvalid)
	_, err = c.qp.PostRecv([]ib.RecvWR{{}})
	e.is(err, "posting to a receive queue of 0 entries", ib.ErrQueueFull, ib.ErrInvalid)
}
