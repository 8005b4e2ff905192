package afxdp

import (
	"encoding/binary"

	"github.com/goroce/goroce/wire"
)

const (
	offID  = wire.EtherLen + 4
	offSum = wire.EtherLen + 10
)

// headers are the headers of the frames of a run (without a shorter tail), which differ only in the IPv4
// identification. Building them for each frame would take a tenth of the time that the kernel takes to send it.
type headers struct {
	frame wire.Frame
	bytes [wire.EtherLen + wire.VLANLen + wire.IPv6Len + wire.UDPLen]byte // with identification 0
	len   int
	sum   uint32 // checksum of the IPv4 header, not yet complemented; 0 for IPv6
}

// build builds the headers of frames with transportLen bytes from BTH to ICRC.
func (h *headers) build(transportLen int) {
	h.frame.Outer.ID = 0
	h.len = len(h.frame.AppendHeaders(h.bytes[:0], transportLen))
	h.sum = 0
	if h.frame.Outer.Src.Is4() {
		h.sum = uint32(^binary.BigEndian.Uint16(h.bytes[offSum:]))
	}
}

// put writes the headers of the frame with that identification (RFC 791, RFC 1071) and returns their length.
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
