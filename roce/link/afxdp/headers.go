package afxdp

import (
	"encoding/binary"

	"github.com/goroce/goroce/wire"
)

const (
	offID  = wire.EtherLen + 4
	offSum = wire.EtherLen + 10
)

// headers are those of frames that differ in the IPv4 identification only: of a run,
// without its tail. To build them for each frame would cost a tenth of what the
// kernel takes to send it.
type headers struct {
	frame wire.Frame
	bytes [wire.EtherLen + wire.VLANLen + wire.IPv6Len + wire.UDPLen]byte // with identification 0
	len   int
	sum   uint32 // of the IPv4 header, as its checksum counts; 0 in IPv6
}

// build makes the headers of frames with so many bytes from BTH to ICRC.
func (h *headers) build(transportLen int) {
	h.frame.Outer.ID = 0
	h.len = len(h.frame.AppendHeaders(h.bytes[:0], transportLen))
	h.sum = 0
	if h.frame.Outer.Src.Is4() {
		h.sum = uint32(^binary.BigEndian.Uint16(h.bytes[offSum:]))
	}
}

// put writes the headers of the frame with that identification (RFC 791, RFC 1071)
// and returns how long they are.
func (h *headers) put(b []byte, id uint16) int {
	copy(b, h.bytes[:h.len])
	if h.sum != 0 {
		sum := h.sum + uint32(id)
		sum = sum>>16 + sum&0xFFFF
		binary.BigEndian.PutUint16(b[offID:], id)
		binary.BigEndian.PutUint16(b[offSum:], ^uint16(sum))
	}
	return h.len
}
