package qp

import (
	"math/bits"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/wire"
)

// resource is what the responder remembers of a READ or atomic, to answer it and
// to answer it again if the response is lost (IBTA 9.7.5.1.3).
type resource struct {
	kind  resourceKind
	first ib.PSN
	npsn  int
	span  [1]mr.Span

	// READ: the request, and the responses still to send.
	va     uint64
	rkey   ib.Key
	length uint32
	from   ib.PSN // first response of this round: it is a FIRST or ONLY
	cursor ib.PSN // next response
	end    ib.PSN // behind the last one

	// Others: the request and, once executed, the answer.
	op   wire.Op
	a, b uint64    // CAS: swap, compare; FAA: add
	data [8]byte   // ATOMIC WRITE
	feth wire.FETH // FLUSH
	old  uint64

	ready    bool // responses can be made
	pending  bool // responses are to be sent
	answered bool // all responses were sent once
}

type resourceKind uint8

const (
	resNone resourceKind = iota
	resRead
	resAtomic // CAS and FAA: answered by an ATOMIC ACK
	resEmpty  // FLUSH and ATOMIC WRITE: answered by an empty READ response
)

// start lets the whole READ response go out.
func (s *resource) start() {
	s.from, s.cursor, s.end = s.first, s.first, s.first.Add(s.npsn)
	s.ready, s.pending = true, true
}

// answer notes that the request was executed, and the result of an atomic.
func (s *resource) answer(old uint64) {
	s.old = old
	s.ready, s.pending = true, true
}

// resourceTable keeps the latest READs and atomics, as many as the peer may have
// outstanding (MaxDestRdAtomic): a repetition can be of no older one.
type resourceTable struct {
	ring    []resource
	tail    int // next to overwrite, the oldest
	granted int // what the ring was sized for
}

// size makes room for n, rounded up to a power of two: rdma_rxe rounds what it
// keeps in flight up in the same way (rxe_qp.c), so it may send more than it was
// granted.
func (t *resourceTable) size(n int) {
	t.granted = n
	if n > 0 {
		n = 1 << bits.Len(uint(n-1))
	}
	if n != len(t.ring) {
		t.ring = make([]resource, n)
	}
	clear(t.ring)
	t.tail = 0
}

// cancel gives up all responses that are still to be sent. Packets that are built
// already may name a resource's memory, so it stays.
func (t *resourceTable) cancel() {
	for i := range t.ring {
		t.ring[i].pending = false
	}
}

// free reports whether another request fits. The oldest resource must have been
// answered once: a peer with more outstanding than agreed breaks the rules (IBTA
// 9.7.4.1.4; rdma_rxe overwrites instead). One that is being answered again,
// for a request that came late, may go: the new request says so.
func (t *resourceTable) free() bool {
	if len(t.ring) == 0 {
		return false
	}
	s := &t.ring[t.tail]
	return s.kind == resNone || s.answered
}

func (t *resourceTable) push(s resource) *resource {
	at := &t.ring[t.tail]
	*at = s
	t.tail = (t.tail + 1) % len(t.ring)
	return at
}

// next returns the resource whose responses are due: the oldest pending one. A
// resource that is not ready holds back those after it.
func (t *resourceTable) next() *resource {
	for i := range t.ring {
		s := &t.ring[(t.tail+i)%len(t.ring)]
		if s.kind == resNone {
			continue
		}
		if !s.ready {
			return nil
		}
		if s.pending {
			return s
		}
	}
	return nil
}

// find returns the resource that holds a PSN; nil if it is forgotten.
func (t *resourceTable) find(psn ib.PSN) *resource {
	for i := range t.ring {
		s := &t.ring[i]
		if d := psn.Sub(s.first); s.kind != resNone && d >= 0 && d < s.npsn {
			return s
		}
	}
	return nil
}

// readAgain handles the repetition of a READ, whole or from the middle on. It
// must lie within the original request; what does not is dropped.
func (t *resourceTable) readAgain(p *wire.Packet, mtu int) {
	s := t.find(p.PSN)
	if s == nil || s.kind != resRead || !s.ready {
		return
	}
	off := uint64(p.PSN.Sub(s.first)) * uint64(mtu)
	if p.RETH.RKey != s.rkey || p.RETH.VA != s.va+off || off+uint64(p.RETH.Len) > uint64(s.length) {
		return
	}
	n := max(1, (int(p.RETH.Len)+mtu-1)/mtu)
	if s.pending && !p.PSN.Before(s.cursor) {
		return // on its way anyway
	}
	s.from, s.cursor, s.end = p.PSN, p.PSN, p.PSN.Add(n)
	s.pending = true
}

// answerAgain handles the repetition of a request of one packet.
func (t *resourceTable) answerAgain(psn ib.PSN) {
	if s := t.find(psn); s != nil && s.kind != resRead && s.ready {
		s.pending = true
	}
}
