package conformance

import (
	"time"

	"github.com/goroce/goroce/ib"
)

func toSQD(c *conn) {
	c.modify(ib.QPAttr{State: ib.StateSQD, SQDNotify: true}, ib.AttrState|ib.AttrSQDNotify)
}

// drain takes a queue pair to SQD (IBTA 10.3.1.7): it finishes the message that is under way and raises an event;
// requests that are posted meanwhile wait for RTS. The first message finds no receive at the peer, so it stays under
// way as long as the case needs. A device that has not begun it is drained at once.
func drain(e *End) {
	c := e.connect()
	m := e.mem(64, 0)
	c.post(ib.SendWR{ID: 1, Opcode: ib.WRSend, SGL: m.sgl(0, 1)})
	e.linger(20 * time.Millisecond)
	toSQD(c)
	c.wantState(ib.StateSQD)
	begun := c.query().Draining
	c.post(ib.SendWR{ID: 2, Opcode: ib.WRSend, SGL: m.sgl(0, 2)})
	if begun {
		e.noEvent(ib.EventSQDrained, c.qp)
	}
	e.tell("post receives", true)
	if begun {
		c.sq.done(1, ib.WCSend)
	}
	e.event(ib.EventSQDrained, c.qp)
	if c.query().Draining {
		e.fatalf("the queue is drained, and says that it is draining")
	}
	e.linger(5 * time.Millisecond)
	c.sq.empty()
	c.modify(ib.QPAttr{State: ib.StateRTS}, ib.AttrState)
	if !begun {
		c.sq.done(1, ib.WCSend)
	}
	c.sq.done(2, ib.WCSend)
	c.wantState(ib.StateRTS)
}

func drainPassive(e *End) {
	c := e.connect()
	m := e.mem(64, ib.LocalWrite)
	hear[bool](e, "post receives")
	c.recv(1, m.all())
	c.recv(2, m.all())
	c.rq.received(1, 1)
	c.rq.received(2, 2)
}

// drainedChange changes attributes in SQD that cannot be changed in RTS.
func drainedChange(e *End) {
	c := e.connect()
	toSQD(c)
	e.event(ib.EventSQDrained, c.qp)
	c.modify(ib.QPAttr{Timeout: 17, RetryCnt: 3, RNRRetry: 2}, ib.AttrTimeout|ib.AttrRetryCnt|ib.AttrRNRRetry)
	if a := c.query(); a.Timeout != 17 || a.RetryCnt != 3 || a.RNRRetry != 2 {
		e.fatalf("timeout %d, retries %d and %d after setting 17, 3 and 2 in SQD", a.Timeout, a.RetryCnt, a.RNRRetry)
	}
	c.modify(ib.QPAttr{State: ib.StateRTS}, ib.AttrState)
	opWrite.transfer(c, 3000)
}

func drainedChangePassive(e *End) {
	c := e.connect()
	opWrite.take(c, 3000)
}
