package script

import (
	"fmt"

	"github.com/goroce/goroce/qp"
	"github.com/goroce/goroce/wire"
)

// fate is what happens to a packet on the wire.
type fate uint8

const (
	delivered fate = iota
	lost
	twice
	held     // it arrives later
	arriving // it was held before, and arrives now
)

// arrow is the first word of a step about a packet.
type arrow struct {
	fromLeft bool
	fate     fate
}

var arrows = map[string]arrow{
	">": {true, delivered}, ">x": {true, lost}, ">>": {true, twice}, ">~": {true, held}, "~>": {true, arriving},
	"<": {false, delivered}, "<x": {false, lost}, "<<": {false, twice}, "<~": {false, held}, "~<": {false, arriving},
}

// delayed is a packet that is still on the wire.
type delayed struct {
	fromLeft bool
	p        packet
}

// arrow returns the arrow of packets that e sends.
func (r *runner) arrow(e *endpoint) string {
	if r.scripted || e == r.ends[0] {
		return ">"
	}
	return "<"
}

// cross executes a step about a packet. e is the QP whose peer is scripted; nil with
// connect.
func (r *runner) cross(e *endpoint, a arrow, text string) error {
	switch {
	case r.scripted && e == nil:
		return errWhichSide(r)
	case !r.scripted && e != nil:
		return fmt.Errorf("the arrow says from where to where")
	}
	s, err := r.parseSpec(text)
	if err != nil {
		return err
	}
	byScript := r.scripted && !a.fromLeft
	if byScript {
		if err := r.beforeInput(); err != nil {
			return err
		}
		r.claiming = false
	} else if a.fate != arriving {
		r.claiming = true
	}
	each := r.lose != nil && s.count > 1 // some packets of the run may be lost
	done := a
	for i := range s.count {
		want, data := s.at(i, int(r.ends[0].cfg.attr.PathMTU))
		p, err := r.packet(e, a, s, want, data)
		if err != nil {
			return err
		}
		one := s.text(want.PSN, data)
		done.fate = r.decide(a, one)
		r.fly(e, done, p)
		if each {
			r.showCrossing(e, done, one)
		}
	}
	if !each {
		r.showCrossing(e, done, text)
	}
	return nil
}

// decide returns what becomes of a packet: what the script says, unless the program that runs it
// decides otherwise.
func (r *runner) decide(a arrow, text string) fate {
	if r.lose == nil || a.fate == held {
		return a.fate
	}
	lose := r.lose(Step{Kind: Packet, At: r.now, Line: r.line.num, Left: a.fromLeft, Lost: a.fate == lost,
		Text: text, Reason: r.line.reason})
	switch {
	case lose:
		return lost
	case a.fate == lost:
		return delivered
	}
	return a.fate
}

// packet returns the packet of a step: one that the script makes, one that was
// delayed, or one that a side sends and that must match the step.
func (r *runner) packet(e *endpoint, a arrow, s *spec, want wire.Packet, data slice) (packet, error) {
	from, to := r.ends[0], r.ends[len(r.ends)-1]
	switch {
	case e != nil:
		from, to = e, e
	case !a.fromLeft:
		from, to = to, from
	}
	if !special(want.Opcode) {
		want.Opcode = qp.WireService(from.cfg.typ).Opcode(want.Opcode.Op())
	}
	if !want.Opcode.Valid() {
		return packet{}, fmt.Errorf("%v has no such packet", from.cfg.typ)
	}
	if r.scripted && !a.fromLeft {
		s.between(&want, to.peer, to.num)
		want.Payload = s.payload(data)
		r.messages[data.name] = max(r.messages[data.name], data.to)
		p := roundTrip(want)
		p.ECN = want.ECN
		return p, p.err
	}
	s.between(&want, from.num, from.peer)
	if a.fate == arriving {
		for i, d := range r.wire {
			if d.fromLeft == a.fromLeft && s.differs(want, data, &d.p) == nil {
				r.wire = append(r.wire[:i:i], r.wire[i+1:]...)
				return d.p, nil
			}
		}
		return packet{}, fmt.Errorf("no such packet is on the wire")
	}
	if len(from.packets) == 0 {
		if err := from.pump(r.now, r.batch); err != nil {
			return packet{}, err
		}
	}
	if len(from.packets) == 0 {
		return packet{}, fmt.Errorf("no packet came")
	}
	got := from.packets[0]
	from.packets = from.packets[1:]
	if err := s.differs(want, data, &got); err != nil {
		return packet{}, fmt.Errorf("%w; what came: %s %s", err, r.arrow(from), r.describe(&got))
	}
	got.ECN = want.ECN
	return got, nil
}

// roundTrip encodes a packet and decodes it again.
func roundTrip(p wire.Packet) packet {
	b := append(p.AppendHeaders(nil), p.Payload...)
	b = append(b, make([]byte, p.PadCnt)...)
	var out packet
	out.err = out.Decode(b)
	return out
}

// fly delivers, drops or delays a packet, as its fate says.
func (r *runner) fly(e *endpoint, a arrow, p packet) {
	to := r.ends[len(r.ends)-1]
	switch {
	case r.scripted && a.fromLeft:
		return // to the scripted peer
	case r.scripted:
		to = e
	case !a.fromLeft:
		to = r.ends[0]
	}
	switch a.fate {
	case lost:
	case held:
		r.wire = append(r.wire, delayed{a.fromLeft, p})
	case twice:
		to.receive(r.now, p)
		to.receive(r.now, p)
	default:
		to.receive(r.now, p)
	}
}

// showCrossing shows a packet to the observer.
func (r *runner) showCrossing(e *endpoint, a arrow, text string) {
	if len(r.ends) > 1 && r.scripted {
		text += " (" + e.name + ")"
	}
	s := Step{Kind: Packet, Left: a.fromLeft, Lost: a.fate == lost, Text: text}
	switch a.fate {
	case held:
		s.Kind, s.Text = Local, text+" leaves, and is delayed"
	case twice:
		r.show(s)
		s.Reason = "the wire delivers it twice"
	}
	r.show(s)
}
