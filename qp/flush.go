package qp

import "github.com/goroce/goroce/ib"

// This file is the flush: in ERR, and for send requests in SQE, everything that is queued completes
// with an error (IBTA 10.3.1.5, 10.3.1.6). Queues may be long, and the application may post all the
// time, so a flush is done in parts. It first counts what is posted by then. Each part completes
// FlushMost requests; as long as there are more, Effects.Doorbell asks the owner for the next part.
// What is posted later rings the doorbell, which adds it.

// FlushMost bounds the requests that one input flushes.
const FlushMost = 64

// flush counts what is queued on both queues and completes the first part of it. While a placement
// may still write to memory of a request, the flush waits: a completion would give that
// memory back to the application.
func (q *QP) flush() {
	if q.late.pending() > 0 {
		return
	}
	q.req.startFlush()
	q.resp.startFlush()
	q.flushSome()
}

// flushSome completes the next part of what is to be flushed: send requests first.
func (q *QP) flushSome() {
	n, err := q.req.flush(FlushMost)
	if err != nil {
		q.fatal(ib.ReasonRing)
	}
	q.ring = q.req.toFlush > 0
	if q.state != ib.StateErr || q.ring {
		return
	}
	if q.resp.flush(FlushMost-n) != nil {
		q.fatal(ib.ReasonRing)
	}
	q.ring = q.resp.unflushed()
	if q.usesSRQ() && !q.ring && !q.lastWQE {
		q.lastWQE = true
		q.raise(ib.EventLastWQE)
	}
}

// startFlush makes flush complete all requests that are posted by now.
func (r *requester) startFlush() {
	r.unfetched = false
	r.toFlush = r.tail - r.oldest + uint32(r.q.cfg.SQ.Len())
}

// flush completes up to most of the requests to flush, oldest first: with success those that were answered
// and waited only for placements, unless they are behind the failed one; the failed one
// with its status; the rest with WCWRFlushErr. It returns how many.
func (r *requester) flush(most int) (n int, err error) {
	for ; r.toFlush > 0 && n < most; n++ {
		if r.oldest == r.tail {
			if err = r.fetch(); err != nil || r.oldest == r.tail {
				r.toFlush = 0
				break
			}
		}
		status := ib.WCWRFlushErr
		switch {
		case r.failed.is(r.oldest):
			status, r.failed.set, r.failedFlushed = r.failed.status, false, true
		case !r.failedFlushed && r.slot(r.oldest).acked:
			status = ib.WCSuccess
		}
		r.q.cfg.SQ.Release(1)
		r.finish(r.oldest, status)
		if r.cur == r.oldest {
			r.cur++
		}
		r.oldest++
		r.toFlush--
	}
	return n, err
}

// startFlush makes flush complete all receives that are posted by now.
func (r *responder) startFlush() { r.toFlush = uint32(r.q.cfg.RQ.Available()) }

// unflushed reports whether flush has more to complete.
func (r *responder) unflushed() bool { return !r.commits.empty() || r.recv.held || r.toFlush > 0 }

// flush completes up to most receives: those of commits that wait for placements, then the one in
// use, then those of the ring. Those in an SRQ stay for other QPs.
func (r *responder) flush(most int) error {
	for ; most > 0 && !r.commits.empty(); r.commits.head++ {
		c := r.commits.at(r.commits.head)
		if !c.hasWC {
			continue
		}
		if c.wc.Status == ib.WCSuccess || c.kind == commitRefusal { // not carried out yet
			c.wc.Status, c.wc.VendorErr = ib.WCWRFlushErr, r.q.vendorErr()
		}
		r.q.complete(c.cq, &c.wc, false)
		most--
	}
	for ; most > 0 && r.unflushed(); most-- {
		if !r.recv.held {
			r.toFlush--
			if ok, err := r.popReceive(); !ok || err != nil {
				r.toFlush = 0
				return err
			}
		}
		status := ib.WCWRFlushErr
		if r.recv.spoilt {
			status = ib.WCLocProtErr
		}
		r.endReceive(status)
	}
	return nil
}

// endReceive completes the receive in use with an error.
func (r *responder) endReceive(status ib.WCStatus) {
	wc := ib.WC{ID: r.recv.wr.ID, Status: status, Opcode: ib.WCRecv, VendorErr: r.q.vendorErr()}
	r.recv.held = false
	r.q.complete(r.recv.cq, &wc, false)
}
