package layers

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
)

const icrcLen = 4

// Payload is the payload of a packet with the pad after it.
type Payload struct {
	header
	Data []byte
	Pad  []byte // PadCnt of the BTH is its length
}

// LayerType returns LayerTypePayload.
func (p *Payload) LayerType() gopacket.LayerType { return LayerTypePayload }

// CanDecode returns LayerTypePayload.
func (p *Payload) CanDecode() gopacket.LayerClass { return LayerTypePayload }

// NextLayerType returns LayerTypeICRC.
func (p *Payload) NextLayerType() gopacket.LayerType { return LayerTypeICRC }

// Payload returns the data without pad, as gopacket.ApplicationLayer.
func (p *Payload) Payload() []byte { return p.Data }

// DecodeFromBytes decodes all but the last four bytes.
func (p *Payload) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	n := len(data) - icrcLen
	pad := 0
	if p.bth != nil {
		pad = int(p.bth.PadCnt)
	}
	if err := p.take("payload", data, max(n, 0), df); err != nil {
		return err
	}
	if n < pad {
		df.SetTruncated()
		return fmt.Errorf("payload: %d bytes before the ICRC, want %d of pad", n, pad)
	}
	p.Data, p.Pad = data[:n-pad], data[n-pad:n]
	return nil
}

// SerializeTo writes data and pad. With FixLengths it computes the pad, and sets PadCnt of the BTH that this layer
// follows.
func (p *Payload) SerializeTo(buf gopacket.SerializeBuffer, opts gopacket.SerializeOptions) error {
	if opts.FixLengths {
		p.Pad = make([]byte, (4-len(p.Data)%4)%4)
		if p.bth != nil {
			p.bth.PadCnt = uint8(len(p.Pad))
		}
	}
	return prepend(buf, len(p.Data)+len(p.Pad), func(b []byte) {
		copy(b[copy(b, p.Data):], p.Pad)
	})
}

// ICRC is the invariant CRC at the end of every packet.
type ICRC struct {
	header
	Value uint32 // the four bytes, least significant first
}

// LayerType returns LayerTypeICRC.
func (c *ICRC) LayerType() gopacket.LayerType { return LayerTypeICRC }

// CanDecode returns LayerTypeICRC.
func (c *ICRC) CanDecode() gopacket.LayerClass { return LayerTypeICRC }

// NextLayerType returns gopacket.LayerTypeZero: nothing follows.
func (c *ICRC) NextLayerType() gopacket.LayerType { return gopacket.LayerTypeZero }

// DecodeFromBytes reads the ICRC.
func (c *ICRC) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	if err := c.take("ICRC", data, icrcLen, df); err != nil {
		return err
	}
	c.Value = binary.LittleEndian.Uint32(data)
	return nil
}

// SerializeTo writes Value. A BTH in front may replace it by the correct one.
func (c *ICRC) SerializeTo(buf gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	return prepend(buf, icrcLen, func(b []byte) { binary.LittleEndian.PutUint32(b, c.Value) })
}

// ComputeICRC computes the invariant CRC of an IP packet, which runs from the IP
// header to the last byte of pad (IBTA A17.3.3).
func ComputeICRC(ip []byte) (uint32, error) {
	masked := append([]byte{0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF}, ip...)
	p := masked[8:]
	if len(p) < 20+8+12 {
		return 0, fmt.Errorf("ICRC: %d bytes; want at least IP, UDP and BTH headers", len(p))
	}
	var udp int
	var ones []int
	switch p[0] >> 4 {
	case 4:
		udp, ones = int(p[0]&15)*4, []int{1, 8, 10, 11}
	case 6:
		udp, ones = 40, []int{1, 2, 3, 7}
		p[0] |= 0x0F
	default:
		return 0, fmt.Errorf("ICRC: IP version %d; want 4 or 6", p[0]>>4)
	}
	if udp < 20 || len(p) < udp+8+12 {
		return 0, fmt.Errorf("ICRC: %d bytes with UDP at byte %d; want IP, UDP and BTH headers", len(p), udp)
	}
	for _, i := range append(ones, udp+6, udp+7, udp+8+4) {
		p[i] = 0xFF
	}
	return crc32.ChecksumIEEE(masked), nil
}

// CheckICRC reports whether a decoded packet has the correct ICRC. The error says which layer is missing to compute it.
func CheckICRC(packet gopacket.Packet) (bool, error) {
	icrc, _ := packet.Layer(LayerTypeICRC).(*ICRC)
	if icrc == nil {
		return false, errors.New("ICRC: the packet has none")
	}
	var ip layers.BaseLayer
	switch v := packet.NetworkLayer().(type) {
	case *layers.IPv4:
		ip = v.BaseLayer
	case *layers.IPv6:
		ip = v.BaseLayer
	default:
		return false, errors.New("ICRC: no IPv4 or IPv6 header")
	}
	whole := append(append([]byte(nil), ip.Contents...), ip.Payload...)
	if len(whole) < icrcLen {
		return false, errors.New("ICRC: the IP packet is too short")
	}
	want, err := ComputeICRC(whole[:len(whole)-icrcLen])
	return err == nil && icrc.Value == want, err
}
