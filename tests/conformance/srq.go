package conformance

import (
	"fmt"

	"github.com/goroce/goroce/ib"
)

// sharedQueue is an SRQ of the half.
type sharedQueue struct {
	e   *End
	srq ib.SRQ
}

func (e *End) newSharedQueue(pd ib.PD) *sharedQueue {
	return &sharedQueue{e, e.newSRQ(pd, ib.SRQInit{SRQAttr: ib.SRQAttr{MaxWR: depth, MaxSGE: 2}})}
}

func (s *sharedQueue) recv(id uint64, sgl []ib.SGE) {
	if _, err := s.srq.PostRecv([]ib.RecvWR{{ID: id, SGL: sgl}}); err != nil {
		s.e.fatalf("post receive %d to the SRQ: %w", id, err)
	}
}

func (s *sharedQueue) modify(a ib.SRQAttr, mask ib.SRQAttrMask) {
	s.e.must(s.srq.Modify(a, mask), "modify SRQ")
}

func (s *sharedQueue) query() ib.SRQAttr {
	a, err := s.srq.Query()
	s.e.must(err, "query SRQ")
	return a
}

// from makes a queue pair take its receives from a shared queue.
func (s *sharedQueue) from(t *setup) {
	t.srq, t.init.SRQ = s, s.srq
	t.init.Cap.MaxRecvWR, t.init.Cap.MaxRecvSGE = 0, 0
}

func srqCases() []Case {
	list := []Case{
		{Name: "srq/rnr-when-empty", Active: rnrWaits(opSend), Passive: srqLate},
		{Name: "srq/shared-by-queue-pairs", Active: srqSends(3), Passive: srqShared},
		{Name: "srq/limit-event", Active: srqTurns, Passive: srqLimit},
		{Name: "srq/limit-event-comes-once", Active: srqTurns, Passive: srqLimitOnce},
		{Name: "srq/limit-above-what-is-there", Alone: srqLimitAtOnce},
		{Name: "srq/resize-keeps-receives", Active: srqSends(1), Passive: srqResize},
		{Name: "srq/resize-below-what-is-there", Alone: srqTooSmall},
		{Name: "srq/last-receive-of-a-queue-pair", Active: func(e *End) { e.connect(); e.sync("done") },
			Passive: srqLast},
		{Name: "srq/a-queue-pair-ends-the-others-go-on", Active: srqSends(2), Passive: srqOneEnds},
		{Name: "srq/pd-is-that-of-the-srq", Active: srqSends(1), Passive: srqOwnPD},
		{Name: "srq/pd-is-not-that-of-the-queue-pair", Active: srqWrongPD, Passive: srqWrongPDPassive},
		{Name: "srq/full", Alone: srqFull},
		{Name: "srq/too-many-sges", Alone: func(e *End) {
			s, m := e.newSharedQueue(e.pd()), e.mem(64, ib.LocalWrite)
			sgl := make([]ib.SGE, e.attr.MaxSRQSGE+1)
			for i := range sgl {
				sgl[i] = m.sge(i, 1)
			}
			_, err := s.srq.PostRecv([]ib.RecvWR{{SGL: sgl}})
			e.names(err, "posting more SGEs than the device has", "SGL", ib.ErrInvalid)
		}},
		{Name: "srq/queue-pair-has-no-receive-queue", Alone: func(e *End) {
			s := e.newSharedQueue(e.pd())
			c := e.newConn(s.from)
			_, err := c.qp.PostRecv([]ib.RecvWR{{ID: 1}})
			e.is(err, "posting a receive to a queue pair on an SRQ", ib.ErrInvalid, ib.ErrState, ib.ErrNotSupported)
		}},
		{Name: "srq/query", Alone: func(e *End) {
			s := e.newSharedQueue(e.pd())
			if a := s.query(); a.MaxWR < depth || a.MaxSGE < 2 || a.Limit != 0 || s.srq.Num() != 0 {
				e.fatalf("query says %+v, number %d", a, s.srq.Num())
			}
		}},
		{Name: "srq/bad-attributes", Alone: srqBad},
	}
	for _, t := range []ib.QPType{ib.RC, ib.UC} {
		for _, o := range []op{opSend, opSendImm, opWriteImm} {
			list = append(list, Case{
				Name:   fmt.Sprintf("srq/%v/%s", t, o.name),
				Active: func(e *End) { c := e.connect(service(t)); o.transfer(c, 5000) },
				Passive: func(e *End) {
					c := e.connect(e.newSharedQueue(e.pd()).from, service(t))
					o.take(c, 5000)
				},
			})
		}
	}
	return append(list, Case{Name: "srq/UD/send", Active: func(e *End) { udSend(e, opSend, 100) },
		Passive: srqDatagram})
}

func service(t ib.QPType) func(*setup) { return func(s *setup) { s.init.Type = t } }

