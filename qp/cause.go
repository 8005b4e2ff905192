package qp

import (
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/wire"
)

// This file says why requests fail. The checks themselves return a status, a NAK code or a Fault; what they have found
// is looked up again here, once something has failed.

// history is what a QP keeps of what has happened to it. It is allocated with the first packet, or the first failure.
type history struct {
	traffic Traffic
	failed  ib.Failure // the latest way to ERR or SQE
	refused ib.Failure // the peer's latest request that was refused
	cnp     cnps
	again   resent
}

// Failure returns why the QP went to ERR or SQE last, and why it last refused a request of the peer, or dropped a
// message of an unreliable service. Reasons are ReasonNone if it never has.
func (q *QP) Failure() (failed, refused ib.Failure) {
	if q.history == nil {
		return failed, refused
	}
	return q.history.failed, q.history.refused
}

func (q *QP) kept() *history {
	if q.history == nil {
		q.history = &history{}
	}
	return q.history
}

// because notes why the QP is going to ERR or SQE. What fails after that has the same cause.
func (q *QP) because(c ib.Cause) {
	if q.state == ib.StateErr || q.state == ib.StateSQE {
		return
	}
	q.kept().failed = ib.Failure{At: q.now, Cause: c}
	q.recordCause(RecordFailed, &c)
}

// vendorErr returns what completions with an error have in VendorErr: the reason of the failure.
func (q *QP) vendorErr() uint32 {
	if q.history == nil {
		return 0
	}
	return q.history.failed.Cause.Reason.VendorErr()
}

// explain says why a request could not begin, which ended with status.
func (s *sendWQE) explain(q *QP, status ib.WCStatus) ib.Cause {
	c := ib.Cause{Length: uint64(s.length)}
	op := &sendOps[s.wr.Opcode]
	switch {
	case s.invalid != ib.WCSuccess:
		c.Reason = ib.ReasonRequest
	case !SupportsSend(q.cfg.Type, s.wr.Opcode):
		c.Reason = ib.ReasonOpcode
	case s.wr.Opcode == ib.WRBindMW:
		c = q.cfg.Table.ExplainBind(s.fault, s.wr.RKey, s.wr.Bind)
	case op.kind == kindLocal:
		c = q.cfg.Table.Explain(s.fault, s.wr.InvalidateKey, 0, 0, ib.RemoteInvalidate)
	case status == ib.WCLocProtErr:
		c = explainSGL(q.cfg.Table, q.cfg.PD, s.wr.SGL, op.localRights())
	case status == ib.WCLocLenErr && s.tooWide(q, op):
		c.Reason, c.Size = ib.ReasonFrame, uint64(q.cfg.Limits.frame())
	case status == ib.WCLocLenErr:
		c.Reason, c.Size = ib.ReasonRequestLength, maxMessage
		if op.kind == kindAtomic || op.kind == kindAtomicWrite {
			c.Size = 8
		} else if q.svc.datagram {
			c.Size = uint64(q.mtu())
		}
	case op.answered && q.attr.MaxRdAtomic == 0:
		c.Reason = ib.ReasonNoReads
	default:
		c.Reason = ib.ReasonAH
	}
	return c
}

// explainSGL says which of the SGEs of a request or a receive cannot be used.
func explainSGL(t *mr.Table, pd *mr.PD, sgl []ib.SGE, need ib.Access) ib.Cause {
	for _, e := range sgl {
		if e.Length == 0 {
			continue
		}
		if _, fault := t.Check(pd, e.LKey, e.Addr, uint64(e.Length), need); fault != mr.FaultNone {
			return t.Explain(fault, e.LKey, e.Addr, uint64(e.Length), need)
		}
	}
	return ib.Cause{Reason: ib.ReasonUnreadable}
}

// gone says why memory that was checked cannot be read or written: its key has ended, or its process has taken the
// pages away.
func gone(t *mr.Table, sgl mr.SGL) ib.Cause {
	c := ib.Cause{Reason: ib.ReasonUnreadable}
	for _, s := range sgl {
		if s.R == nil {
			continue
		}
		if !s.R.Valid() {
			return t.Explain(mr.FaultKey, s.R.Key(), s.R.Addr()+s.Off, uint64(s.Len), 0)
		}
		if c.Key == 0 {
			c.Key = s.R.Key()
		}
	}
	return c
}

