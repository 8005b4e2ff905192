package qp

import (
	"encoding/binary"
	"math/bits"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/wire"
)

// resource is what the responder remembers of a READ or atomic, to answer it and
// to answer it again if the response is lost (IBTA 9.7.5.1.3). A QP allocates
// MaxDestRdAtomic of them, so a and b are shared by all kinds to keep them small.
type resource struct {
	kind     resourceKind
	op       wire.Op
	ready    bool // responses can be built
	pending  bool // responses are to be sent
	answered bool // all responses were sent once
	begins   bool // READ: the next response is FIRST or ONLY
	again    bool // a duplicate of the request has arrived

	first  ib.PSN
	npsn   int32
	cursor ib.PSN // READ: next response
	end    ib.PSN // READ: the PSN after the last response

	span [1]mr.Span // READ: of the length asked for

	a uint64 // READ: VA; CAS: swap; FAA: add; both, once executed: the value before
	b word   // READ: R_Key; CAS: compare; ATOMIC WRITE: what to write; FLUSH: level, extent
}

// word is a number in host byte order, or 8 bytes as they are.
type word [8]byte

func number(v uint64) (w word) {
	putNative(w[:], v)
	return w
}

func (w *word) number() uint64 { return binary.NativeEndian.Uint64(w[:]) }

type resourceKind uint8

const (
	resNone resourceKind = iota
	resRead
	resAtomic // CAS and FAA: answered by an ATOMIC ACK
	resEmpty  // FLUSH and ATOMIC WRITE: answered by an empty READ response
)

// start makes the whole READ response pending.
func (s *resource) start() {
	s.cursor, s.end = s.first, s.first.Add(int(s.npsn))
	s.ready, s.pending, s.begins = true, true, true
}

// answer stores the result of an executed request and makes its response pending.
func (s *resource) answer(old uint64) {
	s.a = old
	s.ready, s.pending = true, true
}

// resourceTable keeps the latest READs and atomics, as many as the peer may have
// outstanding (MaxDestRdAtomic): the peer never repeats an older one.
type resourceTable struct {
	ring    []resource
	tail    int   // next to overwrite, the oldest
	granted int32 // what the ring was sized for
	idle    bool  // next has found nothing pending, and nothing became pending since
}

// size allocates n resources, rounded up to a power of two: rdma_rxe rounds the number
// it keeps in flight up in the same way (rxe_qp.c), so it may send more than it was
// granted. Only Modify may call it, since it allocates.
func (t *resourceTable) size(n int) {
	t.granted = int32(n)
	if n > 0 {
		n = 1 << bits.Len(uint(n-1))
	}
	if n != len(t.ring) {
		t.ring = make([]resource, n)
	}
	clear(t.ring)
	t.tail = 0
}

// cancel drops all pending responses. It keeps the resources, since packets that are
// built already may refer to their memory.
func (t *resourceTable) cancel() {
	for i := range t.ring {
		t.ring[i].pending = false
	}
}

// free reports whether another request fits. The oldest resource must have been
// answered once: a peer must not have more outstanding than agreed (IBTA 9.7.4.1.4;
// rdma_rxe overwrites instead). A resource that is being answered again, for a late
// duplicate, may be replaced: the new request shows that the peer has its answer.
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
	t.idle = false
	return at
}

// next returns the oldest pending resource. A resource that is not ready holds back
// those after it. next is called for every packet, and most QPs seldom have a pending
// resource: searching the whole ring each time would cost more than building the packet,
// so idle remembers that there is none.
func (t *resourceTable) next() *resource {
	if t.idle {
		return nil
	}
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
	t.idle = true
	return nil
}

// find returns the resource whose PSNs include psn; nil if there is none any more.
func (t *resourceTable) find(psn ib.PSN) *resource {
	for i := range t.ring {
		if s := &t.ring[i]; s.includes(psn) {
			return s
		}
	}
	return nil
}

// holds reports whether a repeated READ lies within the original, which has its answer.
func (s *resource) holds(p *wire.Packet, mtu int) bool {
	off := uint64(p.PSN.Sub(s.first)) * uint64(mtu)
	return s.kind == resRead && s.ready && uint64(p.RETH.RKey) == s.b.number() && p.RETH.VA == s.a+off &&
		off+uint64(p.RETH.Len) <= uint64(s.span[0].Len)
}

// repeat makes a part of a READ response pending again.
func (s *resource) repeat(part psnRange) {
	s.cursor, s.end = part.from, part.to
	s.pending, s.begins, s.again = true, true, true
}

// extend makes a part that touches the one that is pending pending with it.
func (s *resource) extend(part psnRange) {
	if part.from.Before(s.cursor) {
		s.cursor, s.begins = part.from, true
	}
	s.end, s.again = laterPSN(s.end, part.to), true
}

// includes reports whether psn is one of those of s.
func (s *resource) includes(psn ib.PSN) bool {
	d := psn.Sub(s.first)
	return s.kind != resNone && d >= 0 && d < int(s.npsn)
}

// answerAgain handles the repetition of a request of one packet, likewise.
func (t *resourceTable) answerAgain(psn ib.PSN) bool {
	if s := t.find(psn); s != nil && s.kind != resRead && s.ready {
		s.pending, s.again, t.idle = true, true, false
		return true
	}
	return false
}
