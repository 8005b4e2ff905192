package story

import (
	"fmt"
	"io"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/qp"
	"github.com/goroce/goroce/roce/trace/capfile"
	"github.com/goroce/goroce/wire"
)

// WriteCapture writes the packets of the story to w as a capture file in pcapng format. They have all their headers,
// from Ethernet to the last extension header, but neither payload nor ICRC: the file says that they are cut there.
// Ethernet addresses, the IPv4 identification and time to live are made up. began is the wall clock time of Instant 0.
func (s *Story) WriteCapture(w io.Writer, began time.Time) error {
	c, err := capfile.NewWriter(w, capfile.Ethernet, fmt.Sprintf("QP %#x", uint32(s.Num)),
		"from the flight recorder of a queue pair, without payload: "+s.Failed.Cause.String())
	if err != nil {
		return err
	}
	for i := range s.Records {
		if k := s.Records[i].Kind; k != qp.RecordSent && k != qp.RecordReceived {
			continue
		}
		p := s.packet(i)
		for n := 0; ; n++ {
			if err := c.Write(s.captured(&p, began)); err != nil {
				return err
			}
			if n == p.rec.More() {
				break
			}
			p.advance()
		}
	}
	return c.Flush()
}

// captured returns a packet as it is written.
func (s *Story) captured(p *packetAt, began time.Time) *capfile.Packet {
	f := wire.Frame{Outer: s.outer(p.rec.Kind == qp.RecordSent)}
	f.EtherSrc, f.EtherDst = mac(&f.Outer.Src), mac(&f.Outer.Dst)
	rest := int(p.rec.Length) + int(p.PadCnt) + wire.ICRCLen
	data := f.AppendHeaders(nil, p.Opcode.HeaderLen()+rest)
	data = p.AppendHeaders(data)
	dir := capfile.Received
	if p.rec.Kind == qp.RecordSent {
		dir = capfile.Sent
	}
	return &capfile.Packet{At: ib.Instant(began.UnixNano()) + p.rec.At, Link: capfile.Ethernet, Data: data,
		WireLen: len(data) + rest, Dir: dir}
}

// mac returns a locally administered Ethernet address for an address.
func mac(g *ib.GID) [6]byte { return [6]byte{0x02, 0, g[12], g[13], g[14], g[15]} }
