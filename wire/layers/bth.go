package layers

import (
	"encoding/binary"
	"fmt"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"github.com/goroce/goroce/wire"
)

// BTH is the base transport header.
type BTH struct {
	header
	Opcode wire.Opcode
	SE     bool
	MigReq bool
	PadCnt uint8
	TVer   uint8
	PKey   uint16
	FECN   bool
	BECN   bool
	Resv6  uint8
	DestQP uint32
	AckReq bool
	Resv7  uint8
	PSN    uint32

	ip  gopacket.NetworkLayer
	udp *layers.UDP
}

// SetOuter sets the headers in front of the BTH, from which SerializeTo computes the ICRC. ip is a *layers.IPv4 or
// *layers.IPv6. All fields except the lengths must be as on the wire.
func (b *BTH) SetOuter(ip gopacket.NetworkLayer, udp *layers.UDP) error {
	switch ip.(type) {
	case *layers.IPv4, *layers.IPv6:
		b.ip, b.udp = ip, udp
		return nil
	}
	return fmt.Errorf("BTH: network layer is %v; want IPv4 or IPv6", ip.LayerType())
}

// LayerType returns LayerTypeBTH.
func (b *BTH) LayerType() gopacket.LayerType { return LayerTypeBTH }

// CanDecode returns LayerTypeBTH.
func (b *BTH) CanDecode() gopacket.LayerClass { return LayerTypeBTH }

// NextLayerType returns the next header of the opcode.
func (b *BTH) NextLayerType() gopacket.LayerType { return b.after(LayerTypeBTH) }

// DecodeFromBytes reads the header.
func (b *BTH) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	if err := b.take("BTH", data, 12, df); err != nil {
		return err
	}
	b.bth = b
	b.Opcode = wire.Opcode(data[0])
	b.SE = data[1]>>7 == 1
	b.MigReq = data[1]>>6&1 == 1
	b.PadCnt = data[1] >> 4 & 3
	b.TVer = data[1] & 15
	b.PKey = uint16(data[2])<<8 | uint16(data[3])
	b.FECN = data[4]>>7 == 1
	b.BECN = data[4]>>6&1 == 1
	b.Resv6 = data[4] & 63
	b.DestQP = uint24(data[5:])
	b.AckReq = data[8]>>7 == 1
	b.Resv7 = data[8] & 127
	b.PSN = uint24(data[9:])
	return nil
}

// SerializeTo writes the header. If opts asks for checksums and SetOuter has been called, it also writes the ICRC, into
// the last four bytes of buf.
func (b *BTH) SerializeTo(buf gopacket.SerializeBuffer, opts gopacket.SerializeOptions) error {
	h, err := buf.PrependBytes(12)
	if err != nil {
		return err
	}
	h[0] = byte(b.Opcode)
	h[1] = bit(b.SE, 7) | bit(b.MigReq, 6) | b.PadCnt&3<<4 | b.TVer&15
	h[2], h[3] = byte(b.PKey>>8), byte(b.PKey)
	h[4] = bit(b.FECN, 7) | bit(b.BECN, 6) | b.Resv6&63
	putUint24(h[5:], b.DestQP)
	h[8] = bit(b.AckReq, 7) | b.Resv7&127
	putUint24(h[9:], b.PSN)
	if opts.ComputeChecksums && b.ip != nil {
		return b.seal(buf.Bytes())
	}
	return nil
}

// seal computes the ICRC of a packet, from BTH to ICRC, and writes it into the last four bytes.
func (b *BTH) seal(packet []byte) error {
	buf := gopacket.NewSerializeBuffer()
	lengths := gopacket.SerializeOptions{FixLengths: true}
	udp := *b.udp // copies, so that the caller's layers do not change
	var ip gopacket.SerializableLayer
	switch v := b.ip.(type) {
	case *layers.IPv4:
		c := *v
		ip = &c
	case *layers.IPv6:
		c := *v
		ip = &c
	}
	if err := gopacket.SerializeLayers(buf, lengths, ip, &udp, gopacket.Payload(packet)); err != nil {
		return fmt.Errorf("BTH: outer headers for the ICRC: %w", err)
	}
	whole := buf.Bytes()
	icrc, err := ComputeICRC(whole[:len(whole)-icrcLen])
	if err != nil {
		return err
	}
	binary.LittleEndian.PutUint32(packet[len(packet)-icrcLen:], icrc)
	return nil
}

func uint24(b []byte) uint32 { return uint32(b[0])<<16 | uint32(b[1])<<8 | uint32(b[2]) }

func putUint24(b []byte, v uint32) { b[0], b[1], b[2] = byte(v>>16), byte(v>>8), byte(v) }

// bit returns a byte in which bit n is set if on is true.
func bit(on bool, n int) byte {
	if on {
		return 1 << n
	}
	return 0
}
