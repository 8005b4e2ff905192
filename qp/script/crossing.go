package script

import (
	"fmt"

	"github.com/goroce/goroce/wire"
)

// fate is what becomes of a packet on the wire.
type fate uint8

const (
	delivered fate = iota
	lost
	twice
	held     // it arrives later
	arriving // it was held
)

// arrow is the beginning of a step about a packet.
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

// arrow returns the arrow of what e sends.
func (r *runner) arrow(e *endpoint) string {
	if e == r.ends[0] {
		return ">"
	}
	return "<"
}

// cross carries out a step about a packet.
func (r *runner) cross(a arrow, text string) error {
	s, err := r.parseSpec(text)
	if err != nil {
		return err
	}
	byScript := len(r.ends) == 1 && !a.fromLeft
	if byScript {
		if err := r.beforeInput(); err != nil {
			return err
		}
		r.claiming = false
	} else if a.fate != arriving {
		r.claiming = true
	}
	for i := range s.count {
		want, data := s.at(i, int(r.ends[0].cfg.attr.PathMTU))
		p, err := r.packet(a, s, want, data, byScript)
		if err != nil {
			return err
		}
		r.fly(a, p)
	}
	r.showCrossing(a, text)
	return nil
}

// packet returns the packet that a step is about: one that the script makes, one
// that was delayed, or one that a side sends and that must be as told.
func (r *runner) packet(a arrow, s *spec, want wire.Packet, data slice, byScript bool) (packet, error) {
	from, to := r.ends[0], r.ends[len(r.ends)-1]
	if !a.fromLeft {
		from, to = to, from
	}
	if byScript {
		want.PKey, want.DestQP = 0xFFFF, to.num
		want.Payload = data.bytes()
		r.messages[data.name] = max(r.messages[data.name], data.to)
		return roundTrip(want), nil
	}
	if a.fate == arriving {
		for i, d := range r.wire {
			if d.fromLeft == a.fromLeft && s.differs(want, data, from.peer, &d.p) == nil {
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
	if err := s.differs(want, data, from.peer, &got); err != nil {
		return packet{}, fmt.Errorf("%w; what came: %s %s", err, r.arrow(from), r.describe(&got))
	}
	return got, nil
}

// roundTrip puts a packet into bytes and takes it out again.
func roundTrip(p wire.Packet) packet {
	b := append(p.AppendHeaders(nil), p.Payload...)
	b = append(b, make([]byte, p.PadCnt)...)
	var out packet
	out.err = out.Decode(b)
	return out
}

// fly lets a packet meet its fate.
func (r *runner) fly(a arrow, p packet) {
	to := r.ends[len(r.ends)-1]
	if !a.fromLeft {
		to = r.ends[0]
	} else if len(r.ends) == 1 {
		return // the scripted peer's
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

// showCrossing tells the observer of a packet.
func (r *runner) showCrossing(a arrow, text string) {
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