func srqDatagram(e *End) {
	s := e.newSharedQueue(e.pd())
	d := e.datagram(s.from)
	m := e.mem(ib.GRHLen+100, ib.LocalWrite)
	s.recv(1, m.all())
	e.tell("receive posted", true)
	if wc := d.rq.received(1, ib.GRHLen+100); wc.SrcQP != d.peer.QPN {
		e.fatalf("the datagram is from QP %#x", uint32(wc.SrcQP))
	}
	d.seen(m, 0, pattern(1, 100))
	e.sync("moved")
}

func srqLate(e *End) {
	s := e.newSharedQueue(e.pd())
	c := e.connect(s.from)
	n := 3 * int(e.mtu())
	m := e.mem(n, ib.LocalWrite)
	m.expose()
	hear[bool](e, "posted")
	s.recv(1, m.all())
	c.rq.received(1, n)
	m.want(0, pattern(1, n))
	m.check()
}

// srqSends makes n connections and sends on each, in turn, messages of increasing length.
func srqSends(n int) func(*End) {
	return func(e *End) {
		var conns []*conn
		for range n {
			conns = append(conns, e.connect())
		}
		m := e.mem(64, 0)
		e.sync("ready")
		for i := range 6 {
			c := conns[i%n]
			c.do(ib.SendWR{ID: uint64(i), Opcode: ib.WRSend, SGL: m.sgl(0, i)})
		}
		e.sync("done")
	}
}

// srqShared: the oldest receive goes to the queue pair that needs one first.
func srqShared(e *End) {
	s := e.newSharedQueue(e.pd())
	rq := e.newQueue(depth)
	sq := e.newQueue(depth)
	var conns []*conn
	for range 3 {
		conns = append(conns, e.connect(s.from, on(sq, rq)))
	}
	m := e.mem(64, ib.LocalWrite)
	for i := range 6 {
		s.recv(uint64(i), m.all())
	}
	e.sync("ready")
	for i := range 6 {
		if wc := rq.received(uint64(i), i); wc.QPN != conns[i%3].qp.Num() {
			e.fatalf("message %d completes for QP %#x, not %#x", i, uint32(wc.QPN), uint32(conns[i%3].qp.Num()))
		}
	}
	e.sync("done")
}

// srqTurns sends a message each time that it is told to, and returns when told to.
func srqTurns(e *End) {
	c := e.connect()
	for hear[bool](e, "more") {
		c.do(ib.SendWR{Opcode: ib.WRSend})
	}
}

// turn makes the other half send a message.
func (c *conn) turn(id uint64) {
	c.e.tell("more", true)
	c.rq.received(id, 0)
}

// srqLimit: the event is raised when fewer receives than the limit are left, not earlier, and the limit is then
// disarmed.
func srqLimit(e *End) {
	s := e.newSharedQueue(e.pd())
	c := e.connect(s.from)
	for i := range 4 {
		s.recv(uint64(i), nil)
	}
	s.modify(ib.SRQAttr{Limit: 3}, ib.SRQLimit)
	if a := s.query(); a.Limit != 3 {
		e.fatalf("the limit is %d after setting 3", a.Limit)
	}
	c.turn(0) // 3 are left
	e.noEvent(ib.EventSRQLimit, s.srq)
	c.turn(1) // 2 are left
	e.event(ib.EventSRQLimit, s.srq)
	if a := s.query(); a.Limit != 0 {
		e.fatalf("the limit is %d after its event", a.Limit)
	}
	e.tell("more", false)
}

func srqLimitOnce(e *End) {
	s := e.newSharedQueue(e.pd())
	c := e.connect(s.from)
	for i := range 6 {
		s.recv(uint64(i), nil)
	}
	for i := range 3 {
		s.modify(ib.SRQAttr{Limit: 6 - 2*i}, ib.SRQLimit)
		c.turn(uint64(2 * i))
		e.event(ib.EventSRQLimit, s.srq)
		c.turn(uint64(2*i + 1))
		e.noEvent(ib.EventSRQLimit, s.srq)
	}
	e.tell("more", false)
}

func srqLimitAtOnce(e *End) {
	s := e.newSharedQueue(e.pd())
	s.recv(1, nil)
	s.modify(ib.SRQAttr{Limit: 2}, ib.SRQLimit)
	e.event(ib.EventSRQLimit, s.srq)
}

func srqResize(e *End) {
	s := e.newSharedQueue(e.pd())
	c := e.connect(s.from)
	m := e.mem(64, ib.LocalWrite)
	for i := range 3 {
		s.recv(uint64(i), m.all())
	}
	s.modify(ib.SRQAttr{MaxWR: 4 * depth}, ib.SRQMaxWR)
	if a := s.query(); a.MaxWR < 4*depth {
		e.fatalf("the SRQ holds %d after resizing it to %d", a.MaxWR, 4*depth)
	}
	for i := range 4*depth - 3 {
		s.recv(uint64(3+i), m.all())
	}
	e.sync("ready")
	for i := range 6 {
		c.rq.received(uint64(i), i)
	}
	e.sync("done")
}

