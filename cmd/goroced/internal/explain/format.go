package explain

import (
	"fmt"

	"github.com/goroce/goroce/cmd/goroced/internal/decode"
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/wire"
)

// format shows a packet that package wire has made.
var format = lesson{
	name:  "packet-format",
	title: "A RoCEv2 packet is an InfiniBand packet in UDP, and the ICRC holds it together",
	group: "packets",
	rule:  "IBTA",
	why: []string{
		"A RoCEv2 packet goes from UDP port to port 4791 (RoCE annex A17). Behind the UDP header is what InfiniBand " +
			"would send: the base transport header (BTH) with opcode, destination QP and PSN; the extension headers " +
			"that the opcode asks for; the payload, padded to four bytes; and the invariant CRC (ICRC). The opcode " +
			"alone says which headers there are: a WRITE names its memory in a RETH, an ACK has its syndrome in an " +
			"AETH, a datagram its Q_Key and source QP in a DETH.",
	},
	show: showFormat,
}

// samplePacket is a WRITE of 5 bytes between two hosts.
func samplePacket() wire.Frame {
	p := wire.Packet{
		BTH:     wire.BTH{Opcode: wire.RCWriteOnly, PKey: ib.DefaultPKey, DestQP: 0x22, PSN: 100, AckReq: true},
		RETH:    wire.RETH{VA: 0x7f0000001000, RKey: 0x1234, Len: 5},
		Payload: []byte("hello"),
	}
	p.PadCnt = wire.PadFor(len(p.Payload))
	t := append(p.AppendHeaders(nil), p.Payload...)
	t = append(t, make([]byte, int(p.PadCnt)+wire.ICRCLen)...)
	f := wire.Frame{EtherSrc: [6]byte{2, 0, 192, 0, 2, 1}, EtherDst: [6]byte{2, 0, 192, 0, 2, 2}, Transport: t,
		Outer: wire.Outer{Src: cmGID(0), Dst: cmGID(1), SrcPort: 49153, DstPort: wire.Port, TrafficClass: 2,
			HopLimit: 64}}
	f.Outer.Seal(t)
	return f
}

func showFormat(p *page) error {
	f := samplePacket()
	frame := append(f.AppendHeaders(nil, len(f.Transport)), f.Transport...)
	p.paragraph("This is a WRITE of the 5 bytes of \"hello\" to address 0x7f0000001000, byte by byte:")
	rest := frame
	for _, part := range []struct {
		name string
		len  int
	}{
		{"Ethernet", wire.EtherLen}, {"IPv4", wire.IPv4Len}, {"UDP", wire.UDPLen}, {"BTH", wire.BTHLen},
		{"RETH", wire.RETHLen}, {"payload, pad", 8}, {"ICRC", wire.ICRCLen},
	} {
		p.line(fmt.Sprintf("  %-12s  ", part.name), fmt.Sprintf("% x", rest[:part.len]))
		rest = rest[part.len:]
	}
	if len(rest) != 0 {
		return fmt.Errorf("%d bytes are left", len(rest))
	}
	fmt.Fprintln(p.out)
	p.paragraph("And this is what `goroced decode -v` reads from them:")
	if err := decode.Fields(p.out, p.term, frame); err != nil {
		return err
	}
	fmt.Fprintln(p.out)
	return showICRC(p)
}

// changes are what can happen to a packet on its way.
var changes = []struct {
	what   string
	change func(f *wire.Frame)
}{
	{"nothing", func(*wire.Frame) {}},
	{"a switch forwards it: new MAC addresses", func(f *wire.Frame) { f.EtherSrc[5]++; f.EtherDst[5]++ }},
	{"a router forwards it: TTL 63", func(f *wire.Frame) { f.Outer.HopLimit-- }},
	{"a queue is long: ECN marks it (traffic class 3)", func(f *wire.Frame) { f.Outer.TrafficClass = 3 }},
	{"a gateway sets FECN in the BTH", func(f *wire.Frame) { f.Transport[4] |= 0x80 }},
	{"one bit of the payload changes", func(f *wire.Frame) { f.Transport[wire.BTHLen+wire.RETHLen] ^= 1 }},
	{"one bit of the pad changes", func(f *wire.Frame) { f.Transport[wire.BTHLen+wire.RETHLen+5] ^= 1 }},
	{"the destination QP changes", func(f *wire.Frame) { f.Transport[7] ^= 1 }},
	{"NAT changes the source address", func(f *wire.Frame) { f.Outer.Src[15]++ }},
	{"NAT changes the source port", func(f *wire.Frame) { f.Outer.SrcPort++ }},
	{"somebody renumbers it (IPv4 identification)", func(f *wire.Frame) { f.Outer.ID++ }},
}

func showICRC(p *page) error {
	p.paragraph("The ICRC is the CRC-32 of Ethernet over the packet from the IP header on, with ones in place of " +
		"what may change on the way: TTL, traffic class and header checksum of IPv4 (hop limit, traffic class and " +
		"flow label of IPv6), the UDP checksum, and the byte of the BTH that has FECN and BECN; and eight bytes of " +
		"ones in front. Nobody on the way recomputes it, so it tells of any other change. Receivers drop a packet " +
		"whose ICRC is wrong without a word; the sender's timer finds out.")
	for _, c := range changes {
		f := samplePacket()
		c.change(&f)
		verdict := "wrong: dropped"
		if f.Outer.Check(f.Transport) {
			verdict = "right"
		}
		fmt.Fprintf(p.out, "  %-50s  %s\n", c.what, verdict)
	}
	fmt.Fprintln(p.out)
	p.paragraph("So RoCEv2 does not pass NAT, and a capture in which every ICRC is wrong was rewritten by somebody.")
	return nil
}
