package story

import (
	"fmt"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/qp"
	"github.com/goroce/goroce/roce/trace"
	"github.com/goroce/goroce/roce/trace/track"
	"github.com/goroce/goroce/wire"
)

// Story is what a queue pair's flight recorder knows, and why the queue pair has failed. It names addresses, keys and
// PSNs, with which one can speak as the peer: show it to the owner and privileged users only.
type Story struct {
	Num        ib.QPN
	Type       ib.QPType
	Local      ib.GID // zero before the QP has a peer, and for datagrams
	Peer       ib.GID // likewise
	PeerQPN    ib.QPN
	SourcePort uint16 // UDP source port of the packets
	Failed     ib.Failure
	Refused    ib.Failure // the latest request of the peer that was refused
	Records    []qp.Record
}

// packetAt is a packet of a story, with its headers.
type packetAt struct {
	rec *qp.Record
	wire.Packet
}

// packet returns the packet of record i.
func (s *Story) packet(i int) packetAt {
	r := &s.Records[i]
	var next *qp.Record
	if i+1 < len(s.Records) {
		next = &s.Records[i+1]
	}
	p := packetAt{r, r.Packet(next)}
	if p.Opcode.Service() != wire.UD {
		if p.DestQP = s.Num; r.Kind == qp.RecordSent {
			p.DestQP = s.PeerQPN
		}
	}
	p.Payload = zeros[:min(int(r.Length), len(zeros))]
	return p
}

// zeros stands for payload, which is not recorded.
var zeros [wire.MaxPayload]byte

// advance makes p the packet after it in its train.
func (p *packetAt) advance() {
	p.PSN = p.PSN.Add(1)
	p.RETH.VA += uint64(p.rec.Length)
	p.AckReq = false
}

// outer returns the addresses of a packet.
func (s *Story) outer(sent bool) wire.Outer {
	o := wire.Outer{Src: s.Peer, Dst: s.Local, SrcPort: s.SourcePort, DstPort: wire.Port, HopLimit: 64}
	if sent {
		o.Src, o.Dst = o.Dst, o.Src
	}
	return o
}

// Ladder returns the last events of the story, at most so many: packets, requests, completions, timers and changes of
// state. A train of packets is one event. Events that tell where it went wrong have Problem set.
func (s *Story) Ladder(most int) trace.Ladder {
	l := trace.Ladder{Left: fmt.Sprintf("QP %#x", uint32(s.Num)), Right: "peer"}
	if s.PeerQPN != 0 {
		l.Right = fmt.Sprintf("%v QP %#x", s.Peer.Addr(), uint32(s.PeerQPN))
	}
	var t track.Tracker
	num := 0
	for i := range s.Records {
		switch r := &s.Records[i]; r.Kind {
		case qp.RecordSent, qp.RecordReceived:
			s.drawPacket(&l, &t, &num, s.packet(i))
		default:
			if text, problem := local(r); text != "" {
				e := l.Local(r.At, true, text)
				e.Problem = problem
			}
		}
	}
	l.Events = l.Events[max(0, len(l.Events)-most):]
	return l
}

// drawPacket adds a packet and its train. The tracker says what the packet does to the connection.
func (s *Story) drawPacket(l *trace.Ladder, t *track.Tracker, num *int, p packetAt) {
	sent := p.rec.Kind == qp.RecordSent
	outer := s.outer(sent)
	e := l.Packet(p.rec.At, sent, trace.Label(&p.Packet))
	*num++
	effect := t.Add(*num, p.rec.At, &outer, &p.Packet)
	more := p.rec.More()
	for range more {
		p.advance()
		*num++
		t.Add(*num, p.rec.At, &outer, &p.Packet)
	}
	if text, wrong := verdicts[p.rec.Verdict()].text, verdicts[p.rec.Verdict()].problem; text != "" {
		e.Note, e.Problem = text, wrong
	} else {
		e.Note, e.Problem = note(&effect, sent, p.rec.Again())
	}
	if more > 0 {
		e.Text += fmt.Sprintf(" and %d more", more)
	}
}

// note explains a packet that was accepted.
func note(e *track.Effect, sent, again bool) (text string, problem bool) {
	where := "there"
	if sent {
		where = "here"
	}
	switch e.Kind {
	case track.SequenceNAK:
		return fmt.Sprintf("psn %d is missing %s", uint32(e.PSN), where), true
	case track.FatalNAK:
		return "ends the connection", true
	case track.RNR:
		return "no receive is posted " + where, true
	}
	if sent && again {
		return "sent again", true
	}
	return "", false
}

// verdicts say what became of a received packet.
var verdicts = map[qp.Verdict]struct {
	text    string
	problem bool
}{
	qp.Duplicate:  {"had come before", false},
	qp.Gap:        {"packets before it are missing", true},
	qp.Behind:     {"dropped: comes after one that is missing or refused", false},
	qp.NotReady:   {"no receive is posted", true},
	qp.NoRoom:     {"dropped: too much waits for memory", true},
	qp.Unexpected: {"no request awaits it", false},
	qp.WrongState: {"dropped: not in this state", true},
	qp.WrongQKey:  {"dropped: another Q_Key", true},
	qp.Refused:    {"refused", true},
	qp.Dropped:    {"dropped", true},
	qp.Kept:       {"kept, as one before it is missing", false},
}

// local describes an event that is no packet; "" if it is none that one sees.
func local(r *qp.Record) (text string, problem bool) {
	switch r.Kind {
	case qp.RecordPosted:
		return fmt.Sprintf("%v %d B", ib.WROpcode(r.Code), r.Extra), false
	case qp.RecordCompleted:
		return completed(r), r.Status() != ib.WCSuccess && r.Status() != ib.WCWRFlushErr
	case qp.RecordState:
		if r.Key == uint32(r.Code) {
			return fmt.Sprintf("in %v", ib.QPState(r.Code)), false
		}
		to := ib.QPState(r.Code)
		return fmt.Sprintf("%v to %v", ib.QPState(r.Key), to), to == ib.StateErr || to == ib.StateSQE
	case qp.RecordTimer:
		return timer(r), r.Code == qp.TimerACK
	case qp.RecordFailed:
		return "fails: " + ib.Reason(r.Code).String(), true
	case qp.RecordRefused:
		return fmt.Sprintf("refuses psn %d: %v", uint32(r.PSN()), ib.Reason(r.Code)), true
	}
	return "", false
}

func completed(r *qp.Record) string {
	text := fmt.Sprintf("completion: %v", ib.WCOpcode(r.Code))
	if st := r.Status(); st != ib.WCSuccess {
		text += fmt.Sprintf(", %v", st)
	}
	if r.Length > 1 {
		text += fmt.Sprintf(" (%d)", r.Length)
	}
	return text
}

func timer(r *qp.Record) string {
	switch r.Code {
	case qp.TimerACK:
		return fmt.Sprintf("no answer for psn %d: %d retries left", uint32(r.PSN()), r.Extra)
	case qp.TimerProbe:
		return fmt.Sprintf("answer is late: probe for psn %d", uint32(r.PSN()))
	}
	return "the peer's wait is over"
}
