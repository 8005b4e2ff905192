package qp

import (
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/wire"
)

// This file is the responder's side of requests of one packet that are answered
// by a response of their own: CAS, FAA, ATOMIC WRITE and FLUSH. They execute
// once; a duplicate is answered from the resource.

// singleRequest handles one of these requests.
func (r *responder) singleRequest(now ib.Instant, p *wire.Packet) {
	res := resource{first: p.PSN, npsn: 1, op: p.Opcode.Op()}
	var code wire.Syndrome
	var why ib.Cause
	switch res.op {
	case wire.OpFlush:
		code, why = r.openFlush(p, &res)
	case wire.OpAtomicWrite:
		code, why = r.openAtomicWrite(p, &res)
	default:
		code, why = r.openAtomic(p, &res)
	}
	if code != 0 {
		r.refuse(now, p, code, why)
		return
	}
	if res.late() && r.q.cfg.MaxLate == 0 {
		r.noRoom() // Config.MaxLate of 0 allows no placement
		return
	}
	if res.kind == resAtomic {
		r.q.cfg.Stats.RxAtomics++
	}
	kept := r.remember(res)
	r.epsn = p.PSN.Add(1)
	r.commit(now, commit{kind: commitSingle, res: kept, psn: p.PSN, messages: 1}, 0)
}

// openAtomic checks a CAS or FAA. It returns the NAK to send, 0 for none, and why.
func (r *responder) openAtomic(p *wire.Packet, res *resource) (wire.Syndrome, ib.Cause) {
	if why := r.admits(ib.RemoteAtomic, p.Atomic.VA); why.Reason != ib.ReasonNone {
		return wire.NAKInvalidRequest, why
	}
	res.kind, res.a, res.b = resAtomic, p.Atomic.Swap, number(p.Atomic.Compare)
	return r.open(res, p.Atomic.RKey, p.Atomic.VA, 8, ib.RemoteAtomic)
}

// openAtomicWrite checks an ATOMIC WRITE (IBTA A19.4.3): 8 bytes at a multiple
// of 8. It needs RemoteWrite.
func (r *responder) openAtomicWrite(p *wire.Packet, res *resource) (wire.Syndrome, ib.Cause) {
	why := r.admits(ib.RemoteWrite, p.RETH.VA)
	if why.Reason == ib.ReasonNone && p.RETH.Len != 8 {
		why = ib.Cause{Reason: ib.ReasonLength, Length: uint64(p.RETH.Len), Size: 8}
	}
	if why.Reason != ib.ReasonNone {
		return wire.NAKInvalidRequest, why
	}
	res.kind = resEmpty
	res.b = word(p.Payload)
	return r.open(res, p.RETH.RKey, p.RETH.VA, 8, ib.RemoteWrite)
}

// openFlush checks a FLUSH (IBTA A19.4.2). QP and memory must both grant the rights
// for the placement type that is requested.
func (r *responder) openFlush(p *wire.Packet, res *resource) (wire.Syndrome, ib.Cause) {
	need := flushRights(ib.FlushLevel(p.FETH.Placement))
	if need == 0 || p.FETH.Selectivity > uint8(ib.FlushRegion) {
		return wire.NAKInvalidRequest, ib.Cause{Reason: ib.ReasonOpcode}
	}
	if why := r.admits(need, 0); why.Reason != ib.ReasonNone {
		return wire.NAKInvalidRequest, why
	}
	res.kind, res.b = resEmpty, word{p.FETH.Placement, p.FETH.Selectivity}
	if p.FETH.Selectivity == uint8(ib.FlushRegion) { // address and length are not used
		region, fault := r.q.cfg.Table.RemoteRegion(r.pd(), r.q.cfg.Num, p.RETH.RKey, need)
		if fault != mr.FaultNone {
			return wire.NAKRemoteAccess, r.q.cfg.Table.Explain(fault, p.RETH.RKey, 0, 0, need)
		}
		res.span[0] = mr.Span{R: region}
		return 0, ib.Cause{}
	}
	return r.open(res, p.RETH.RKey, p.RETH.VA, uint64(p.RETH.Len), need)
}

// flushRights returns the rights that a FLUSH needs, 0 for a level that does not
// exist.
func flushRights(level ib.FlushLevel) ib.Access {
	need := ib.Access(0)
	if level&ib.FlushGlobally != 0 {
		need |= ib.FlushGlobal
	}
	if level&ib.FlushPersistently != 0 {
		need |= ib.FlushPersistent
	}
	return need
}

// admits says why a request of one packet is not allowed, whatever its memory: the QP does not grant the right, the
// address is not a multiple of 8, or the peer may not have so many requests at a time.
func (r *responder) admits(need ib.Access, va uint64) (why ib.Cause) {
	switch {
	case need&^r.q.attr.Access != 0:
		return ib.Cause{Reason: ib.ReasonQPAccess, Need: need, Have: r.q.attr.Access}
	case va%8 != 0:
		return ib.Cause{Reason: ib.ReasonAlignment, Addr: va}
	case !r.res.free():
		return r.tooMany()
	}
	return why
}

// open checks the memory that a request names and stores it in res.
func (r *responder) open(res *resource, key ib.Key, va, n uint64, need ib.Access) (wire.Syndrome, ib.Cause) {
	span, fault := r.q.cfg.Table.CheckRemote(r.pd(), r.q.cfg.Num, key, va, n, need)
	if fault != mr.FaultNone {
		return wire.NAKRemoteAccess, r.q.cfg.Table.Explain(fault, key, va, n, need)
	}
	res.span[0] = span
	return 0, ib.Cause{}
}

// late reports whether executing the request needs a placement, since its memory is not
// direct. A FLUSH never does; it waits for the placements before it.
func (s *resource) late() bool {
	return (s.kind == resAtomic || s.kind == resEmpty && s.op == wire.OpAtomicWrite) && !s.span[0].R.Direct()
}

// execute executes a request on direct memory and stores the answer.
func (s *resource) execute() error {
	var old uint64
	var err error
	span := s.span[0]
	switch s.op {
	case wire.OpCompareSwap:
		old, err = span.CompareSwap(s.b.number(), s.a)
	case wire.OpFetchAdd:
		old, err = span.FetchAdd(s.a)
	case wire.OpAtomicWrite:
		err = span.AtomicWrite(s.b)
	case wire.OpFlush:
		err = s.flush()
	}
	if err == nil {
		s.answer(old)
	}
	return err
}

// flush makes data that was written before visible or persistent. All requests before
// it in PSN order have been placed by now.
func (s *resource) flush() error {
	span, level, extent := s.span[0], ib.FlushLevel(s.b[0]), ib.FlushExtent(s.b[1])
	if extent == ib.FlushRegion {
		return span.R.Flush(level, 0, span.R.Len())
	}
	return span.R.Flush(level, span.Off, uint64(span.Len))
}

// placement returns the placement that executes the request on memory that is not direct.
func (s *resource) placement() mr.Placement {
	p := mr.Placement{R: s.span[0].R, Off: s.span[0].Off}
	switch s.op {
	case wire.OpCompareSwap:
		p.Kind, p.A, p.B = mr.PlaceCompareSwap, s.b.number(), s.a
	case wire.OpFetchAdd:
		p.Kind, p.A = mr.PlaceFetchAdd, s.a
	case wire.OpAtomicWrite:
		p.Kind, p.Data, p.A = mr.PlaceAtomicWrite, s.b[:], s.b.number()
	}
	return p
}
