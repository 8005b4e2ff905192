package qp

import (
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/wire"
)

// Record is an entry of a QP's flight recorder (recorder.go), 32 bytes. Which fields it has depends on Kind.
type Record struct {
	At     ib.Instant // the QP's time, of the input
	Addr   uint64     // packets: VA, or the value of an AtomicAckETH; requests and completions: the ID
	Key    uint32     // packets: R_Key, AETH, Q_Key, immediate or key to invalidate; completions: status and reason
	Extra  uint32     // packets: RETH.Len, source QP, or more packets of a train; else see the kinds
	psn    uint32     // PSN, below the flags
	Length uint16     // packets: bytes of payload of each; completions: how many are alike
	Kind   RecordKind
	Code   uint8 // see the kinds
}

// RecordKind says what a Record is about.
type RecordKind uint8

// Kinds of records.
const (
	RecordNone      RecordKind = iota
	RecordSent                 // a packet, or a train; Code is its opcode
	RecordReceived             // likewise
	recordHeaders              // more headers of the packet before
	RecordPosted               // a request was taken from the send queue; Code is its ib.WROpcode, Extra its length
	RecordCompleted            // Code is the ib.WCOpcode, Extra the length
	RecordState                // Code is the new ib.QPState, Key the one before
	RecordTimer                // Code is TimerACK ..., Extra how many retries are left; PSN the oldest in flight
	RecordFailed               // the QP fails; Code is the ib.Reason, Key the ib.WROpcode
	RecordRefused              // a request of the peer is refused; likewise
)

// Codes of RecordTimer.
const (
	TimerACK   = uint8(timerAck)   // the local ACK timeout
	TimerProbe = uint8(timerProbe) // an answer was overdue: a tail probe
	TimerRNR   = uint8(timerRNR)   // the end of the wait that an RNR NAK asked for
)

// Verdict says what became of a received packet that was not simply accepted.
type Verdict uint8

// Verdicts.
const (
	Accepted   Verdict = iota
	Duplicate          // its PSN was handled before
	Gap                // packets before it are missing: a NAK asks for them
	Behind             // dropped without an answer, behind a gap or an RNR NAK
	NotReady           // no receive is posted
	NoRoom             // no room for placements
	Unexpected         // a response that no request in flight expects
	WrongState         // the QP's state does not accept it
	WrongQKey          // a datagram with another Q_Key
	Refused            // the QP's RecordRefused says why
	Dropped            // a message of an unreliable service that cannot be accepted
	Kept               // waits behind a gap, in case its repetition is lost
)

// Flags above the PSN: four bits, then the verdict.
const (
	flagAckReq uint32 = 1 << (24 + iota)
	flagSolicited
	flagAgain
	flagCE

	verdictShift = 28
)

// PSN returns the PSN of a packet, a timer or a cause.
func (r *Record) PSN() ib.PSN { return ib.PSN(r.psn) & ib.PSNMask }

// Again reports whether a sent packet was sent before.
func (r *Record) Again() bool { return r.psn&flagAgain != 0 }

// Verdict returns what became of a received packet.
func (r *Record) Verdict() Verdict { return Verdict(r.psn >> verdictShift) }

// More returns how many packets follow the packet that are like it (TxPacket.Advance).
func (r *Record) More() int {
	if wire.AlikeLen(wire.Opcode(r.Code)) == 0 {
		return 0
	}
	return int(r.Extra)
}

// Status and Reason return those of a completion.
func (r *Record) Status() ib.WCStatus { return ib.WCStatus(r.Key & 0xFFFF) }

// Reason returns why a request has completed with an error.
func (r *Record) Reason() ib.Reason { return ib.Reason(r.Key >> 16) }

// set makes r a record that is not of a packet. It sets the fields one by one: a composite literal would be copied, and
// the copy would wait until the processor has stored its parts.
func (r *Record) set(at ib.Instant, kind RecordKind, code uint8, addr uint64, key, extra uint32, length uint16) {
	r.At, r.Kind, r.Code, r.Addr, r.Key, r.Extra, r.Length, r.psn = at, kind, code, addr, key, extra, length, 0
}

