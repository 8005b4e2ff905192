package qp

import (
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/wire"
)

// This file is the responder's reorder buffer. A responder answers a gap in the PSNs with one
// sequence NAK and may drop what comes behind it, since the peer sends everything again from
// there on: go-back-N (IBTA 9.7.5.1.2). A packet that is lost again on that second way would
// cost another round. So requests beyond a gap are kept, and one of them stands in for its
// repetition if that is lost: when a request arrives and all between the expected PSN and its
// own are kept, these are executed first.
//
// The peer cannot tell. A kept request is executed in PSN order with all checks, at the moment
// when on a network that loses less its repetition would have been; ACK, MSN, credits, NAK and
// RNR NAK are those that this gives. Nothing is acknowledged beyond the latest request that has
// arrived: rdma_rxe as the requester goes on repeating what such an ACK covers, and completes
// the same request twice (rxe_comp.c check_psn). Nothing is placed early, as programs poll memory.

// Bounds of a reorder buffer.
const (
	reorderBytes = 64 << 20 // of all shards; each QP of one has a quarter of them at most
	reorderShare = 4
	// reorderRest is how long a QP's kept packets are safe from another QP that needs their memory.
	reorderRest = ib.Instant(1_000_000_000)
)

// spareMost is how many packets keep their memory to be used again.
const spareMost = 256

// earlyOverhead is what a kept packet takes beside its payload, in bytes, about.
const earlyOverhead = 256

// Reorder is the memory of a shard for requests that wait for those in front of them.
type Reorder struct {
	most   int           // bytes
	bytes  int           // in use, spare ones included
	spare  []*early      // memory of packets that can be used again
	queues reorderQueue  // the ring of those that keep packets: next is the one that kept one first, prev last
	unused *reorderQueue // the latest one that was given back
}

// NewReorder returns a Reorder for one shard of so many.
func NewReorder(shards int) *Reorder {
	m := &Reorder{most: reorderBytes / shards, spare: make([]*early, 0, spareMost)}
	m.queues.next, m.queues.prev = &m.queues, &m.queues
	return m
}

// early is a kept packet. Its Payload is in buf.
type early struct {
	wire.Packet
	buf []byte
	n   int // its PSNs in reorderQueue.have
}

func (e *early) size() int { return cap(e.buf) + earlyOverhead }

// reorderQueue holds the kept packets of one QP, which has a queue as long as it keeps any.
type reorderQueue struct {
	q       *QP
	packets map[ib.PSN]*early
	have    psnSet // PSNs of packets, within a window
	bytes   int
	low     ib.PSN // no packet before it is kept
	front   ib.PSN // all packets from the expected PSN to here are kept
	used    ib.Instant

	waiting bool // for the late packet gap, until then: neither a NAK nor a SACK was sent (gap.go)
	gap     ib.PSN
	until   ib.Instant

	due     bool       // a SACK is to be sent
	trigger ib.PSN     // for this one
	sackAt  ib.Instant // not before
	sack    []byte     // the latest

	next, prev *reorderQueue // in Reorder.queues
}

// link makes q the last of the queues.
func (m *Reorder) link(q *reorderQueue) {
	q.next, q.prev = &m.queues, m.queues.prev
	q.next.prev, q.prev.next = q, q
}

func (q *reorderQueue) unlink() { q.next.prev, q.prev.next = q.prev, q.next }

// keep keeps p, a request beyond the expected PSN, and reports whether it has: p lies within a
// window, and there is memory.
func (r *responder) keep(now ib.Instant, p *wire.Packet) bool {
	m := r.q.cfg.Limits.Reorder
	if m == nil || p.PSN.Sub(r.epsn) >= windowSize {
		return false
	}
	if r.early == nil {
		r.early = m.open(r.q)
	}
	q := r.early
	q.used = now
	q.unlink()
	m.link(q)
	if q.packets[p.PSN] != nil {
		if !p.Opcode.IsRead() {
			r.twice++
		}
		return true
	}
	e := m.take(now, q, len(p.Payload))
	if e == nil {
		return false
	}
	e.Packet = *p
	e.buf = append(e.buf[:0], p.Payload...)
	e.Payload = e.buf
	e.n = min(span(p, r.q.mtu()), windowSize-p.PSN.Sub(r.epsn))
	q.have.add(p.PSN, e.n)
	q.packets[p.PSN] = e
	return true
}

