package qp

import (
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/wire"
)

// sendWQE is a send work queue element: the QP's own copy of a request, and its
// progress.
type sendWQE struct {
	wr     ib.SendWR
	sgl    mr.SGL
	length uint32
	first  ib.PSN // PSN of the first packet, once begun
	npsn   int    // PSNs that the message takes
	cost   int    // bytes that the Flow charges for each PSN
	ssn    ib.PSN // send sequence number, for credits (IBTA 9.7.7.2.5)
	ah     *AH    // UD
	index  uint32 // of the slot, before masking
	begun  bool
	// invalid is the status that the request completes with if no QP could carry it out; else
	// WCSuccess.
	invalid ib.WCStatus
	fault   mr.Fault // of carryOut
	slow    bool     // the payload is not all in direct memory: it must be fetched
	train   bool     // a WRITE that is sent as WRITE ONLYs, each a message to the peer
	sent    bool     // every PSN has been sent
	acked   bool     // in ERR: all answers had arrived before, only placements may be missing
	since   uint32   // when it was taken from the send queue (micros)
	late    int      // unfinished placements into sgl
	result  [8]byte  // atomics: the value that memory held before
}

// last is the PSN of the message's last packet.
func (s *sendWQE) last() ib.PSN { return s.first.Add(s.npsn - 1) }

// from is how many PSNs the message has from psn on, which must be one of its own. A
// message of 2^31 bytes has 2^23 PSNs at an MTU of 256. Its first PSN then compares as
// later than the one after its last, so these two must not be compared.
func (s *sendWQE) from(psn ib.PSN) int { return s.npsn - psn.Sub(s.first) }

// packetOverhead is what the Flow charges for a packet in addition to its payload.
const packetOverhead = 64

// begin resolves the local memory and gives the message its PSNs, from psn on.
// It returns the status to fail with, or WCSuccess.
func (s *sendWQE) begin(q *QP, psn, ssn ib.PSN) ib.WCStatus {
	op := &sendOps[s.wr.Opcode]
	s.first, s.ssn, s.npsn = psn, ssn, 0
	if op.kind == kindLocal {
		return s.carryOut(q)
	}
	if status := s.resolve(q, op); status != ib.WCSuccess {
		return status
	}
	if op.answered && q.attr.MaxRdAtomic == 0 {
		return ib.WCLocQPOpErr // it could never be sent
	}
	mtu := q.mtu()
	s.npsn = 1
	if op.kind == kindPush || op.kind == kindRead {
		s.npsn = max(1, (int(s.length)+mtu-1)/mtu)
	}
	if q.svc.datagram {
		if status := s.address(q); status != ib.WCSuccess {
			return status
		}
	}
	if s.tooWide(q, op) {
		return ib.WCLocLenErr
	}
	s.train = q.cfg.Trains && s.wr.Opcode == ib.WRWrite && q.svc.reliable
	s.cost = min(int(s.length), mtu) + packetOverhead
	s.begun = true
	return ib.WCSuccess
}

// beginLike is begin for a WRITE of one packet that is like the one before, which has been sent: it has as many bytes,
// inline or in the same region, and the same R_Key. It takes s as sent. If it returns false, s is to begin by itself.
func (s *sendWQE) beginLike(before *sendWQE, psn, ssn ib.PSN) bool {
	if s.begun || s.invalid != ib.WCSuccess || s.wr.Opcode != ib.WRWrite || s.wr.RKey != before.wr.RKey ||
		(s.wr.Flags^before.wr.Flags)&ib.SendInline != 0 || s.wr.Flags&ib.SendFence != 0 {
		return false
	}
	s.sgl = s.sgl[:0]
	if s.wr.Flags&ib.SendInline != 0 {
		if len(s.wr.Inline) != int(before.length) {
			return false
		}
	} else {
		if len(s.wr.SGL) != 1 || len(before.sgl) != 1 {
			return false
		}
		span, ok := mr.Again(before.sgl[0].R, &s.wr.SGL[0])
		if !ok || span.Len != before.length {
			return false
		}
		s.sgl = append(s.sgl, span)
	}
	s.first, s.ssn, s.npsn, s.length, s.cost = psn, ssn, 1, before.length, before.cost
	s.train, s.slow, s.begun, s.sent = true, false, true, true
	return true
}

