package trace

import (
	"fmt"
	"strings"

	"github.com/goroce/goroce/wire"
)

// Label describes a packet on one short line: operation, PSN, flags, fields of the extension headers, payload length.
// Services other than RC are named. Numbers are decimal; addresses, keys and operands are hexadecimal.
// Any packet has a label, also one with an unknown opcode.
func Label(p *wire.Packet) string { return label(p, true) }

// ShortLabel is Label without addresses, keys and operands, which fits the arrows of a Ladder. For a management
// datagram it is the name of the message.
func ShortLabel(p *wire.Packet) string {
	if mad := p.MAD(); mad != nil {
		var h wire.MADHeader
		h.Decode(mad)
		return h.Name()
	}
	return label(p, false)
}

func label(p *wire.Packet, full bool) string {
	var b strings.Builder
	b.WriteString(opText(p))
	if p.Opcode != wire.CNP {
		fmt.Fprintf(&b, " psn=%d", p.PSN)
	}
	flagText(&b, p)
	set := p.Opcode.Headers()
	if full {
		askText(&b, p)
	} else if set&wire.HasRETH != 0 {
		fmt.Fprintf(&b, " len=%d", p.RETH.Len)
	}
	if set&wire.HasAETH != 0 {
		fmt.Fprintf(&b, " msn=%d", p.AETH.MSN)
	}
	if full {
		answerText(&b, p)
	}
	var sack wire.SACK
	switch {
	case p.Opcode == wire.SACKOpcode && sack.Decode(p.Payload) == nil:
		b.WriteString(sackText(&sack))
	case p.Opcode.HasPayload() && p.Opcode != wire.CNP:
		fmt.Fprintf(&b, " (%d B)", len(p.Payload))
	}
	return b.String()
}

// sackText names the first PSNs that a SACK has, which are most of them as a rule.
func sackText(s *wire.SACK) string {
	var b strings.Builder
	runs := 0
	for psn, n := s.Run(s.First); n > 0; psn, n = s.Run(psn.Add(n)) {
		if runs++; runs > 3 {
			return b.String() + " ..."
		}
		fmt.Fprintf(&b, " has %d", uint32(psn))
		if n > 1 {
			fmt.Fprintf(&b, "..%d", uint32(psn.Add(n-1)))
		}
	}
	return b.String()
}

// opText returns the name of the operation; for an acknowledge, its syndrome.
func opText(p *wire.Packet) string {
	if !p.Opcode.Valid() || p.Opcode == wire.CNP || p.Opcode == wire.SACKOpcode {
		return p.Opcode.String()
	}
	name := p.Opcode.Op().String()
	if p.Opcode.Headers()&wire.HasAETH != 0 && !p.AETH.Syndrome.IsAck() {
		if p.Opcode.Op() == wire.OpAck {
			name = syndromeText(p)
		} else {
			name += " " + syndromeText(p)
		}
	}
	if p.Opcode.Service() == wire.RC {
		return name
	}
	return p.Opcode.Service().String() + " " + name
}

// syndromeText is the syndrome without the commas of its full description.
func syndromeText(p *wire.Packet) string {
	return strings.ReplaceAll(p.AETH.Syndrome.String(), ",", "")
}

// flagText adds the bits of the BTH that are set.
func flagText(b *strings.Builder, p *wire.Packet) {
	for _, f := range []struct {
		set  bool
		name string
	}{{p.AckReq, "AckReq"}, {p.SE, "SE"}, {p.FECN, "FECN"}, {p.BECN && p.Opcode != wire.CNP, "BECN"}} {
		if f.set {
			b.WriteString(" " + f.name)
		}
	}
}

// askText adds the fields of request headers.
func askText(b *strings.Builder, p *wire.Packet) {
	set := p.Opcode.Headers()
	if set&wire.HasXRCETH != 0 {
		fmt.Fprintf(b, " srq=%d", p.XRCSRQ)
	}
	if set&wire.HasDETH != 0 {
		fmt.Fprintf(b, " srcqp=%#x qkey=%#x", uint32(p.DETH.SrcQP), p.DETH.QKey)
	}
	if set&wire.HasFETH != 0 {
		b.WriteString(flushText(&p.FETH))
	}
	if set&wire.HasRETH != 0 {
		fmt.Fprintf(b, " va=%#x len=%d rkey=%#x", p.RETH.VA, p.RETH.Len, uint32(p.RETH.RKey))
	}
	if set&wire.HasAtomicETH != 0 {
		a := &p.Atomic
		fmt.Fprintf(b, " va=%#x rkey=%#x", a.VA, uint32(a.RKey))
		if p.Opcode.Op() == wire.OpFetchAdd {
			fmt.Fprintf(b, " add=%#x", a.Swap)
		} else {
			fmt.Fprintf(b, " compare=%#x swap=%#x", a.Compare, a.Swap)
		}
	}
}

// answerText adds the fields of response headers except the MSN, and those of the small headers.
func answerText(b *strings.Builder, p *wire.Packet) {
	set := p.Opcode.Headers()
	if n, ok := p.AETH.Syndrome.Credits(); ok && set&wire.HasAETH != 0 {
		fmt.Fprintf(b, " credits=%d", n)
	}
	if set&wire.HasAtomicAckETH != 0 {
		fmt.Fprintf(b, " was=%#x", p.AtomicAck)
	}
	if set&wire.HasImm != 0 {
		fmt.Fprintf(b, " imm=%#x", p.Imm)
	}
	if set&wire.HasIETH != 0 {
		fmt.Fprintf(b, " inv=%#x", uint32(p.InvKey))
	}
}

// flushText describes placement type and selectivity of a FLUSH.
func flushText(h *wire.FETH) string {
	s := ""
	if h.Placement&wire.FlushGlobal != 0 {
		s += " global"
	}
	if h.Placement&wire.FlushPersistent != 0 {
		s += " persistent"
	}
	if h.Selectivity == wire.FlushRegion {
		s += " region"
	}
	return s
}

// Elapsed formats a duration in nanoseconds with three significant digits, in us, ms or s: "0.120 us", "67.1 ms". Zero
// is "0".
func Elapsed(ns int64) string {
	sign, v := "", float64(ns)/1e3
	if ns < 0 {
		sign, v = "-", -v
	}
	if ns == 0 {
		return "0"
	}
	unit := 0
	for ; unit < 2 && v >= 999.5; unit++ {
		v /= 1e3
	}
	decimals := 0
	for _, limit := range [...]float64{99.95, 9.995, 0.9995} {
		if v < limit {
			decimals++
		}
	}
	return fmt.Sprintf("%s%.*f %s", sign, decimals, v, [...]string{"us", "ms", "s"}[unit])
}
