package conformance

import (
	"context"
	"errors"
	"time"

	"github.com/goroce/goroce/ib"
)

func cqEventCases() []Case {
	return []Case{
		{Name: "cq-events/armed-once-one-event", Alone: armedOnce},
		{Name: "cq-events/not-armed-no-event", Alone: notArmed},
		{Name: "cq-events/what-was-there-before-does-not-count", Alone: armedLate},
		{Name: "cq-events/several-queues-on-a-channel", Alone: severalQueues},
		{Name: "cq-events/wait-ends-with-its-context", Alone: waitCancelled},
		{Name: "cq-events/close-ends-a-wait", Alone: waitClosed},
		{Name: "cq-events/arm-and-wait-is-enough", Active: pingPong, Passive: pingPong},
		{Name: "solicited/send", Active: solicit(opSend), Passive: solicited},
		{Name: "solicited/send-imm", Active: solicit(opSendImm), Passive: solicited},
		{Name: "solicited/write-imm", Active: solicit(opWriteImm), Passive: solicited},
		{Name: "solicited/failure-counts", Alone: solicitedFailure},
	}
}

// armedOnce: two completions after one Arm raise one event.
func armedOnce(e *End) {
	c, write := e.self()
	e.must(c.sq.cq.Arm(false), "arm CQ")
	write(1)
	c.sq.wait()
	write(2)
	c.sq.quiet()
	c.sq.done(1, ib.WCWrite)
	c.sq.done(2, ib.WCWrite)
}

func notArmed(e *End) {
	c, write := e.self()
	write(1)
	c.sq.quiet()
	c.sq.done(1, ib.WCWrite)
}

// armedLate: a completion that is in the queue already raises no event; the next one does.
func armedLate(e *End) {
	c, write := e.self()
	c.sq.pile(1, write)
	e.must(c.sq.cq.Arm(false), "arm CQ")
	c.sq.quiet()
	write(1)
	c.sq.wait()
	c.sq.batch(2, 0, 2)
}

// severalQueues: the channel returns the CQ that has a completion.
func severalQueues(e *End) {
	ch := e.newChannel()
	var queues []*queue
	var writes []func(uint64)
	for range 3 {
		q := &queue{e, e.newCQ(ib.CQInit{Entries: depth, Channel: ch}), ch}
		_, write := e.self(on(q, q))
		queues, writes = append(queues, q), append(writes, write)
	}
	for _, i := range []int{2, 0, 1, 1, 2} {
		for _, q := range queues {
			e.must(q.cq.Arm(false), "arm CQ")
		}
		writes[i](uint64(i))
		queues[i].wait()
		queues[i].done(uint64(i), ib.WCWrite)
	}
}

func waitCancelled(e *End) {
	q := e.newQueue(1)
	ctx, cancel := context.WithCancel(e.ctx)
	cancel()
	if _, err := q.ch.Wait(ctx); !errors.Is(err, context.Canceled) {
		e.fatalf("waiting with a cancelled context returned %w, want context.Canceled", err)
	}
	q.quiet()
}

// waitClosed closes a channel while a goroutine waits for it.
func waitClosed(e *End) {
	ch := e.newChannel()
	ended := make(chan error, 1)
	go func() {
		_, err := ch.Wait(e.ctx)
		ended <- err
	}()
	e.linger(time.Millisecond)
	e.must(ch.Close(), "close a channel that somebody waits on")
	e.is(<-ended, "waiting on a channel that is closed", ib.ErrClosed)
}

// pingPong sends messages back and forth and waits by events only: what arrives after Arm raises one.
func pingPong(e *End) {
	c := e.connect()
	for i := range 20 {
		c.recv(uint64(i), nil)
		e.must(c.rq.cq.Arm(false), "arm CQ")
		e.sync("armed")
		if e.role == Active {
			c.post(ib.SendWR{ID: uint64(i), Opcode: ib.WRSend})
		}
		c.rq.wait()
		c.rq.batch(2, i, 1)
		if e.role == Passive {
			c.post(ib.SendWR{ID: uint64(i), Opcode: ib.WRSend})
		}
		c.sq.done(uint64(i), ib.WCSend)
	}
}

// solicit sends a message without the solicited flag, then a long one with it.
func solicit(o op) func(*End) {
	return func(e *End) {
		c := e.connect()
		r := e.peerMem()
		m := e.mem(3*int(e.mtu()), 0)
		c.do(o.request(1, m.sgl(0, 8), r))
		e.sync("sent")
		e.sync("quiet")
		wr := o.request(2, m.all(), r)
		wr.Flags = ib.SendSolicited
		c.do(wr)
		e.sync("solicited")
	}
}

// solicited arms for solicited events: the first message raises none.
func solicited(e *End) {
	c := e.connect()
	m := e.mem(3*int(e.mtu()), allAccess)
	c.recv(1, m.all())
	c.recv(2, m.all())
	e.must(c.rq.cq.Arm(true), "arm CQ for solicited events")
	m.expose()
	e.sync("sent")
	c.rq.quiet()
	e.sync("quiet")
	c.rq.wait()
	c.rq.succeeds(1)
	c.rq.succeeds(2)
	e.sync("solicited")
}

// solicitedFailure: a failed request counts as solicited (IBTA 11.4.2.2).
func solicitedFailure(e *End) {
	c, write := e.self()
	e.must(c.sq.cq.Arm(true), "arm CQ for solicited events")
	write(1)
	c.sq.quiet()
	c.sq.done(1, ib.WCWrite) // before the QP flushes outstanding requests
	e.must(c.sq.cq.Arm(true), "arm CQ for solicited events")
	c.err()
	c.post(ib.SendWR{ID: 2, Opcode: ib.WRSend})
	c.sq.wait()
	c.sq.fails(2, ib.WCWRFlushErr)
}
