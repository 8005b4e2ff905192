package wire

import (
	"encoding/binary"
	"slices"

	"github.com/goroce/goroce/ib"
)

// Payload lengths that an opcode or the architecture fixes, in bytes.
const (
	// MaxPayload is the largest path MTU.
	MaxPayload = int(ib.MTU4096)

	atomicWriteLen = 8
	cnpLen         = 16
)

// Packet is a transport packet without its ICRC. Only the headers that BTH.Opcode has are valid; Decode does not change
// the others, nor ECN.
type Packet struct {
	BTH
	XRCSRQ    uint32 // XRCETH: number of the shared receive queue, 24 bits
	XRCResv   uint8  // XRCETH: reserved byte before XRCSRQ
	ECN       ECN    // of the IP header in which the packet has come; it is set by who has that header
	DETH      DETH
	FETH      FETH
	RETH      RETH
	Atomic    AtomicETH
	AETH      AETH
	AtomicAck uint64 // AtomicAckETH: the value before the operation
	Imm       uint32
	InvKey    ib.Key // IETH: the R_Key to invalidate
	Payload   []byte // without the pad
}

// Decode decodes a packet. b is the packet from the BTH to the last byte of pad, without the ICRC. Payload is then a
// part of b.
//
// Decode refuses what is wrong in any state of the QP, and what rdma_rxe drops without an answer: packets that are too
// short, unknown opcodes and versions, a wrong pad count. Violations that the responder must answer with a NAK, such as
// a FIRST packet whose payload is not the path MTU, are left to the responder. After an error the fields are undefined.
func (p *Packet) Decode(b []byte) error {
	if len(b) < BTHLen {
		return errBTHShort
	}
	s := &shapes[b[0]]
	if s.flags == 0 {
		return errBTHOpcode
	}
	p.BTH.decode(b)
	if p.TVer != 0 {
		return errBTHVersion
	}
	n := int(s.headerLen)
	if len(b) < n {
		return errExtShort
	}
	p.decodeExt(s.headers, b[BTHLen:n])
	return p.decodePayload(s, b[n:])
}

// decodeExt decodes the extension headers in set from b, which is long enough.
func (p *Packet) decodeExt(set HeaderSet, b []byte) {
	if set&HasXRCETH != 0 {
		v := binary.BigEndian.Uint32(b)
		p.XRCResv, p.XRCSRQ = uint8(v>>24), v&0xFFFFFF
		b = b[XRCETHLen:]
	}
	if set&HasDETH != 0 {
		p.DETH.decode(b)
		b = b[DETHLen:]
	}
	if set&HasFETH != 0 {
		p.FETH.decode(b)
		b = b[FETHLen:]
	}
	if set&HasRETH != 0 {
		p.RETH.decode(b)
		b = b[RETHLen:]
	}
	if set&HasAtomicETH != 0 {
		p.Atomic.decode(b)
		b = b[AtomicETHLen:]
	}
	if set&HasAETH != 0 {
		p.AETH.decode(b)
		b = b[AETHLen:]
	}
	if set&HasAtomicAckETH != 0 {
		p.AtomicAck = binary.BigEndian.Uint64(b)
		b = b[AtomicAckETHLen:]
	}
	if set&HasImm != 0 {
		p.Imm = binary.BigEndian.Uint32(b)
		b = b[ImmLen:]
	}
	if set&HasIETH != 0 {
		p.InvKey = ib.Key(binary.BigEndian.Uint32(b))
	}
}

// decodePayload sets Payload to what follows the headers, without the pad.
func (p *Packet) decodePayload(s *shape, b []byte) error {
	n := len(b) - int(p.PadCnt)
	switch {
	case len(b)%4 != 0:
		return errPadAlign
	case n < 0:
		return errPadCount
	case s.flags&opPayload == 0 && len(b) > 0:
		return errPayloadNone
	case s.fixed != 0 && n != int(s.fixed):
		return errPayloadFixed
	case n > MaxPayload:
		return errPayloadLong
	}
	p.Payload = b[:n:n]
	return nil
}

// AppendHeaders appends BTH and extension headers to b. The caller adds payload, PadCnt zero bytes of pad (see PadFor)
// and the ICRC.
func (p *Packet) AppendHeaders(b []byte) []byte {
	n := len(b)
	b = slices.Grow(b, MaxHeaderLen)[:n+MaxHeaderLen]
	return b[:n+p.PutHeaders(b[n:])]
}

// PutHeaders writes BTH and extension headers to the start of b and returns their length. b must have at least
// Opcode.HeaderLen() bytes; MaxHeaderLen is always enough.
func (p *Packet) PutHeaders(b []byte) int {
	s := &shapes[p.Opcode]
	p.BTH.put(b)
	if s.headers != 0 {
		p.putExt(s.headers, b[BTHLen:])
	}
	return max(int(s.headerLen), BTHLen)
}

// putExt writes the extension headers in set to b.
func (p *Packet) putExt(set HeaderSet, b []byte) {
	if set&HasXRCETH != 0 {
		binary.BigEndian.PutUint32(b, uint32(p.XRCResv)<<24|p.XRCSRQ&0xFFFFFF)
		b = b[XRCETHLen:]
	}
	if set&HasDETH != 0 {
		p.DETH.put(b)
		b = b[DETHLen:]
	}
	if set&HasFETH != 0 {
		p.FETH.put(b)
		b = b[FETHLen:]
	}
	if set&HasRETH != 0 {
		p.RETH.put(b)
		b = b[RETHLen:]
	}
	if set&HasAtomicETH != 0 {
		p.Atomic.put(b)
		b = b[AtomicETHLen:]
	}
	if set&HasAETH != 0 {
		p.AETH.put(b)
		b = b[AETHLen:]
	}
	if set&HasAtomicAckETH != 0 {
		binary.BigEndian.PutUint64(b, p.AtomicAck)
		b = b[AtomicAckETHLen:]
	}
	if set&HasImm != 0 {
		binary.BigEndian.PutUint32(b, p.Imm)
		b = b[ImmLen:]
	}
	if set&HasIETH != 0 {
		binary.BigEndian.PutUint32(b, uint32(p.InvKey))
	}
}

// PadFor returns the number of pad bytes, 0 to 3, after n bytes of payload: the length of transport packets is a
// multiple of 4 (IBTA 9.2).
func PadFor(n int) uint8 { return uint8(-n & 3) }