// setPacket makes r a packet with n bytes of payload, which more like it follow. It reports whether the headers do not
// fit; a record of kind recordHeaders follows then.
func (r *Record) setPacket(kind RecordKind, at ib.Instant, p *wire.Packet, n, more int) (rest bool) {
	psn, addr, key, extra := uint32(p.PSN), uint64(0), uint32(0), uint32(more)
	if p.AckReq {
		psn |= flagAckReq
	}
	if p.SE {
		psn |= flagSolicited
	}
	h := p.Opcode.Headers()
	switch {
	case h == 0:
	case h&wire.HasRETH != 0:
		addr, key = p.RETH.VA, uint32(p.RETH.RKey)
		if wire.AlikeLen(p.Opcode) == 0 { // else RETH.Len is Length
			extra = p.RETH.Len
		}
	case h&wire.HasAETH != 0:
		addr, key = p.AtomicAck, uint32(p.AETH.Syndrome)<<24|uint32(p.AETH.MSN&ib.PSNMask)
	case h&wire.HasAtomicETH != 0:
		addr, key = p.Atomic.VA, uint32(p.Atomic.RKey)
	case h&wire.HasDETH != 0:
		addr, key, extra = uint64(p.DestQP), p.DETH.QKey, uint32(p.DETH.SrcQP)
	case h&wire.HasImm != 0:
		key = p.Imm
	case h&wire.HasIETH != 0:
		key = uint32(p.InvKey)
	}
	r.At, r.Addr, r.Key, r.Extra, r.psn = at, addr, key, extra, psn
	r.Length, r.Kind, r.Code = uint16(n), kind, uint8(p.Opcode)
	return h&moreHeaders != 0 && h != wire.HasImm && h != wire.HasIETH
}

// moreHeaders are those for which setPacket has no room, unless Imm and IETH are alone.
const moreHeaders = wire.HasAtomicETH | wire.HasXRCETH | wire.HasFETH | wire.HasImm | wire.HasIETH

// setHeaders makes r the rest of a packet's headers.
func (r *Record) setHeaders(p *wire.Packet) {
	*r = Record{Kind: recordHeaders, Code: p.FETH.Placement | p.FETH.Selectivity<<4, Extra: p.XRCSRQ}
	switch h := p.Opcode.Headers(); {
	case h&wire.HasAtomicETH != 0:
		r.Addr, r.At = p.Atomic.Swap, ib.Instant(p.Atomic.Compare)
	case h&wire.HasIETH != 0:
		r.Key = uint32(p.InvKey)
	case h&wire.HasImm != 0:
		r.Key = p.Imm
	}
}

// Packet returns the headers of a packet, as far as they were recorded. next is the record behind r, if there is one.
// Its Payload is nil. Connected services have their own destination, which is not in the record: DestQP is 0.
func (r *Record) Packet(next *Record) (p wire.Packet) {
	p.BTH = wire.BTH{Opcode: wire.Opcode(r.Code), PKey: ib.DefaultPKey, PSN: r.PSN(), AckReq: r.psn&flagAckReq != 0,
		SE: r.psn&flagSolicited != 0, PadCnt: uint8(-r.Length & 3)}
	if r.psn&flagCE != 0 {
		p.ECN = wire.CE
	}
	if next == nil || next.Kind != recordHeaders {
		next = &Record{}
	}
	h := p.Opcode.Headers()
	p.Imm, p.InvKey, p.XRCSRQ = next.Key, ib.Key(next.Key), next.Extra
	switch h {
	case wire.HasImm:
		p.Imm = r.Key
	case wire.HasIETH:
		p.InvKey = ib.Key(r.Key)
	}
	p.FETH = wire.FETH{Placement: next.Code & 0xF, Selectivity: next.Code >> 4}
	p.RETH = wire.RETH{VA: r.Addr, RKey: ib.Key(r.Key), Len: r.Extra}
	if wire.AlikeLen(p.Opcode) > 0 {
		p.RETH.Len = uint32(r.Length)
	}
	p.Atomic = wire.AtomicETH{VA: r.Addr, RKey: ib.Key(r.Key), Swap: next.Addr, Compare: uint64(next.At)}
	p.AETH, p.AtomicAck = wire.AETH{Syndrome: wire.Syndrome(r.Key >> 24), MSN: ib.PSN(r.Key) & ib.PSNMask}, r.Addr
	if h&wire.HasDETH != 0 {
		p.DestQP, p.DETH = ib.QPN(r.Addr), wire.DETH{QKey: r.Key, SrcQP: ib.QPN(r.Extra)}
	}
	return p
}
