package layers

import (
	"encoding/binary"

	"github.com/google/gopacket"

	"github.com/goroce/goroce/wire"
)

var be = binary.BigEndian

// prepend adds n bytes in front of buf and calls fill to write them.
func prepend(buf gopacket.SerializeBuffer, n int, fill func([]byte)) error {
	b, err := buf.PrependBytes(n)
	if err != nil {
		return err
	}
	fill(b)
	return nil
}

// XRCETH is the XRC extended transport header.
type XRCETH struct {
	header
	Resv uint8
	SRQ  uint32
}

// DETH is the datagram extended transport header.
type DETH struct {
	header
	QKey  uint32
	Resv  uint8
	SrcQP uint32
}

// FETH is the FLUSH extended transport header.
type FETH struct {
	header
	Resv        uint32
	Selectivity uint8
	Placement   uint8
}

// RETH is the RDMA extended transport header.
type RETH struct {
	header
	VA     uint64
	RKey   uint32
	Length uint32
}

// AtomicETH is the atomic extended transport header. Swap is also the value that
// FetchAdd adds.
type AtomicETH struct {
	header
	VA      uint64
	RKey    uint32
	Swap    uint64
	Compare uint64
}

// AETH is the ACK extended transport header.
type AETH struct {
	header
	Syndrome wire.Syndrome
	MSN      uint32
}

// AtomicAckETH is the atomic ACK extended transport header.
type AtomicAckETH struct {
	header
	Original uint64
}

// ImmDt is the immediate data header.
type ImmDt struct {
	header
	Imm uint32
}

// IETH is the invalidate extended transport header.
type IETH struct {
	header
	RKey uint32
}

// DecodeFromBytes reads the header.
func (h *XRCETH) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	if err := h.take("XRCETH", data, 4, df); err != nil {
		return err
	}
	h.Resv, h.SRQ = data[0], uint24(data[1:])
	return nil
}

// DecodeFromBytes reads the header.
func (h *DETH) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	if err := h.take("DETH", data, 8, df); err != nil {
		return err
	}
	h.QKey, h.Resv, h.SrcQP = be.Uint32(data), data[4], uint24(data[5:])
	return nil
}

// DecodeFromBytes reads the header.
func (h *FETH) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	if err := h.take("FETH", data, 4, df); err != nil {
		return err
	}
	h.Resv, h.Selectivity, h.Placement = be.Uint32(data)>>6, data[3]>>4&3, data[3]&15
	return nil
}

// DecodeFromBytes reads the header.
func (h *RETH) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	if err := h.take("RETH", data, 16, df); err != nil {
		return err
	}
	h.VA, h.RKey, h.Length = be.Uint64(data), be.Uint32(data[8:]), be.Uint32(data[12:])
	return nil
}

// DecodeFromBytes reads the header.
func (h *AtomicETH) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	if err := h.take("AtomicETH", data, 28, df); err != nil {
		return err
	}
	h.VA, h.RKey, h.Swap, h.Compare = be.Uint64(data), be.Uint32(data[8:]), be.Uint64(data[12:]), be.Uint64(data[20:])
	return nil
}

// DecodeFromBytes reads the header.
func (h *AETH) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	if err := h.take("AETH", data, 4, df); err != nil {
		return err
	}
	h.Syndrome, h.MSN = wire.Syndrome(data[0]), uint24(data[1:])
	return nil
}

// DecodeFromBytes reads the header.
func (h *AtomicAckETH) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	if err := h.take("AtomicAckETH", data, 8, df); err != nil {
		return err
	}
	h.Original = be.Uint64(data)
	return nil
}

// DecodeFromBytes reads the header.
func (h *ImmDt) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	if err := h.take("ImmDt", data, 4, df); err != nil {
		return err
	}
	h.Imm = be.Uint32(data)
	return nil
}

// DecodeFromBytes reads the header.
func (h *IETH) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	if err := h.take("IETH", data, 4, df); err != nil {
		return err
	}
	h.RKey = be.Uint32(data)
	return nil
}

// SerializeTo writes the header.
func (h *XRCETH) SerializeTo(buf gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	return prepend(buf, 4, func(b []byte) {
		b[0] = h.Resv
		putUint24(b[1:], h.SRQ)
	})
}

// SerializeTo writes the header.
func (h *DETH) SerializeTo(buf gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	return prepend(buf, 8, func(b []byte) {
		be.PutUint32(b, h.QKey)
		b[4] = h.Resv
		putUint24(b[5:], h.SrcQP)
	})
}

// SerializeTo writes the header.
func (h *FETH) SerializeTo(buf gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	return prepend(buf, 4, func(b []byte) {
		be.PutUint32(b, h.Resv<<6|uint32(h.Selectivity&3)<<4|uint32(h.Placement&15))
	})
}

// SerializeTo writes the header.
func (h *RETH) SerializeTo(buf gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	return prepend(buf, 16, func(b []byte) {
		be.PutUint64(b, h.VA)
		be.PutUint32(b[8:], h.RKey)
		be.PutUint32(b[12:], h.Length)
	})
}

// SerializeTo writes the header.
func (h *AtomicETH) SerializeTo(buf gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	return prepend(buf, 28, func(b []byte) {
		be.PutUint64(b, h.VA)
		be.PutUint32(b[8:], h.RKey)
		be.PutUint64(b[12:], h.Swap)
		be.PutUint64(b[20:], h.Compare)
	})
}

// SerializeTo writes the header.
func (h *AETH) SerializeTo(buf gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	return prepend(buf, 4, func(b []byte) {
		b[0] = byte(h.Syndrome)
		putUint24(b[1:], h.MSN)
	})
}

// SerializeTo writes the header.
func (h *AtomicAckETH) SerializeTo(buf gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	return prepend(buf, 8, func(b []byte) { be.PutUint64(b, h.Original) })
}

// SerializeTo writes the header.
func (h *ImmDt) SerializeTo(buf gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	return prepend(buf, 4, func(b []byte) { be.PutUint32(b, h.Imm) })
}

// SerializeTo writes the header.
func (h *IETH) SerializeTo(buf gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	return prepend(buf, 4, func(b []byte) { be.PutUint32(b, h.RKey) })
}
