package conformance

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/goroce/goroce/ib"
)

// cqWaitCases: CQ.Wait, on CQs without a channel.
func cqWaitCases() []Case {
	return []Case{
		{Name: "cq-wait/in-order", Alone: waitInOrder},
		{Name: "cq-wait/ping-pong", Active: waitPing, Passive: waitPong},
		{Name: "cq-wait/several-goroutines", Alone: waitMany},
		{Name: "cq-wait/several-queues", Alone: waitQueues},
		{Name: "cq-wait/ends-with-its-context", Alone: waitContext},
		{Name: "cq-wait/close-ends-it", Alone: waitClose},
		{Name: "cq-wait/failed-requests", Alone: waitFailure},
		{Name: "cq-wait/refusals", Alone: waitRefused},
	}
}

// plain creates a CQ without a channel.
func (e *End) plain(entries int) *queue {
	return &queue{e: e, cq: e.newCQ(ib.CQInit{Entries: entries})}
}

// sleeps waits for the next completion, which must be the success of request id.
func (q *queue) sleeps(id uint64) {
	wc, err := ib.WaitOne(q.e.ctx, q.cq)
	q.e.must(err, "wait for request %d", id)
	if wc.ID != id {
		q.e.fatalf("request %d completed, want %d", wc.ID, id)
	}
}

func waitInOrder(e *End) {
	q := e.plain(depth)
	_, write := e.self(on(q, q))
	for i := range uint64(depth) {
		write(i)
	}
	for want := uint64(0); want < depth; {
		wcs := make([]ib.WC, 3)
		n, err := q.cq.Wait(e.ctx, wcs)
		e.must(err, "wait")
		for _, wc := range wcs[:n] {
			if wc.ID != want || wc.Status != ib.WCSuccess {
				e.fatalf("completion of request %d: %v, want success of request %d", wc.ID, wc.Status, want)
			}
			want++
		}
	}
	q.empty()
}

const waitRounds = 100

// waitPing and waitPong send a message back and forth. Each end sleeps until the message comes, before or after it arms
// its CQ: a lost wake-up ends the case by its deadline.
func waitPing(e *End) {
	sq, rq := e.plain(depth), e.plain(depth)
	c := e.connect(on(sq, rq))
	e.sync("posted")
	for i := range uint64(waitRounds) {
		c.recv(i, nil)
		c.post(ib.SendWR{ID: i, Opcode: ib.WRSend})
		rq.sleeps(i)
		sq.sleeps(i)
	}
	e.sync("done")
}

func waitPong(e *End) {
	sq, rq := e.plain(depth), e.plain(depth)
	c := e.connect(on(sq, rq))
	c.recv(0, nil)
	e.sync("posted")
	for i := range uint64(waitRounds) {
		rq.sleeps(i)
		c.recv(i+1, nil)
		c.post(ib.SendWR{ID: i, Opcode: ib.WRSend})
		sq.sleeps(i)
	}
	e.sync("done")
}

// waitMany: several goroutines wait on one CQ. An event wakes one of them, and no completion is left lying.
func waitMany(e *End) {
	const goroutines, each = 4, 25
	q := e.plain(depth)
	_, write := e.self(on(q, q), func(s *setup) { s.init.Cap.MaxSendWR = depth })
	room := make(chan struct{}, depth)
	var seen atomic.Int64
	e.parallel(goroutines+1, func(i int) {
		if i == 0 {
			for id := range uint64(goroutines * each) {
				select {
				case room <- struct{}{}:
					write(id)
				case <-e.ctx.Done():
					e.alive()
				}
			}
			return
		}
		for range each {
			_, err := ib.WaitOne(e.ctx, q.cq)
			e.must(err, "wait")
			seen.Add(1)
			<-room
		}
	})
	if seen.Load() != goroutines*each {
		e.fatalf("%d completions, want %d", seen.Load(), goroutines*each)
	}
	q.empty()
}

// waitQueues: a completion wakes the goroutine that waits on its CQ.
func waitQueues(e *End) {
	var queues []*queue
	var writes []func(uint64)
	for range 3 {
		q := e.plain(depth)
		_, write := e.self(on(q, q))
		queues, writes = append(queues, q), append(writes, write)
	}
	ids := make(chan uint64, len(queues))
	e.parallel(len(queues)+1, func(i int) {
		if i < len(queues) {
			queues[i].sleeps(uint64(i))
			ids <- uint64(i)
			return
		}
		for _, i := range []uint64{1, 2, 0} {
			writes[i](i)
			select {
			case got := <-ids:
				if got != i {
					e.fatalf("a write on CQ %d woke the goroutine that waits on CQ %d", i, got)
				}
			case <-e.ctx.Done():
				e.alive()
			}
		}
	})
}

// waitContext: a call whose context has ended takes no completion with it.
func waitContext(e *End) {
	q := e.plain(depth)
	_, write := e.self(on(q, q))
	ctx, cancel := context.WithCancel(e.ctx)
	ended := make(chan error, 1)
	go func() { ended <- second(ib.WaitOne(ctx, q.cq)) }()
	e.linger(time.Millisecond)
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		e.fatalf("waiting with a cancelled context returned %w, want context.Canceled", err)
	}
	write(1)
	q.sleeps(1)
	ctx, cancel = context.WithTimeout(e.ctx, time.Millisecond)
	defer cancel()
	if _, err := ib.WaitOne(ctx, q.cq); !errors.Is(err, context.DeadlineExceeded) {
		e.fatalf("waiting until a deadline returned %w, want context.DeadlineExceeded", err)
	}
}

func waitClose(e *End) {
	q := e.plain(1)
	ended := make(chan error, 2)
	for range cap(ended) {
		go func() { ended <- second(ib.WaitOne(e.ctx, q.cq)) }()
	}
	e.linger(time.Millisecond)
	e.must(q.cq.Close(), "close a CQ that somebody waits on")
	for range cap(ended) {
		e.is(<-ended, "waiting on a CQ that is closed", ib.ErrClosed)
	}
	e.is(second(ib.WaitOne(e.ctx, q.cq)), "waiting on a closed CQ", ib.ErrClosed)
}

// waitFailure: failed requests are completions with their status as error, and the iteration goes on.
func waitFailure(e *End) {
	q := e.plain(depth)
	c, _ := e.self(on(q, q))
	c.err()
	for i := range uint64(3) {
		c.post(ib.SendWR{ID: i, Opcode: ib.WRSend})
	}
	want := uint64(0)
	for wc, err := range ib.Completions(e.ctx, q.cq) {
		if wc.ID != want || !errors.Is(err, &ib.WCError{Status: ib.WCWRFlushErr}) {
			e.fatalf("completion of request %d with error %w, want flushed request %d", wc.ID, err, want)
		}
		if want++; want == 3 {
			break
		}
	}
	q.empty()
}

func waitRefused(e *End) {
	_, err := e.newQueue(1).cq.Wait(e.ctx, make([]ib.WC, 1))
	e.names(err, "waiting on a CQ with a channel", "CQInit.Channel", ib.ErrState)
	_, err = e.plain(1).cq.Wait(e.ctx, nil)
	e.names(err, "waiting without room for a completion", "len(wcs)", ib.ErrInvalid)
}
