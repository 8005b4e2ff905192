package demo

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/goroce/goroce/cmd/goroced/internal/term"
	"github.com/goroce/goroce/ib"
)

// told is a row of an exchange as it was, with the row that has caused it.
type told struct {
	packet *Packet
	local  *local
	cause  int // -1: none that is known
}

// teller plays an exchange over a bad network, by the rules of go-back-N, and writes down what causes what.
type teller struct {
	rand     *rand.Rand
	captured bool // who looks sees no losses; then only such happen as a NAK tells of
	rows     []told
	wires    [2][]int // rows of packets under way, to the server and to the client

	first, last, expected ib.PSN
	read, naked           bool
	acked, received       bool
}

func (w *teller) event(host string, what moment, last ib.PSN, cause int) {
	w.rows = append(w.rows, told{local: &local{host: host, what: what, last: last,
		text: moments[what] + host}, cause: cause})
}

func (w *teller) packet(p Packet, loss float64, cause int) {
	p.Lost = w.rand.Float64() < loss
	if w.rows = append(w.rows, told{packet: &p, cause: cause}); !p.Lost {
		way := 0
		if p.From == "server" {
			way = 1
		}
		w.wires[way] = append(w.wires[way], len(w.rows)-1)
	}
}

// request sends all requests from a PSN on.
func (w *teller) request(psn ib.PSN, again bool, cause int) {
	p := Packet{From: "client", Label: "READ Request", PSN: psn, last: w.last, asks: true, Again: again}
	if w.read {
		w.packet(p, w.loss(false), cause)
		return
	}
	for ; !psn.After(w.last); psn = psn.Add(1) {
		p.PSN, p.last, p.asks, p.Label = psn, psn, again || psn == w.last, "SEND"
		w.packet(p, w.loss(again || psn != w.first.Add(1)), cause)
	}
}

// loss is the probability that a packet gets lost: of one that is quiet a capture alone does not tell.
func (w *teller) loss(quiet bool) float64 {
	if w.captured && (quiet || w.read) {
		return 0
	}
	return 0.3
}

func (w *teller) answer(psn ib.PSN, nak bool, cause int) {
	w.packet(Packet{From: "server", Label: "ACK", PSN: psn, last: psn, response: true, nak: nak, gap: nak},
		w.loss(true), cause)
}

// arrive takes a packet from a wire.
func (w *teller) arrive(way int) {
	i := w.wires[way][0]
	w.wires[way] = w.wires[way][1:]
	p := w.rows[i].packet
	switch {
	case way == 1 && p.gap:
		w.request(p.PSN, true, i)
	case way == 1:
		if p.PSN == w.last && !w.acked && (!w.read || w.whole()) {
			w.acked = true
			w.event("client", completed, w.last, i)
		}
	case w.read:
		for psn := p.PSN; !psn.After(w.last); psn = psn.Add(1) {
			w.answer(psn, false, i)
		}
	case p.PSN.After(w.expected) && !w.naked:
		w.naked = true
		w.answer(w.expected, true, i)
	case p.PSN == w.expected:
		w.expected, w.naked = w.expected.Add(1), false
		if p.PSN == w.last || p.Again { // what is repeated asks for an answer
			w.answer(p.PSN, false, i)
		}
		if p.PSN == w.last {
			w.received = true
			w.event("server", completed, w.last, i)
		}
	case p.PSN.Before(w.expected):
		w.answer(w.expected.Add(-1), false, i)
	}
}

// whole reports whether all responses have been sent, and were not lost.
func (w *teller) whole() bool {
	have := map[ib.PSN]bool{}
	for _, r := range w.rows {
		if r.packet != nil && r.packet.response && !r.packet.Lost {
			have[r.packet.PSN] = true
		}
	}
	return len(have) == w.last.Sub(w.first)+1
}

