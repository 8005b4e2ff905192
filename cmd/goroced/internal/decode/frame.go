package decode

import (
	"encoding/binary"
	"errors"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/trace/capfile"
	"github.com/goroce/goroce/roce/trace/track"
	"github.com/goroce/goroce/wire"
)

// verdict is the result of checking the ICRC of a packet.
type verdict uint8

const (
	icrcUnknown verdict = iota // the capture does not have the whole packet
	icrcRight
	icrcWrong
	icrcOtherID // correct with another IPv4 identification
	numVerdicts
)

// String returns the word in listings.
func (v verdict) String() string { return [numVerdicts]string{"-", "ok", "BAD", "id?"}[v] }

// packet is a captured packet with everything that was found out about it.
type packet struct {
	num     int
	at      ib.Instant
	since   ib.Instant // time since the first packet of the file
	link    capfile.LinkType
	wireLen int
	cut     bool // the capture has only the start of the packet
	other   bool // not RoCEv2; err says what it is
	err     error
	located bool // frame is valid, even if err is not nil
	dir     capfile.Direction
	copyOf  int // the packet of which this is the other copy; 0 if it is none (copies.go)
	part    int // number in a run that was captured in one piece, from 1 (run.go)

	frame  wire.Frame
	pkt    wire.Packet
	icrc   verdict
	id     uint16 // icrcOtherID: the identification with which the ICRC is correct
	effect track.Effect
}

// problem reports whether anything is wrong with a packet.
func (p *packet) problem() bool {
	if p.other || p.copyOf > 0 {
		return false
	}
	return p.err != nil || p.icrc == icrcWrong || p.effect.Kind.Problem() || p.effect.Missing > 0
}

// maxWireLen is the length up to which packets that were cut are padded.
const maxWireLen = 64<<10 + 64

// read decodes a captured packet.
func (p *packet) read(raw *capfile.Packet) {
	p.num, p.at, p.link, p.wireLen, p.dir = raw.Num, raw.At, raw.Link, raw.WireLen, raw.Dir
	data := raw.Data
	if p.cut = raw.WireLen > len(data); p.cut && raw.WireLen <= maxWireLen {
		// The lengths in the headers must agree with the data, so missing bytes become 0.
		data = append(make([]byte, 0, raw.WireLen), data...)[:raw.WireLen]
	}
	// Captures on the sending machine have checksums that the NIC will complete.
	p.frame.PartialUDPSum = true
	p.err = p.readFrame(data)
	if p.err != nil {
		p.other = !addressed(raw.Link, data)
		return
	}
	p.located = true
	p.readTransport()
}

// readTransport decodes the contents of the UDP packet.
func (p *packet) readTransport() {
	t := p.frame.Transport
	p.err = p.pkt.Decode(t[:len(t)-wire.ICRCLen])
	if !p.cut {
		p.check()
	}
}

// readFrame decodes the headers down to UDP.
func (p *packet) readFrame(data []byte) error {
	if p.link == capfile.Ethernet {
		return p.frame.Decode(data)
	}
	ip, ok := p.link.IP(data)
	if !ok {
		return errNotIP
	}
	return p.frame.DecodeIP(ip)
}

var errNotIP = errors.New("neither IPv4 nor IPv6")

// check checks the ICRC. If it is wrong, check looks for an identification with which it is correct: a capture on the
// sending machine has the packet from before the kernel or the NIC set the identification.
func (p *packet) check() {
	o, t := &p.frame.Outer, p.frame.Transport
	if o.Check(t) {
		p.icrc = icrcRight
		return
	}
	p.icrc = icrcWrong
	if id, ok := o.SolveID(t); ok {
		p.icrc, p.id = icrcOtherID, id
	}
}

// addressed reports whether a packet that could not be decoded is to UDP port 4791.
func addressed(link capfile.LinkType, b []byte) bool {
	if link == capfile.Ethernet {
		if len(b) < wire.EtherLen {
			return false
		}
		typ := binary.BigEndian.Uint16(b[12:])
		b = b[wire.EtherLen:]
		if typ == 0x8100 && len(b) >= wire.VLANLen {
			typ, b = binary.BigEndian.Uint16(b[2:]), b[wire.VLANLen:]
		}
		if typ != 0x0800 && typ != 0x86DD {
			return false
		}
	} else {
		b, _ = link.IP(b)
	}
	const protoUDP = 17
	switch {
	case len(b) > wire.IPv4Len && b[0]>>4 == 4:
		ihl := int(b[0]&15) * 4
		fragment := binary.BigEndian.Uint16(b[6:])&0x1FFF != 0
		return b[9] == protoUDP && !fragment && len(b) >= ihl+4 && binary.BigEndian.Uint16(b[ihl+2:]) == wire.Port
	case len(b) >= wire.IPv6Len+4 && b[0]>>4 == 6:
		return b[6] == protoUDP && binary.BigEndian.Uint16(b[wire.IPv6Len+2:]) == wire.Port
	}
	return false
}