// tooWide reports whether packets of the message, or of the response to a READ, do not fit a frame. Packets of less
// than the path MTU are no way out: the responder refuses a FIRST or MIDDLE that does not fill it (IBTA 9.7.4.1.6).
func (s *sendWQE) tooWide(q *QP, op *sendOp) bool {
	return (op.kind == kindPush || op.kind == kindRead) && !q.fits(int(s.length))
}

// fits reports whether packets of a message with so many bytes fit frames of the port. They always do unless the QP got
// a path MTU above the port's: one whose port's MTU has become less repeats packets, as the MTU may come back.
func (q *QP) fits(length int) bool {
	return !q.wide || min(length, int(q.attr.PathMTU)) <= q.cfg.Limits.frame()
}

// frame is the most payload that fits a frame of the port.
func (l *Limits) frame() int { return max(l.Frame, int(l.MTU)) }

// messages is how many messages the peer counts in its MSN.
func (s *sendWQE) messages() int {
	if s.train {
		return s.npsn
	}
	return min(s.npsn, 1)
}

// resolve checks the local memory of a request and sets sgl, length and slow.
func (s *sendWQE) resolve(q *QP, op *sendOp) ib.WCStatus {
	need := op.localRights()
	s.sgl, s.slow = s.sgl[:0], false
	s.length = uint32(len(s.wr.Inline))
	if s.wr.Flags&ib.SendInline == 0 {
		var fault mr.Fault
		if s.sgl, fault = q.cfg.Table.Resolve(q.cfg.PD, s.wr.SGL, need, s.sgl); fault != mr.FaultNone {
			return ib.WCLocProtErr
		}
		total := s.sgl.Len()
		if total > maxMessage {
			return ib.WCLocLenErr
		}
		s.length = uint32(total)
		s.slow = need == 0 && !s.sgl.Direct()
	}
	if (op.kind == kindAtomic || op.kind == kindAtomicWrite) && s.length != 8 {
		return ib.WCLocLenErr
	}
	return ib.WCSuccess
}

// address looks up the address handle of a datagram, and refuses a datagram that is
// longer than a packet (IBTA 9.8.3).
func (s *sendWQE) address(q *QP) ib.WCStatus {
	if s.npsn > 1 {
		return ib.WCLocLenErr
	}
	s.ah = q.cfg.AHs.AH(s.wr.AH)
	if s.ah == nil || s.ah.PD != q.cfg.PD {
		return ib.WCLocQPOpErr
	}
	return ib.WCSuccess
}

// carryOut executes a request that needs no packet.
func (s *sendWQE) carryOut(q *QP) ib.WCStatus {
	if s.wr.Opcode == ib.WRBindMW {
		s.fault = q.cfg.Table.Bind(q.cfg.PD, q.cfg.Num, s.wr.RKey, s.wr.Bind)
	} else {
		s.fault = q.cfg.Table.Invalidate(q.cfg.PD, q.cfg.Num, s.wr.InvalidateKey)
	}
	if s.fault != mr.FaultNone {
		return ib.WCMWBindErr
	}
	s.length, s.begun = 0, true
	return ib.WCSuccess
}

// mtu is the most payload that a packet of the QP carries.
func (q *QP) mtu() int {
	if q.svc.datagram {
		return int(q.cfg.Limits.MTU)
	}
	return int(q.attr.PathMTU)
}

// maxMessage is the longest message: 2^31 bytes (IBTA C9-4).
const maxMessage = 1 << 31

// sendKind says in which direction a request moves data and how it is answered.
type sendKind uint8

