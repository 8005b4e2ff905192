package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/goroce/goroce/ib"
)

func cqCases() []Case {
	return []Case{
		{Name: "cq/entries", Alone: func(e *End) {
			for _, n := range []int{1, 7, 100} {
				if cq := e.newCQ(ib.CQInit{Entries: n}); cq.Entries() < n {
					e.fatalf("a CQ of %d entries has %d", n, cq.Entries())
				}
			}
		}},
		{Name: "cq/vectors", Alone: func(e *End) {
			for v := range e.attr.CompVectors {
				e.newCQ(ib.CQInit{Entries: 1, CompVector: v})
			}
			for _, v := range []int{-1, e.attr.CompVectors} {
				cq, err := e.dev.CreateCQ(ib.CQInit{Entries: 1, CompVector: v})
				if err == nil {
					cq.Close()
				}
				e.names(err, fmt.Sprintf("creating a CQ of vector %d", v), "CompVector", ib.ErrInvalid)
			}
		}},
		{Name: "cq/polls-in-batches", Alone: pollBatches},
		{Name: "cq/resize-keeps-entries", Alone: resizeKeeps},
		{Name: "cq/resize-below-what-is-there", Alone: resizeTooSmall},
		{Name: "cq/resize-down", Alone: resizeDown},
		{Name: "cq/one-for-both-queues", Active: oneCQ, Passive: oneCQ},
		{Name: "cq/shared-by-queue-pairs", Active: func(e *End) { manyOnOne(e, true) },
			Passive: func(e *End) { manyOnOne(e, false) }},
		{Name: "cq/overrun-is-an-event", Alone: overrun},
		{Name: "cq/overrun-ends-the-queue-pair", Alone: overrunQP},
		{Name: "cq/timestamps-rise", Needs: both(ib.CapTimestamp), Active: timestamps, Passive: timestampsPassive},
	}
}

// self creates a queue pair that is connected to itself, and memory that write writes to.
func (e *End) self(change ...func(*setup)) (c *conn, write func(id uint64)) {
	c = e.lonely(change...)
	m := e.mem(16, allAccess)
	return c, func(id uint64) {
		c.post(ib.SendWR{ID: id, Opcode: ib.WRWrite, SGL: m.sgl(0, 8), RemoteAddr: m.addr(8), RKey: m.mr.RKey()})
	}
}

// pile makes n completions, with IDs from 0 on, that are not polled. It waits for the event of each.
func (q *queue) pile(n int, write func(id uint64)) {
	for i := range n {
		q.e.must(q.cq.Arm(false), "arm CQ")
		write(uint64(i))
		q.wait()
	}
}

// wait waits for an event of the queue.
func (q *queue) wait() {
	cq, err := q.ch.Wait(q.e.ctx)
	q.e.must(err, "wait for an event")
	if cq != q.cq {
		q.e.fatalf("the channel returned another CQ than the one that it serves")
	}
}

// quiet fails the half if the channel has an event, now or soon.
func (q *queue) quiet() {
	ctx, cancel := context.WithTimeout(q.e.ctx, 5*time.Millisecond)
	defer cancel()
	switch _, err := q.ch.Wait(ctx); {
	case err == nil:
		q.e.fatalf("an event of a CQ where none is due")
	case !errors.Is(err, context.DeadlineExceeded):
		q.e.fatalf("waiting until a deadline: %w", err)
	}
}

// batch polls up to room completions at once and expects n of them, with IDs from first on.
func (q *queue) batch(room, first, n int) {
	wcs := make([]ib.WC, room)
	got, err := q.cq.Poll(wcs)
	q.e.must(err, "poll with room for %d", room)
	if got != n {
		q.e.fatalf("polling with room for %d returned %d, want %d", room, got, n)
	}
	for i := range n {
		if wcs[i].ID != uint64(first+i) || wcs[i].Status != ib.WCSuccess {
			q.e.fatalf("completion of request %d: %v, want success of request %d", wcs[i].ID, wcs[i].Status, first+i)
		}
	}
}

func pollBatches(e *End) {
	c, write := e.self()
	c.sq.pile(10, write)
	c.sq.batch(0, 0, 0)
	c.sq.batch(1, 0, 1)
	c.sq.batch(3, 1, 3)
	c.sq.batch(100, 4, 6)
	c.sq.batch(1, 0, 0)
}

// resizeKeeps enlarges a CQ with completions in it; then there is room for more.
func resizeKeeps(e *End) {
	q := e.newQueue(depth)
	_, write := e.self(on(q, e.newQueue(1)))
	q.pile(depth, write)
	e.must(q.cq.Resize(4*depth), "resize")
	if q.cq.Entries() < 4*depth {
		e.fatalf("the CQ has %d entries after resizing it to %d", q.cq.Entries(), 4*depth)
	}
	for range 2 {
		q.pile(depth, write)
	}
	for range 3 {
		q.batch(depth, 0, depth)
	}
	q.empty()
}

