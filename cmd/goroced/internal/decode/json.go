package decode

import (
	"bufio"
	"encoding/json"
	"fmt"

	"github.com/goroce/goroce/roce/trace"
)

// jsonPrinter prints a JSON object on each line.
type jsonPrinter struct{ enc *json.Encoder }

func newJSONPrinter(w *bufio.Writer) *jsonPrinter {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return &jsonPrinter{enc}
}

// PacketLine is the line of a packet. Memory addresses and operands are hexadecimal strings, because JSON's numbers
// cannot hold 64 bits.
type PacketLine struct {
	Packet  int    `json:"packet"`
	SinceNS int64  `json:"since_ns"`       // since the first packet of the file
	Length  int    `json:"length"`         // on the wire
	Part    int    `json:"part,omitempty"` // number in a run that was captured in one piece, from 1
	Error   string `json:"error,omitempty"`
	Dir     string `json:"direction,omitempty"` // "sent" or "received", if the file says so
	CopyOf  int    `json:"copy_of,omitempty"`   // the packet of which this is the other copy

	Src     string `json:"src,omitempty"`
	Dst     string `json:"dst,omitempty"`
	SrcPort uint16 `json:"src_port,omitempty"`
	IPID    uint16 `json:"ip_id,omitempty"`

	Opcode string        `json:"opcode,omitempty"`
	Label  string        `json:"label,omitempty"`
	DestQP uint32        `json:"dest_qp,omitempty"`
	SrcQP  uint32        `json:"src_qp,omitempty"` // if known
	PSN    *uint32       `json:"psn,omitempty"`
	AckReq bool          `json:"ack_req,omitempty"`
	Bytes  *int          `json:"payload,omitempty"`
	ICRC   string        `json:"icrc,omitempty"` // "ok", "BAD", "id?" (correct with ICRCID), "-" (not known)
	ICRCID *uint16       `json:"icrc_id,omitempty"`
	Effect *PacketEffect `json:"effect,omitempty"`
}

// PacketEffect is what a packet does to its connection.
type PacketEffect struct {
	Kind     string `json:"kind"`
	Problem  bool   `json:"problem"`
	Text     string `json:"text,omitempty"`
	Message  string `json:"message,omitempty"` // "SEND 3"
	From     uint32 `json:"from"`              // range of bytes in the message, to excluded
	To       uint32 `json:"to"`
	Of       int    `json:"of,omitempty"`
	Cause    string `json:"cause,omitempty"`
	CauseOf  int    `json:"cause_packet,omitempty"`
	Missing  int    `json:"missing,omitempty"`
	Lost     int    `json:"lost,omitempty"`
	AckFirst int    `json:"ack_first,omitempty"`
	AckLast  int    `json:"ack_last,omitempty"`
	Done     int    `json:"done,omitempty"`
}

func (j *jsonPrinter) packet(p *packet) error {
	out := PacketLine{Packet: p.num, SinceNS: int64(p.since), Length: p.wireLen, Part: p.part, Dir: p.dir.String(),
		CopyOf: p.copyOf}
	if p.located {
		o := &p.frame.Outer
		out.Src, out.Dst, out.SrcPort, out.IPID = o.Src.Addr().String(), o.Dst.Addr().String(), o.SrcPort, o.ID
	}
	if p.err != nil {
		out.Error = p.err.Error()
		return j.enc.Encode(&out)
	}
	k := &p.pkt
	psn, n := uint32(k.PSN), len(k.Payload)
	out.Opcode, out.Label, out.DestQP, out.PSN, out.AckReq, out.Bytes = k.Opcode.String(), trace.Label(k),
		uint32(k.DestQP), &psn, k.AckReq, &n
	if f := p.effect.Flow; f != nil {
		if src, ok := f.Source(); ok {
			out.SrcQP = uint32(src.QPN)
		}
	}
	if out.ICRC = p.icrc.String(); p.icrc == icrcOtherID {
		out.ICRCID = &p.id
	}
	out.Effect = newPacketEffect(p)
	return j.enc.Encode(&out)
}

// newPacketEffect returns the packet's effect on its connection.
func newPacketEffect(p *packet) *PacketEffect {
	e := &p.effect
	out := &PacketEffect{Kind: e.Kind.String(), Problem: p.problem(), Text: meaning(p), From: e.From, To: e.To,
		Of: e.Of, Missing: e.Missing, Lost: e.Lost, AckFirst: e.AckFirst, AckLast: e.AckLast, Done: e.DoneCount}
	if e.Msg != nil {
		out.Message = e.Msg.String()
	}
	if e.Cause.Packet > 0 {
		out.Cause, out.CauseOf = fmt.Sprint(e.Cause.Why), e.Cause.Packet
	}
	return out
}

// SummaryLine is the last line.
type SummaryLine struct {
	Summary *Summary `json:"summary"`
}

func (j *jsonPrinter) summary(s *Summary) error { return j.enc.Encode(SummaryLine{s}) }