const (
	kindNone        sendKind = iota
	kindPush                 // SEND and WRITE: data to the peer, answered by an ACK
	kindRead                 // READ: data from the peer
	kindAtomic               // CAS and FAA: 8 bytes from the peer
	kindAtomicWrite          // ATOMIC WRITE: 8 bytes to the peer, answered by an empty READ response
	kindFlush                // FLUSH: answered by an empty READ response
	kindLocal                // no packet at all
)

// sendOp describes a work request opcode: the opcodes of its packets by position, and
// the opcode of its completion.
type sendOp struct {
	kind     sendKind
	recv     bool // consumes a receive at the peer
	answered bool // takes one of the peer's responder resources
	segments      // requests of one packet have only
	wc       ib.WCOpcode
}

// localRights returns the rights that the local memory of a request needs.
func (op *sendOp) localRights() ib.Access {
	if op.kind == kindRead || op.kind == kindAtomic {
		return ib.LocalWrite
	}
	return 0
}

// segments holds the operation of a message's packets by position (IBTA 9.3.3).
type segments struct{ first, middle, last, only wire.Op }

// at returns the operation of a packet.
func (s *segments) at(isFirst, isLast bool) wire.Op {
	switch {
	case isFirst && isLast:
		return s.only
	case isFirst:
		return s.first
	case isLast:
		return s.last
	}
	return s.middle
}

// sendOps is the same for all services; the table services lists which of them each has.
var sendOps = [256]sendOp{
	ib.WRSend: push(ib.WCSend, true, wire.OpSendFirst, wire.OpSendMiddle, wire.OpSendLast, wire.OpSendOnly),
	ib.WRSendImm: push(ib.WCSend, true, wire.OpSendFirst, wire.OpSendMiddle, wire.OpSendLastImm,
		wire.OpSendOnlyImm),
	ib.WRSendInv: push(ib.WCSend, true, wire.OpSendFirst, wire.OpSendMiddle, wire.OpSendLastInv,
		wire.OpSendOnlyInv),
	ib.WRWrite: push(ib.WCWrite, false, wire.OpWriteFirst, wire.OpWriteMiddle, wire.OpWriteLast,
		wire.OpWriteOnly),
	ib.WRWriteImm: push(ib.WCWrite, true, wire.OpWriteFirst, wire.OpWriteMiddle, wire.OpWriteLastImm,
		wire.OpWriteOnlyImm),
	ib.WRRead: {kind: kindRead, answered: true, segments: segments{only: wire.OpReadRequest}, wc: ib.WCRead},
	ib.WRCompareSwap: {kind: kindAtomic, answered: true, segments: segments{only: wire.OpCompareSwap},
		wc: ib.WCCompareSwap},
	ib.WRFetchAdd: {kind: kindAtomic, answered: true, segments: segments{only: wire.OpFetchAdd}, wc: ib.WCFetchAdd},
	ib.WRAtomicWrite: {kind: kindAtomicWrite, answered: true, segments: segments{only: wire.OpAtomicWrite},
		wc: ib.WCAtomicWrite},
	ib.WRFlush:    {kind: kindFlush, answered: true, segments: segments{only: wire.OpFlush}, wc: ib.WCFlush},
	ib.WRLocalInv: {kind: kindLocal, wc: ib.WCLocalInv},
	ib.WRBindMW:   {kind: kindLocal, wc: ib.WCBindMW},
}

func push(wc ib.WCOpcode, recv bool, first, middle, last, only wire.Op) sendOp {
	return sendOp{kind: kindPush, recv: recv, segments: segments{first, middle, last, only}, wc: wc}
}

