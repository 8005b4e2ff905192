package conformance

import (
	"context"
	"fmt"
	"slices"

	"github.com/goroce/goroce/ib"
)

// queue is a CQ with a channel of its own. Cases wait for events, because a guest of the lab has one processor, and
// polling would take it from the device.
type queue struct {
	e  *End
	cq ib.CQ
	ch ib.Channel
}

func (e *End) newQueue(entries int) *queue {
	ch := e.newChannel()
	return &queue{e, e.newCQ(ib.CQInit{Entries: entries, Channel: ch}), ch}
}

// poll polls a completion.
func (q *queue) poll() (wc ib.WC, ok bool) {
	var wcs [1]ib.WC
	n, err := q.cq.Poll(wcs[:])
	q.e.must(err, "poll CQ")
	return wcs[0], n == 1
}

// next waits for the next completion.
func (q *queue) next() ib.WC { return q.await("any request") }

// await waits for the next completion, which should be of what. After arming it polls once more, because completions
// that are in the queue already raise no event.
func (q *queue) await(what string) ib.WC {
	for {
		if wc, ok := q.poll(); ok {
			return wc
		}
		q.e.must(q.cq.Arm(false), "arm CQ")
		if wc, ok := q.poll(); ok {
			return wc
		}
		cq, err := q.ch.Wait(q.e.ctx)
		if err != nil {
			if q.e.ctx.Err() != nil {
				err = context.Cause(q.e.ctx)
			}
			q.e.fatalf("no completion of %s: %w", what, err)
		}
		if cq != q.cq {
			q.e.fatalf("the channel returned another CQ than the one that it serves")
		}
	}
}

// done waits for the next completion, which must be the success of request id.
func (q *queue) done(id uint64, op ib.WCOpcode) ib.WC {
	wc := q.await(fmt.Sprintf("request %d (%v)", id, op))
	if wc.ID != id || wc.Status != ib.WCSuccess || wc.Opcode != op {
		q.e.fatalf("completion of request %d (%v): %v, want success of request %d (%v)", wc.ID, wc.Opcode, wc.Status,
			id, op)
	}
	return wc
}

// succeeds is done for any opcode.
func (q *queue) succeeds(id uint64) ib.WC {
	wc := q.await(fmt.Sprintf("request %d", id))
	if wc.ID != id || wc.Status != ib.WCSuccess {
		q.e.fatalf("completion of request %d: %v, want success of request %d", wc.ID, wc.Status, id)
	}
	return wc
}

// received is done for a receive of n bytes.
func (q *queue) received(id uint64, n int) ib.WC {
	wc := q.done(id, ib.WCRecv)
	if int(wc.ByteLen) != n {
		q.e.fatalf("receive %d has %d bytes, want %d", id, wc.ByteLen, n)
	}
	return wc
}

// fails waits for the next completion, which must be of request id, with status.
func (q *queue) fails(id uint64, status ib.WCStatus) ib.WC {
	wc := q.await(fmt.Sprintf("request %d (to fail)", id))
	if wc.ID != id || wc.Status != status && !q.e.deviates(status, wc.Status) {
		q.e.fatalf("completion of request %d: %v, want %v of request %d", wc.ID, wc.Status, status, id)
	}
	return wc
}

// failsAny is fails if devices may choose between statuses.
func (q *queue) failsAny(id uint64, statuses ...ib.WCStatus) {
	wc := q.await(fmt.Sprintf("request %d (to fail)", id))
	allowed := func(want ib.WCStatus) bool { return wc.Status == want || q.e.deviates(want, wc.Status) }
	if wc.ID != id || !slices.ContainsFunc(statuses, allowed) {
		q.e.fatalf("completion of request %d: %v, want one of %v of request %d", wc.ID, wc.Status, statuses, id)
	}
}

// empty fails the half if there is a completion.
func (q *queue) empty() {
	if wc, ok := q.poll(); ok {
		q.e.fatalf("completion of request %d (%v, %v) that nothing calls for", wc.ID, wc.Opcode, wc.Status)
	}
}
