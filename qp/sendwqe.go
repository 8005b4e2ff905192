package qp

import (
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/wire"
)

// sendWQE is a send work queue entry: the QP's own copy of a request, and how
// far it has got.
type sendWQE struct {
	wr     ib.SendWR
	sgl    mr.SGL
	length uint32
	first  ib.PSN // PSN of the first packet, once begun
	npsn   int    // PSNs that the message takes
	cost   int    // what the Flow charges for each
	ssn    ib.PSN // send sequence number, for credits (IBTA 9.7.7.2.5)
	begun  bool
	sent   bool    // every PSN has been given out
	late   int     // placements under way into sgl
	result [8]byte // atomics: the value that memory held before
}

// last is the PSN of the message's last packet.
func (s *sendWQE) last() ib.PSN { return s.first.Add(s.npsn - 1) }

// packetOverhead is what the Flow charges for a packet beside its payload.
const packetOverhead = 64

// begin resolves the local memory and gives the message its PSNs, from psn on.
// It returns the status to fail with, or WCSuccess.
func (s *sendWQE) begin(q *QP, psn, ssn ib.PSN) ib.WCStatus {
	op := &sendOps[s.wr.Opcode]
	need := ib.Access(0)
	if op.kind != kindPush {
		need = ib.LocalWrite
	}
	s.sgl = s.sgl[:0]
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
	}
	if op.kind == kindAtomic && s.length != 8 {
		return ib.WCLocLenErr
	}
	if op.kind != kindPush && q.attr.MaxRdAtomic == 0 {
		return ib.WCLocQPOpErr // it could never be sent
	}
	mtu := int(q.attr.PathMTU)
	s.npsn = 1
	if op.kind != kindAtomic {
		s.npsn = max(1, (int(s.length)+mtu-1)/mtu)
	}
	s.cost = min(int(s.length), mtu) + packetOverhead
	s.first, s.ssn = psn, ssn
	s.begun = true
	return ib.WCSuccess
}

// maxMessage is the longest message: 2^31 bytes (IBTA C9-4).
const maxMessage = 1 << 31

// sendKind tells apart how a request moves data and is answered.
type sendKind uint8

const (
	kindNone   sendKind = iota // not an opcode of this service
	kindPush                   // SEND and WRITE: data out, answered by an ACK
	kindRead                   // READ: data in
	kindAtomic                 // CAS and FAA: 8 bytes in
)

// sendOp is what a work request opcode means on the wire: the opcodes of its
// packets by position, and the completion that it makes.
type sendOp struct {
	kind                      sendKind
	recv                      bool // consumes a receive at the peer
	first, middle, last, only wire.Opcode
	wc                        ib.WCOpcode
}

var sendOps = [256]sendOp{
	ib.WRSend: {kindPush, true, wire.RCSendFirst, wire.RCSendMiddle, wire.RCSendLast, wire.RCSendOnly, ib.WCSend},
	ib.WRSendImm: {kindPush, true, wire.RCSendFirst, wire.RCSendMiddle, wire.RCSendLastImm, wire.RCSendOnlyImm,
		ib.WCSend},
	ib.WRSendInv: {kindPush, true, wire.RCSendFirst, wire.RCSendMiddle, wire.RCSendLastInv, wire.RCSendOnlyInv,
		ib.WCSend},
	ib.WRWrite: {kindPush, false, wire.RCWriteFirst, wire.RCWriteMiddle, wire.RCWriteLast, wire.RCWriteOnly, ib.WCWrite},
	ib.WRWriteImm: {kindPush, true, wire.RCWriteFirst, wire.RCWriteMiddle, wire.RCWriteLastImm, wire.RCWriteOnlyImm,
		ib.WCWrite},
	ib.WRRead:        {kind: kindRead, only: wire.RCReadRequest, wc: ib.WCRead},
	ib.WRCompareSwap: {kind: kindAtomic, only: wire.RCCompareSwap, wc: ib.WCCompareSwap},
	ib.WRFetchAdd:    {kind: kindAtomic, only: wire.RCFetchAdd, wc: ib.WCFetchAdd},
}

// SupportsSend reports whether a service takes a work request opcode.
func SupportsSend(t ib.QPType, op ib.WROpcode) bool {
	return t == ib.RC && sendOps[op].kind != kindNone
}

// packet builds the packet that carries the message's PSN psn. A retransmission
// in the middle of a WRITE goes on with MIDDLE and LAST: the responder still
// holds the RETH (IBTA 9.7.5.1.3).
func (s *sendWQE) packet(q *QP, psn ib.PSN, tx *TxPacket) {
	op := &sendOps[s.wr.Opcode]
	i := psn.Sub(s.first)
	mtu := int(q.attr.PathMTU)
	off := i * mtu
	isFirst, isLast := i == 0, i == s.npsn-1

	opcode := op.middle
	switch {
	case isFirst && isLast:
		opcode = op.only
	case isFirst:
		opcode = op.first
	case isLast:
		opcode = op.last
	}
	q.header(tx, opcode, psn)
	tx.SE = isLast && op.recv && s.wr.Flags&ib.SendSolicited != 0
	tx.RETH = wire.RETH{VA: s.wr.RemoteAddr, RKey: s.wr.RKey, Len: s.length}
	tx.Imm = s.wr.Imm
	tx.InvKey = s.wr.InvalidateKey
	s.payload(tx, off, min(int(s.length)-off, mtu))
}

// payload names n bytes of the message, from off on.
func (s *sendWQE) payload(tx *TxPacket, off, n int) {
	tx.Len, tx.PadCnt = n, uint8(-n&3)
	if s.wr.Flags&ib.SendInline != 0 {
		tx.Inline = s.wr.Inline[off : off+n]
		return
	}
	tx.SGL, tx.Off = s.sgl, uint64(off)
}

// atomic builds the request packet of a CAS or FAA.
func (s *sendWQE) atomic(q *QP, tx *TxPacket) {
	q.header(tx, sendOps[s.wr.Opcode].only, s.first)
	tx.Atomic = wire.AtomicETH{VA: s.wr.RemoteAddr, RKey: s.wr.RKey, Swap: s.wr.Swap, Compare: s.wr.Compare}
}

// header starts a packet without payload.
func (q *QP) header(tx *TxPacket, opcode wire.Opcode, psn ib.PSN) {
	tx.BTH = wire.BTH{Opcode: opcode, PKey: ib.DefaultPKey, DestQP: q.attr.DestQPN, PSN: psn}
	tx.SGL, tx.Inline, tx.Off, tx.Len = nil, nil, 0, 0
}