func srqTooSmall(e *End) {
	s := e.newSharedQueue(e.pd())
	for i := range depth {
		s.recv(uint64(i), nil)
	}
	err := s.srq.Modify(ib.SRQAttr{MaxWR: depth / 4}, ib.SRQMaxWR)
	e.names(err, "resizing the SRQ below what it holds", "MaxWR", ib.ErrInvalid)
	if a := s.query(); a.MaxWR < depth {
		e.fatalf("a refused resize left %d entries", a.MaxWR)
	}
}

// srqLast: a queue pair on an SRQ has no receives of its own to flush; an event says that it will take no more (IBTA
// 11.6.3.2).
func srqLast(e *End) {
	s := e.newSharedQueue(e.pd())
	c := e.connect(s.from)
	s.recv(1, nil)
	c.err()
	e.event(ib.EventLastWQE, c.qp)
	c.rq.empty()
	e.sync("done")
}

// srqOneEnds: one of three queue pairs on an SRQ goes to ERR and takes no receive with it; the two others use them all.
func srqOneEnds(e *End) {
	s := e.newSharedQueue(e.pd())
	a, b := e.connect(s.from), e.connect(s.from)
	third := e.into(ib.StateRTS, s.from)
	m := e.mem(64, ib.LocalWrite)
	for i := range 6 {
		s.recv(uint64(i), m.all())
	}
	third.err()
	e.event(ib.EventLastWQE, third.qp)
	third.rq.empty()
	e.sync("ready")
	for i := range 6 {
		c := a
		if i%2 == 1 {
			c = b
		}
		c.rq.received(uint64(i), i)
	}
	e.sync("done")
}

// srqOwnPD: the memory of a receive must be in the SRQ's PD, whatever the PD of the queue pair (IBTA 10.2.9.1).
func srqOwnPD(e *End) {
	pd := e.newPD()
	s := e.newSharedQueue(pd)
	c := e.connect(s.from)
	m := e.memIn(pd, 64, ib.LocalWrite)
	for i := range 6 {
		s.recv(uint64(i), m.all())
	}
	e.sync("ready")
	for i := range 6 {
		c.rq.received(uint64(i), i)
	}
	e.sync("done")
}

func srqWrongPD(e *End) {
	c := e.connect()
	m := e.mem(8, 0)
	hear[bool](e, "posted")
	c.broken(ib.SendWR{ID: 1, Opcode: ib.WRSend, SGL: m.all()}, ib.WCRemOpErr)
	e.sync("failed")
}

func srqWrongPDPassive(e *End) {
	s := e.newSharedQueue(e.newPD())
	c := e.connect(s.from)
	m := e.mem(8, ib.LocalWrite)
	s.recv(1, m.all())
	e.tell("posted", true)
	c.rq.fails(1, ib.WCLocProtErr)
	e.sync("failed")
	m.check()
}

func srqFull(e *End) {
	s := e.newSharedQueue(e.pd())
	n := 0
	for ; n < bound; n++ {
		if _, err := s.srq.PostRecv([]ib.RecvWR{{ID: uint64(n)}}); err != nil {
			e.is(err, "posting to a full SRQ", ib.ErrQueueFull)
			break
		}
	}
	if n < depth || n == bound {
		e.fatalf("an SRQ of %d entries took %d receives", depth, n)
	}
}

func srqBad(e *End) {
	for _, b := range []struct {
		attr string
		init ib.SRQAttr
	}{
		{"MaxWR", ib.SRQAttr{MaxWR: e.attr.MaxSRQWR + 1, MaxSGE: 1}},
		{"MaxSGE", ib.SRQAttr{MaxWR: 1, MaxSGE: e.attr.MaxSRQSGE + 1}},
	} {
		srq, err := e.pd().CreateSRQ(ib.SRQInit{SRQAttr: b.init})
		if err == nil {
			srq.Close()
		}
		e.names(err, "creating an SRQ beyond the device's "+b.attr, b.attr, ib.ErrInvalid, ib.ErrLimit)
	}
	s := e.newSharedQueue(e.pd())
	capacity := s.query().MaxWR
	err := s.srq.Modify(ib.SRQAttr{Limit: capacity + 1}, ib.SRQLimit)
	e.names(err, "setting the limit above the SRQ's size", "Limit", ib.ErrInvalid)
	err = s.srq.Modify(ib.SRQAttr{MaxWR: e.attr.MaxSRQWR + 1}, ib.SRQMaxWR)
	e.names(err, "resizing the SRQ beyond the device's limit", "MaxWR", ib.ErrInvalid, ib.ErrLimit)
}
