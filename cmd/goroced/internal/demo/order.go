package demo

import "github.com/goroce/goroce/ib"

// Times alone do not order an exchange: packets have those of the thread that has captured them, a turn of an engine or
// a moment behind it, and events those of the program. So the rows are three lines, each in an order that is known, and
// what a row needs of the other lines comes before it, whatever the times say.
const (
	events = iota // of the programs, in the order in which they were noted
	requests
	answers
	lines
)

// row is a packet or a local event.
type row struct {
	at     ib.Instant
	packet *Packet
	local  *local
	after  [lines]int // how many rows of each line come before it
}

// need lets n rows of a line come first.
func (r *row) need(line, n int) { r.after[line] = max(r.after[line], n) }

// rows merges packets and local events by time, causes before effects. A row whose time is before that of its cause
// takes the cause's.
func (e *Exchange) rows() []row {
	if len(e.locals) == 0 {
		return nil
	}
	h := e.history()
	h.explain()
	return h.merge()
}

// history is an exchange by lines.
type history struct {
	rows  [lines][]row
	first ib.PSN // of the requests
	// places has how many requests were sent when the server had each PSN from the first one on, and all before it.
	places []int
}

func (e *Exchange) history() *history {
	h := &history{}
	for i := range e.locals {
		h.rows[events] = append(h.rows[events], row{at: e.locals[i].at, local: &e.locals[i]})
	}
	for i := range e.Packets {
		p := &e.Packets[i]
		line := requests
		if p.From == "server" {
			line = answers
		}
		h.rows[line] = append(h.rows[line], row{at: p.At, packet: p})
	}
	h.deliver()
	return h
}

// merge takes the earliest row of those that need no other any more. If all do, what was recorded is not whole, and
// time decides.
func (h *history) merge() (rows []row) {
	var taken [lines]int
	for now := h.rows[events][0].at; ; {
		best, free := -1, false
		for line := range h.rows {
			if taken[line] == len(h.rows[line]) {
				continue
			}
			r := &h.rows[line][taken[line]]
			ready := true
			for other, n := range r.after {
				ready = ready && taken[other] >= n
			}
			if best < 0 || ready && !free || ready == free && r.at < h.rows[best][taken[best]].at {
				best, free = line, ready
			}
		}
		if best < 0 {
			return rows
		}
		r := h.rows[best][taken[best]]
		taken[best]++
		now = max(now, r.at)
		r.at = now
		rows = append(rows, r)
	}
}

// explain finds what each row needs.
func (h *history) explain() {
	for i := range h.rows[events] {
		h.explainEvent(i)
	}
	times := map[reply]int{} // how often an answer was given
	for i := range h.rows[answers] {
		r := &h.rows[answers][i]
		p := r.packet
		r.need(events, 1)
		if !p.response {
			continue
		}
		id := reply{p.From, p.PSN, p.nak || p.gap}
		times[id]++
		r.need(requests, h.cause(p, times[id]))
		if p.gap && (times[id] == 1 || !p.sack) {
			h.resend(p.PSN, i+1, r.after[requests])
		}
	}
}

// explainEvent: what is posted comes before its packets, a completion behind what makes it.
func (h *history) explainEvent(i int) {
	r := &h.rows[events][i]
	switch ev := r.local; {
	case ev.what == posted:
		for j := range h.rows[requests] {
			if q := &h.rows[requests][j]; q.packet.last.After(ev.last) {
				q.need(events, i+1)
			} else {
				q.need(events, 1)
			}
		}
	case ev.what == completed && ev.host == "client":
		r.need(answers, h.answered(ev.last))
	case ev.what == completed:
		r.need(requests, h.arrived(ev.last))
	}
}

// cause returns how many requests come before an answer that is given for the nth time.
func (h *history) cause(p *Packet, n int) int {
	switch {
	case p.sack:
		return h.nth(1, 0, func(q *Packet) bool { return q.PSN == p.trigger })
	case p.gap: // what misses the PSN is behind it, or its repetition, and it has all before
		from := h.nth(n, 0, func(q *Packet) bool { return q.PSN == p.PSN })
		from = max(from, h.arrived(p.PSN.Add(-1)))
		return h.nth(1, from, func(q *Packet) bool { return q.PSN.After(p.PSN) && !q.Lost })
	}
	asks := func(q *Packet) bool { return q.asks && !q.Lost && !q.PSN.After(p.PSN) }
	return max(h.arrived(p.PSN), h.nth(n, h.arrived(p.PSN)-1, asks))
}