// noAnswer says why no retry is left.
func (g *goBackN) noAnswer() ib.Cause {
	q := g.r.q
	c := ib.Cause{Reason: ib.ReasonLoss, PSN: g.r.win.una, Tries: uint32(q.attr.RetryCnt) + 1, Answers: g.heard}
	if g.heard > 0 {
		return c
	}
	c.Reason = ib.ReasonSilence
	if f := q.cfg.Limits.Unreachable; f != nil {
		if c.Errno = f(q.attr.AH.DGID); c.Errno != 0 {
			c.Reason = ib.ReasonUnreachable
		}
	}
	return c
}

// nakReasons has what NAKs of requests say. Other codes count as operational errors, as nakStatus does.
var nakReasons = map[wire.Syndrome]ib.Reason{
	wire.NAKInvalidRequest: ib.ReasonPeerInvalid,
	wire.NAKRemoteAccess:   ib.ReasonPeerAccess,
}

func badResponse(p *wire.Packet) ib.Cause { return ib.Cause{Reason: ib.ReasonBadResponse, PSN: p.PSN} }

func nakCause(p *wire.Packet) ib.Cause {
	c := ib.Cause{Reason: ib.ReasonPeerFailed, PSN: p.PSN}
	if r, ok := nakReasons[p.AETH.Syndrome]; ok {
		c.Reason = r
	}
	return c
}

// allowed says why a READ or WRITE is not allowed, whatever its memory: the QP does not grant the right, or the message
// is too long.
func (r *responder) allowed(p *wire.Packet, need ib.Access) (why ib.Cause) {
	switch {
	case need&^r.q.attr.Access != 0:
		return ib.Cause{Reason: ib.ReasonQPAccess, Need: need, Have: r.q.attr.Access}
	case p.RETH.Len > maxMessage:
		return ib.Cause{Reason: ib.ReasonLength, Length: uint64(p.RETH.Len), Size: maxMessage}
	}
	return why
}

// tooMany says that the peer has sent one READ or atomic too many.
func (r *responder) tooMany() ib.Cause {
	return ib.Cause{Reason: ib.ReasonReads, Size: uint64(r.q.attr.MaxDestRdAtomic)}
}

// wireOps has the requests of the operations on the wire; SEND and WRITE have several each.
var wireOps = map[wire.Op]ib.WROpcode{
	wire.OpReadRequest: ib.WRRead, wire.OpCompareSwap: ib.WRCompareSwap, wire.OpFetchAdd: ib.WRFetchAdd,
	wire.OpAtomicWrite: ib.WRAtomicWrite, wire.OpFlush: ib.WRFlush,
}

// note records why a request of the peer is refused or dropped.
func (r *responder) note(p *wire.Packet, c ib.Cause) {
	switch {
	case p.Opcode.IsSend():
		r.noteRequest(ib.WRSend, p.PSN, c)
	case p.Opcode.IsWrite():
		r.noteRequest(ib.WRWrite, p.PSN, c)
	default:
		r.noteRequest(wireOps[p.Opcode.Op()], p.PSN, c)
	}
}

func (r *responder) noteRequest(op ib.WROpcode, psn ib.PSN, c ib.Cause) {
	c.Peer, c.Op, c.PSN = true, op, psn
	r.q.kept().refused = ib.Failure{At: r.q.now, Cause: c}
	if c.Reason == ib.ReasonNoReceive {
		r.q.judge(NotReady)
		return
	}
	r.q.judge(Refused)
	r.q.recordCause(RecordRefused, &c)
}

// noteAnswer records that a request cannot be answered, whose memory was good when it came.
func (r *responder) noteAnswer(s *resource) {
	r.noteRequest(wireOps[s.op], s.first, gone(r.q.cfg.Table, s.span[:]))
}

// notReady records that a request finds no receive.
func (r *responder) notReady(p *wire.Packet) {
	c, told := ib.Cause{Reason: ib.ReasonNoReceive, Tries: 1}, &r.q.kept().refused
	began := r.q.now
	if t := told.Cause; t.Reason == ib.ReasonNoReceive && t.PSN == p.PSN { // the same request again
		began = told.At - t.Since
		c.Tries = t.Tries + 1
	}
	c.Since = r.q.now - began
	r.note(p, c)
}

// target returns the memory that the data of a commit goes to, as far as that is known.
func (r *responder) target(c *commit) mr.SGL {
	if c.isSend {
		return r.recv.sgl
	}
	return r.write[:]
}
