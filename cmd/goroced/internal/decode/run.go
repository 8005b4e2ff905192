package decode

import "github.com/goroce/goroce/wire"

// Lengths of the shortest and the longest RoCEv2 packet, from BTH to ICRC.
const (
	minTransport = wire.BTHLen + wire.ICRCLen
	maxTransport = wire.MaxHeaderLen + wire.MaxPayload + wire.ICRCLen
)

// split returns the packets of a run that was captured in one piece: before segmentation offload has cut it, or after
// receive offload has merged it. A capture on the machine itself has one IP header, then packets of equal size, the
// last of which may be shorter. The size is not stored anywhere, but the ICRC of the first packet determines it. split
// returns nil if p is not a run.
//
// Linux numbers the packets of a run from the captured identification on.
func (p *packet) split() []packet {
	if !p.located || p.cut || p.err == nil && p.icrc == icrcRight {
		return nil
	}
	t := p.frame.Transport
	size := p.runSize()
	if size == 0 || len(t)%size != 0 && len(t)%size < minTransport {
		return nil
	}
	var parts []packet
	for at := 0; at < len(t); at += size {
		part := *p
		part.part = len(parts) + 1
		part.frame.Transport = t[at:min(at+size, len(t))]
		part.frame.Outer.ID += uint16(len(parts))
		part.readTransport()
		parts = append(parts, part)
	}
	return parts
}

// runSize returns the length of the first packet of a run, 0 if it is not a run.
func (p *packet) runSize() int {
	t := p.frame.Transport
	for size := minTransport; size <= min(len(t)-minTransport, maxTransport); size += 4 {
		if p.frame.Outer.Check(t[:size]) {
			return size
		}
	}
	return 0
}