func resizeTooSmall(e *End) {
	q := e.newQueue(4 * depth)
	_, write := e.self(on(q, e.newQueue(1)))
	q.pile(depth, write)
	before := q.cq.Entries()
	e.names(q.cq.Resize(depth/4), "resizing the CQ below what it holds", "Entries", ib.ErrInvalid)
	if q.cq.Entries() != before {
		e.fatalf("a refused resize changed the CQ from %d to %d entries", before, q.cq.Entries())
	}
	q.batch(depth, 0, depth)
	e.names(q.cq.Resize(0), "resizing the CQ to nothing", "Entries", ib.ErrInvalid)
}

// resizeDown shrinks a CQ repeatedly while it is used.
func resizeDown(e *End) {
	q := e.newQueue(4 * depth)
	_, write := e.self(on(q, e.newQueue(1)))
	for n := 2 * depth; n >= 4; n /= 2 {
		q.pile(3, write)
		e.must(q.cq.Resize(n), "resize to %d", n)
		q.batch(depth, 0, 3)
	}
}

// oneCQ uses one CQ for sends and receives.
func oneCQ(e *End) {
	q := e.newQueue(2 * depth)
	c := e.connect(on(q, q))
	c.recv(1, nil)
	e.sync("posted")
	c.post(ib.SendWR{ID: 2, Opcode: ib.WRSend})
	seen := map[uint64]ib.WCOpcode{}
	for range 2 {
		wc := q.next()
		e.must(wc.Err(), "completion")
		seen[wc.ID] = wc.Opcode
	}
	if seen[1] != ib.WCRecv || seen[2] != ib.WCSend {
		e.fatalf("completions %v, want a receive, 1, and a send, 2", seen)
	}
	e.sync("done")
}

// manyOnOne connects several queue pairs with one CQ: completions have the number of their queue pair.
func manyOnOne(e *End, sends bool) {
	const n = 4
	q := e.newQueue(4 * depth)
	var conns []*conn
	for range n {
		conns = append(conns, e.connect(on(q, q)))
	}
	of := map[ib.QPN]int{}
	for i, c := range conns {
		of[c.qp.Num()] = i
		if !sends {
			c.recv(uint64(i), nil)
		}
	}
	e.sync("posted")
	if sends {
		for i, c := range conns {
			c.post(ib.SendWR{ID: uint64(i), Opcode: ib.WRSend})
		}
	}
	for range n {
		wc := q.next()
		e.must(wc.Err(), "completion")
		if i, ok := of[wc.QPN]; !ok || uint64(i) != wc.ID {
			e.fatalf("completion %d says QP %#x", wc.ID, uint32(wc.QPN))
		}
		delete(of, wc.QPN)
	}
	e.sync("done")
}

// overflow makes more completions than a CQ holds (IBTA 10.2.3, 11.6.3).
func (e *End) overflow() (*conn, *queue) {
	q := e.newQueue(4)
	c, write := e.self(on(q, e.newQueue(1)), func(s *setup) { s.init.Cap.MaxSendWR = 4 * depth })
	room := q.cq.Entries()
	if room >= 4*depth {
		e.skipf("needs a CQ that has the 4 entries it was asked for, not %d", room)
	}
	for i := range room + 2 { // there may be room for one more
		write(uint64(i))
	}
	return c, q
}

func overrun(e *End) {
	_, q := e.overflow()
	e.event(ib.EventCQErr, q.cq)
}

// overrunQP: a queue pair whose completion was lost ends in ERR.
func overrunQP(e *End) {
	c, _ := e.overflow()
	e.event(ib.EventQPFatal, c.qp)
	c.wantState(ib.StateErr)
}

// timestamps: the timestamps of completions are between two readings of the clock, in order.
func timestamps(e *End) {
	c := e.connect()
	r := e.peerMem()
	m := e.mem(8, 0)
	before, err := e.dev.Clock()
	e.must(err, "read the clock")
	last := before
	for i := range 10 {
		wc := c.do(opWrite.request(uint64(i), m.all(), r))
		if wc.Timestamp < last {
			e.fatalf("completion %d is of %d, the one before of %d", i, wc.Timestamp, last)
		}
		last = wc.Timestamp
	}
	after, err := e.dev.Clock()
	e.must(err, "read the clock")
	if last > after || last == before {
		e.fatalf("the last completion is of %d, the clock said %d before and says %d now", last, before, after)
	}
	e.sync("done")
}

func timestampsPassive(e *End) {
	e.connect()
	m := e.mem(8, allAccess)
	m.expose()
	e.sync("done")
}
