package wire

import (
	"encoding/binary"

	"github.com/goroce/goroce/ib"
)

// Lengths of the extension headers in bytes.
const (
	XRCETHLen       = 4
	DETHLen         = 8
	FETHLen         = 4
	RETHLen         = 16
	AtomicETHLen    = 28
	AETHLen         = 4
	AtomicAckETHLen = 8
	ImmLen          = 4
	IETHLen         = 4

	// MaxHeaderLen is the length of the longest combination of headers: BTH, XRCETH, AtomicETH.
	MaxHeaderLen = BTHLen + XRCETHLen + AtomicETHLen
)

// RETH is the RDMA extended transport header (IBTA 9.3.3): the remote memory of a WRITE, a READ, a FLUSH or an ATOMIC
// WRITE.
type RETH struct {
	VA   uint64
	RKey ib.Key
	Len  uint32 // length of the whole message in bytes; at most 2^31
}

func (h *RETH) decode(b []byte) {
	_ = b[RETHLen-1]
	h.VA = binary.BigEndian.Uint64(b)
	h.RKey = ib.Key(binary.BigEndian.Uint32(b[8:]))
	h.Len = binary.BigEndian.Uint32(b[12:])
}

func (h *RETH) put(b []byte) {
	_ = b[RETHLen-1]
	binary.BigEndian.PutUint64(b, h.VA)
	binary.BigEndian.PutUint32(b[8:], uint32(h.RKey))
	binary.BigEndian.PutUint32(b[12:], h.Len)
}

// AtomicETH is the atomic extended transport header (IBTA 9.3.4). Swap and Compare are numbers: the responder uses its
// own byte order in memory.
type AtomicETH struct {
	VA      uint64 // a multiple of 8
	RKey    ib.Key
	Swap    uint64 // the value to store, or the value to add
	Compare uint64 // COMPARE & SWAP only
}

func (h *AtomicETH) decode(b []byte) {
	_ = b[AtomicETHLen-1]
	h.VA = binary.BigEndian.Uint64(b)
	h.RKey = ib.Key(binary.BigEndian.Uint32(b[8:]))
	h.Swap = binary.BigEndian.Uint64(b[12:])
	h.Compare = binary.BigEndian.Uint64(b[20:])
}

func (h *AtomicETH) put(b []byte) {
	_ = b[AtomicETHLen-1]
	binary.BigEndian.PutUint64(b, h.VA)
	binary.BigEndian.PutUint32(b[8:], uint32(h.RKey))
	binary.BigEndian.PutUint64(b[12:], h.Swap)
	binary.BigEndian.PutUint64(b[20:], h.Compare)
}

// DETH is the datagram extended transport header (IBTA 9.3.2).
type DETH struct {
	QKey  uint32
	SrcQP ib.QPN
	Resv  uint8 // reserved byte before SrcQP
}

func (h *DETH) decode(b []byte) {
	_ = b[DETHLen-1]
	h.QKey = binary.BigEndian.Uint32(b)
	h.Resv = b[4]
	h.SrcQP = ib.QPN(binary.BigEndian.Uint32(b[4:])) & ib.QPNMask
}

func (h *DETH) put(b []byte) {
	_ = b[DETHLen-1]
	binary.BigEndian.PutUint32(b, h.QKey)
	binary.BigEndian.PutUint32(b[4:], uint32(h.Resv)<<24|uint32(h.SrcQP&ib.QPNMask))
}

// FETH is the FLUSH extended transport header (IBTA A19). It precedes the RETH.
type FETH struct {
	Placement   uint8  // FlushGlobal, FlushPersistent or both
	Selectivity uint8  // FlushRange or FlushRegion
	Resv        uint32 // the upper 26 bits, which are reserved
}

// Placement types and selectivity levels of a FLUSH (IBTA A19.4.2).
const (
	FlushGlobal     uint8 = 1 << 0 // the data is visible to later readers at the responder
	FlushPersistent uint8 = 1 << 1 // the data survives a loss of power

	FlushRange  uint8 = 0 // the bytes that the RETH names
	FlushRegion uint8 = 1 // all of the memory region
)

func (h *FETH) decode(b []byte) {
	v := binary.BigEndian.Uint32(b)
	h.Placement = uint8(v & 0xF)
	h.Selectivity = uint8(v >> 4 & 3)
	h.Resv = v >> 6
}

func (h *FETH) put(b []byte) {
	binary.BigEndian.PutUint32(b, h.Resv<<6|uint32(h.Selectivity&3)<<4|uint32(h.Placement&0xF))
}