// packet builds the packet that carries the message's PSN psn. A retransmission
// in the middle of a WRITE continues with MIDDLE and LAST: the responder still
// holds the RETH (IBTA 9.7.5.1.3).
//
// In a train each packet has a RETH of its own, so all have the same size, as do those
// of the next WRITE, and one run holds packets of several WRITEs. Otherwise only FIRST
// has a RETH, so it differs in size and ends the run.
func (s *sendWQE) packet(q *QP, psn ib.PSN, tx *TxPacket) {
	op := &sendOps[s.wr.Opcode]
	i := psn.Sub(s.first)
	mtu := q.mtu()
	off := i * mtu
	n := min(int(s.length)-off, mtu)
	isFirst, isLast := i == 0, i == s.npsn-1

	s.header(q, tx, op.at(isFirst || s.train, isLast || s.train), psn)
	tx.SE = isLast && op.recv && s.wr.Flags&ib.SendSolicited != 0
	tx.RETH = wire.RETH{VA: s.wr.RemoteAddr, RKey: s.wr.RKey, Len: s.length}
	if s.train {
		tx.RETH.VA, tx.RETH.Len = s.wr.RemoteAddr+uint64(off), uint32(n)
	}
	tx.Imm = s.wr.Imm
	tx.InvKey = s.wr.InvalidateKey
	s.payload(q, tx, off, n)
}

// payload sets the packet's payload to n bytes of the message, from off on.
func (s *sendWQE) payload(q *QP, tx *TxPacket, off, n int) {
	tx.Len, tx.PadCnt = n, uint8(-n&3)
	if s.wr.Flags&ib.SendInline != 0 {
		tx.Inline = s.wr.Inline[off : off+n]
		return
	}
	if s.slow {
		tx.staged(q.fetch.bytes(requests, s.index, uint32(off)))
		return
	}
	tx.SGL, tx.Off = s.sgl, uint64(off)
}

// single builds the packet of a request that has only one and is answered by a
// response of its own: CAS, FAA, ATOMIC WRITE, FLUSH.
func (s *sendWQE) single(q *QP, tx *TxPacket) {
	op := &sendOps[s.wr.Opcode]
	s.header(q, tx, op.only, s.first)
	switch op.kind {
	case kindAtomic:
		tx.Atomic = wire.AtomicETH{VA: s.wr.RemoteAddr, RKey: s.wr.RKey, Swap: s.wr.Swap, Compare: s.wr.Compare}
	case kindAtomicWrite:
		tx.RETH = wire.RETH{VA: s.wr.RemoteAddr, RKey: s.wr.RKey, Len: s.length}
		s.payload(q, tx, 0, int(s.length))
	case kindFlush:
		tx.RETH = wire.RETH{VA: s.wr.RemoteAddr, RKey: s.wr.RKey, Len: s.wr.Flush.Length}
		tx.FETH = wire.FETH{Placement: uint8(s.wr.Flush.Level), Selectivity: uint8(s.wr.Flush.Extent)}
	}
}

// header starts a request packet: it sets opcode, PSN and destination, and no payload.
func (s *sendWQE) header(q *QP, tx *TxPacket, op wire.Op, psn ib.PSN) {
	q.header(tx, op, psn)
	tx.XRCSRQ = s.wr.RemoteSRQ
	if !q.svc.datagram {
		return
	}
	tx.AH, tx.DestQP = s.ah, s.wr.RemoteQPN
	tx.DETH = wire.DETH{QKey: s.wr.RemoteQKey, SrcQP: q.cfg.Num}
	if s.wr.RemoteQKey&privilegedQKey != 0 {
		tx.DETH.QKey = q.attr.QKey
	}
}

// privilegedQKey marks Q_Keys that only the QP's own attribute may supply (IBTA
// 10.2.5).
const privilegedQKey = 1 << 31

// header starts a packet to the QP's peer: it sets the BTH and clears the payload.
func (q *QP) header(tx *TxPacket, op wire.Op, psn ib.PSN) {
	tx.BTH = wire.BTH{Opcode: q.svc.wire.Opcode(op), PKey: ib.DefaultPKey, DestQP: q.attr.DestQPN, PSN: psn}
	tx.SGL, tx.Inline, tx.AH, tx.Off, tx.Len, tx.Again, tx.Train, tx.messages = nil, nil, nil, 0, 0, false, 0, nil
}