// open returns an empty queue for a QP.
func (m *Reorder) open(q *QP) *reorderQueue {
	o := m.unused
	if m.unused = nil; o == nil {
		o = &reorderQueue{packets: map[ib.PSN]*early{}}
	}
	o.q, o.low, o.front = q, q.resp.epsn, q.resp.epsn
	o.due, o.sackAt, o.waiting = false, 0, false
	m.link(o)
	return o
}

// take returns memory for a packet of q with n bytes of payload, nil if there is none. What a QP
// has kept for long without adding to it makes room for others.
func (m *Reorder) take(now ib.Instant, q *reorderQueue, n int) *early {
	if q.bytes+n+earlyOverhead > m.most/reorderShare {
		return nil
	}
	for m.bytes+n+earlyOverhead > m.most && len(m.spare) == 0 {
		oldest := m.queues.next
		if oldest == q || now-oldest.used < reorderRest {
			return nil
		}
		oldest.drop(m)
	}
	var e *early
	if last := len(m.spare) - 1; last >= 0 {
		e, m.spare = m.spare[last], m.spare[:last]
		m.bytes -= e.size()
	}
	if e == nil || cap(e.buf) < n {
		e = &early{buf: make([]byte, 0, n)}
	}
	m.bytes += e.size()
	q.bytes += e.size()
	return e
}

// give returns the memory of a packet. again says that nobody reads its payload any more.
func (q *reorderQueue) give(m *Reorder, e *early, again bool) {
	delete(q.packets, e.PSN)
	q.have.remove(e.PSN, e.n)
	q.bytes -= e.size()
	m.bytes -= e.size()
	if again && len(m.spare) < spareMost {
		m.bytes += e.size()
		m.spare = append(m.spare, e)
	}
}

// drop drops all packets, and takes the queue from its QP.
func (q *reorderQueue) drop(m *Reorder) {
	m.bytes -= q.bytes
	q.unlink()
	q.q.resp.early = nil
	clear(q.packets)
	q.have.clear()
	q.q, q.bytes = nil, 0
	m.unused = q
}

// reaches reports whether all requests from epsn up to psn are kept.
func (q *reorderQueue) reaches(epsn, psn ib.PSN, mtu int) bool {
	if q.front.Before(epsn) {
		q.front = epsn
	}
	for q.front.Before(psn) {
		e := q.packets[q.front]
		if e == nil {
			return false
		}
		q.front = q.front.Add(span(&e.Packet, mtu))
	}
	return true
}

// span returns how many PSNs a request takes: a READ has one for each packet of its response.
func span(p *wire.Packet, mtu int) int {
	if !p.Opcode.IsRead() {
		return 1
	}
	return max(1, (int(p.RETH.Len)+mtu-1)/mtu)
}

// standIn executes kept requests in place of those that are lost before psn, if all are kept.
func (r *responder) standIn(now ib.Instant, psn ib.PSN) {
	if r.early != nil && r.early.reaches(r.epsn, psn, r.q.mtu()) {
		r.executeKept(now, psn.Sub(r.epsn))
	}
}

// executeKept executes kept requests that are next, up to most PSNs.
func (r *responder) executeKept(now ib.Instant, most int) {
	for end := r.epsn.Add(most); r.early != nil && r.epsn.Before(end); {
		e := r.early.packets[r.epsn]
		if e == nil {
			return
		}
		before := r.epsn
		if r.handle(now, &e.Packet); r.epsn == before {
			return // no receive, no room, or refused: it is asked for again
		}
		r.q.cfg.Stats.KeptUsed++
		if r.early != nil {
			r.early.give(r.q.cfg.Limits.Reorder, e, r.q.late.pending() == 0)
		}
	}
}

// forgetEarly drops kept packets before the expected PSN, which arrived once more and are executed.
func (r *responder) forgetEarly() {
	q, m := r.early, r.q.cfg.Limits.Reorder
	for ; len(q.packets) > 0 && q.low.Before(r.epsn); q.low = q.low.Add(1) {
		if e := q.packets[q.low]; e != nil {
			q.give(m, e, true)
		}
	}
	if len(q.packets) == 0 {
		q.drop(m)
	}
}
