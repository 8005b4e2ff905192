package decode

import (
	"fmt"
	"io"
	"net"

	"github.com/goroce/goroce/cmd/goroced/internal/term"
	"github.com/goroce/goroce/roce/trace/capfile"
	"github.com/goroce/goroce/wire"
)

// printFields writes every field of every header, a line for each header.
func printFields(w io.Writer, t term.Terminal, p *packet) {
	if !p.located {
		return
	}
	line := func(name, format string, args ...any) {
		fmt.Fprintln(w, t.Hang(fmt.Sprintf("           %-10s ", name), fmt.Sprintf(format, args...)))
	}
	outerFields(line, p)
	if p.err == nil {
		bthFields(line, &p.pkt.BTH)
		extFields(line, &p.pkt)
		payloadFields(line, p)
	}
	if t := p.frame.Transport; !p.cut {
		n := len(t) - wire.ICRCLen
		line("ICRC", "%x, computed %x", t[n:], littleEndian(p.frame.Outer.ICRC(t[:n])))
	}
}

// Fields writes every field of an Ethernet frame, as Run does with Options.Verbose.
func Fields(w io.Writer, t term.Terminal, frame []byte) error {
	var p packet
	p.read(&capfile.Packet{Link: capfile.Ethernet, Data: frame, WireLen: len(frame)})
	printFields(w, t, &p)
	return p.err
}

// First returns the first packet of a capture file.
func First(r io.Reader) ([]byte, error) {
	in, err := capfile.NewReader("capture", r)
	if err != nil {
		return nil, err
	}
	var p capfile.Packet
	err = in.Next(&p)
	return p.Data, err
}

// fieldLine writes the line of a header: its name, and its fields.
type fieldLine func(name, format string, args ...any)

func littleEndian(v uint32) [4]byte {
	return [4]byte{byte(v), byte(v >> 8), byte(v >> 16), byte(v >> 24)}
}

func outerFields(line fieldLine, p *packet) {
	f, o := &p.frame, &p.frame.Outer
	if p.link == capfile.Ethernet {
		vlan := ""
		if f.HasVLAN {
			vlan = fmt.Sprintf(" vlan %d priority %d dei %d", f.VLAN&0xFFF, f.VLAN>>13, f.VLAN>>12&1)
		}
		line("Ethernet", "%v -> %v%s", net.HardwareAddr(f.EtherSrc[:]), net.HardwareAddr(f.EtherDst[:]), vlan)
	}
	if o.Src.Is4() {
		line("IPv4", "%v -> %v tos %#02x ttl %d id %d (%#04x) df %d", o.Src.Addr(), o.Dst.Addr(), o.TrafficClass,
			o.HopLimit, o.ID, o.ID, bit(!o.NoDF))
	} else {
		line("IPv6", "%v -> %v traffic class %#02x flow label %#05x hop limit %d", o.Src.Addr(), o.Dst.Addr(),
			o.TrafficClass, o.FlowLabel, o.HopLimit)
	}
	line("UDP", "%d -> %d length %d", o.SrcPort, o.DstPort, wire.UDPLen+len(f.Transport))
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

func bthFields(line fieldLine, h *wire.BTH) {
	line("BTH", "opcode %#02x (%v) destqp %#x psn %d (%#06x) ackreq %d pkey %#04x", uint8(h.Opcode), h.Opcode,
		uint32(h.DestQP), h.PSN, uint32(h.PSN), bit(h.AckReq), h.PKey)
	line("", "se %d migreq %d padcnt %d tver %d fecn %d becn %d resv6 %#x resv7 %#x", bit(h.SE), bit(h.MigReq),
		h.PadCnt, h.TVer, bit(h.FECN), bit(h.BECN), h.Resv6, h.Resv7)
}

func extFields(line fieldLine, p *wire.Packet) {
	set := p.Opcode.Headers()
	for _, h := range []struct {
		in     wire.HeaderSet
		name   string
		format string
		args   []any
	}{
		{wire.HasXRCETH, "XRCETH", "resv %#x srq %#x", []any{p.XRCResv, p.XRCSRQ}},
		{wire.HasDETH, "DETH", "qkey %#08x resv %#x srcqp %#x", []any{p.DETH.QKey, p.DETH.Resv, uint32(p.DETH.SrcQP)}},
		{wire.HasFETH, "FETH", "placement %#x selectivity %d resv %#x",
			[]any{p.FETH.Placement, p.FETH.Selectivity, p.FETH.Resv}},
		{wire.HasRETH, "RETH", "va %#016x rkey %#08x len %d", []any{p.RETH.VA, uint32(p.RETH.RKey), p.RETH.Len}},
		{wire.HasAtomicETH, "AtomicETH", "va %#016x rkey %#08x swap/add %#x compare %#x",
			[]any{p.Atomic.VA, uint32(p.Atomic.RKey), p.Atomic.Swap, p.Atomic.Compare}},
		{wire.HasAETH, "AETH", "syndrome %#02x (%v) msn %d",
			[]any{uint8(p.AETH.Syndrome), p.AETH.Syndrome, p.AETH.MSN}},
		{wire.HasAtomicAckETH, "AtomicAck", "original %#x", []any{p.AtomicAck}},
		{wire.HasImm, "ImmDt", "%#08x", []any{p.Imm}},
		{wire.HasIETH, "IETH", "rkey %#08x", []any{uint32(p.InvKey)}},
	} {
		if set&h.in != 0 {
			line(h.name, h.format, h.args...)
		}
	}
}

// shownPayload is the number of payload bytes that are printed.
const shownPayload = 32

func payloadFields(line fieldLine, p *packet) {
	if !p.pkt.Opcode.HasPayload() {
		return
	}
	data, more := p.pkt.Payload, ""
	if p.cut {
		line("payload", "%d bytes, not captured whole", len(data))
		return
	}
	if mad := p.pkt.MAD(); mad != nil {
		madFields(line, mad)
		return
	}
	if len(data) > shownPayload {
		data, more = data[:shownPayload], " ..."
	}
	line("payload", "%d bytes: % x%s", len(p.pkt.Payload), data, more)
}