// tell plays an exchange to its end.
func (w *teller) tell() {
	w.first, w.last, w.expected = 0xFFFFFE, 1, 0xFFFFFE // PSNs wrap
	if !w.read {
		w.event("server", posted, w.first.Add(-1), -1)
	}
	w.event("client", posted, w.first.Add(-1), -1)
	w.request(w.first, false, len(w.rows)-1)
	for !w.acked || !w.read && !w.received || len(w.wires[0])+len(w.wires[1]) > 0 {
		way := w.rand.IntN(2)
		switch {
		case len(w.wires[way]) > 0:
			w.arrive(way)
		case len(w.wires[1-way]) > 0:
			w.arrive(1 - way)
		default: // a timeout
			w.request(w.first, true, -1)
		}
	}
}

// TestCauses: whatever the times say, no row is drawn above the one that has caused it, and none above one that its
// host has told of before.
func TestCauses(t *testing.T) {
	for seed := range uint64(3000) {
		w := &teller{rand: rand.New(rand.NewPCG(seed, 1)), captured: seed%2 == 0, read: seed%3 == 0}
		w.tell()
		e := &Exchange{}
		of := map[string]int{} // the text of a row to its place in the story
		id := func(r *told) string {
			if r.packet != nil {
				return r.packet.Label
			}
			return r.local.text
		}
		for i := range w.rows {
			r := &w.rows[i]
			at := ib.Instant(w.rand.IntN(1000))
			if r.packet != nil {
				r.packet.Label += fmt.Sprintf(" %d", i)
				p := *r.packet
				p.At, p.Lost = at, p.Lost && !w.captured
				e.Packets = append(e.Packets, p)
			} else {
				r.local.text += fmt.Sprintf(" %d", i)
				l := *r.local
				l.at = at
				e.locals = append(e.locals, l)
			}
			of[id(r)] = i
		}
		checkCauses(t, seed, w, e, of)
	}
}

func checkCauses(t *testing.T, seed uint64, w *teller, e *Exchange, of map[string]int) {
	t.Helper()
	place, now := map[int]int{}, ib.Instant(0)
	var order []string
	for n, r := range e.rows() {
		text := ""
		if r.packet != nil {
			text = fmt.Sprint(r.packet.Label, " psn ", r.packet.PSN, " lost ", r.packet.Lost, " gap ", r.packet.gap)
			place[of[r.packet.Label]] = n
		} else {
			text = r.local.text
			place[of[text]] = n
		}
		order = append(order, text)
		if r.at < now {
			t.Errorf("seed %d: row %d is at %d, want it behind one at %d", seed, n, r.at, now)
		}
		now = r.at
	}
	latest := [lines]int{-1, -1, -1}
	for i, r := range w.rows {
		line := events
		if r.packet != nil {
			line = requests
			if r.packet.From == "server" {
				line = answers
			}
		}
		if place[i] <= latest[line] || r.cause >= 0 && place[i] < place[r.cause] {
			t.Fatalf("seed %d: row %d of the story, caused by row %d, is drawn at %d:\n%s", seed, i, r.cause, place[i],
				strings.Join(order, "\n"))
		}
		latest[line] = place[i]
	}
	if len(order) != len(w.rows) {
		t.Fatalf("seed %d: %d rows, want %d", seed, len(order), len(w.rows))
	}
}

// TestNoCause: what does not fit together is drawn by time.
func TestNoCause(t *testing.T) {
	e := &Exchange{locals: []local{{at: 30, host: "client", text: "post", what: posted, last: 99},
		{at: 40, host: "client", text: "completion", what: completed, last: 100}}, Packets: []Packet{
		{At: 50, From: "server", Label: "ACK psn=100", PSN: 100, last: 100, response: true},
		{At: 20, From: "client", Label: "SEND Only psn=100", PSN: 100, last: 100}}}
	text := e.ladder(0, term.Terminal{ASCII: true})
	at := 0
	for _, want := range []string{"post", "SEND Only", "ACK", "completion"} {
		i := strings.Index(text[at:], want)
		if i < 0 {
			t.Fatalf("%q is not where it should be:\n%s", want, text)
		}
		at += i
	}
}