// nth returns the place, from 1, of the nth request behind a place for which is holds; or of the last one; or the place
// itself.
func (h *history) nth(n, from int, is func(*Packet) bool) int {
	at := from
	for i := max(from, 0); i < len(h.rows[requests]) && n > 0; i++ {
		if is(h.rows[requests][i].packet) {
			at = i + 1
			n--
		}
	}
	return at
}

// arrived returns how many requests were sent when the server had all up to a PSN.
func (h *history) arrived(psn ib.PSN) int {
	i := min(psn.Sub(h.first), len(h.places)-1)
	if i < 0 {
		return 0
	}
	return h.places[i]
}

// deliver finds places. It takes the server for one that drops what it cannot execute yet; one that keeps it has it no
// later.
func (h *history) deliver() {
	for i := range h.rows[events] {
		if ev := h.rows[events][i].local; ev.what == posted && ev.host == "client" {
			h.first = ev.last.Add(1)
			break
		}
	}
	missed := h.missed()
	for i := range h.rows[requests] {
		p := h.rows[requests][i].packet
		expected := h.first.Add(len(h.places))
		switch {
		case p.Lost || expected.Before(p.PSN) || expected.After(p.last):
		case missed[expected] > 0:
			missed[expected]--
		default:
			for range p.last.Sub(expected) + 1 {
				h.places = append(h.places, i+1)
			}
		}
	}
	last := h.first.Add(-1)
	for i := range h.rows[requests] {
		if p := h.rows[requests][i].packet; p.last.After(last) {
			last = p.last
		}
	}
	for psn := h.first.Add(len(h.places)); !psn.After(last); psn = psn.Add(1) { // it was kept
		carries := func(p *Packet) bool { return !p.Lost && !p.PSN.After(psn) && !psn.After(p.last) }
		at := h.nth(1, 0, carries)
		h.places = append(h.places, max(at, h.arrived(psn.Add(-1))))
	}
}

// missed returns how many requests with a PSN got lost that are not marked so: a capture has them like all others, and
// the server's answers tell.
func (h *history) missed() map[ib.PSN]int {
	missed := map[ib.PSN]int{}
	for i := range h.rows[answers] {
		switch p := h.rows[answers][i].packet; {
		case p.sack:
			missed[p.PSN] = max(missed[p.PSN], 1) // several may be about one loss
		case p.gap:
			missed[p.PSN]++
		}
	}
	for i := range h.rows[requests] {
		if p := h.rows[requests][i].packet; p.Lost && missed[p.PSN] > 0 {
			missed[p.PSN]--
		}
	}
	return missed
}

// answered returns how many answers were given when the client had those of all requests up to a PSN. It may have
// dropped responses of a READ behind one that it missed.
func (h *history) answered(last ib.PSN) (n int) {
	for i := range h.rows[requests] {
		p := h.rows[requests][i].packet
		if p.PSN.After(last) {
			continue
		}
		at := 0
		for psn := p.PSN; !psn.After(p.last); psn = psn.Add(1) {
			at = h.answer(psn, p.last != p.PSN, at)
		}
		n = max(n, at)
	}
	return n
}

// answer returns the place of the first answer to a PSN behind a place, which it returns if there is none. Only a
// response with that PSN brings data of a READ.
func (h *history) answer(psn ib.PSN, read bool, from int) int {
	for i := from; i < len(h.rows[answers]); i++ {
		p := h.rows[answers][i].packet
		if p.response && !p.nak && !p.gap && !p.Lost && (p.PSN == psn || !read && p.PSN.After(psn)) {
			return i + 1
		}
	}
	return from
}

// resend: what is missing goes again behind the answer that says so.
func (h *history) resend(psn ib.PSN, answer, cause int) {
	if again := h.nth(1, cause, func(q *Packet) bool { return q.PSN == psn }); again > cause {
		h.rows[requests][again-1].need(answers, answer)
	}
}
