package demo

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/roce/trace"
	"github.com/goroce/goroce/wire"
)

// Packet is a packet that a host has sent.
type Packet struct {
	At    ib.Instant `json:"at_ns"` // since the start of the tour
	From  string     `json:"from"`  // "client" or "server"
	Label string     `json:"packet"`
	PSN   ib.PSN     `json:"psn"`
	Lost  bool       `json:"lost,omitempty"`  // dropped by fault injection
	Again bool       `json:"again,omitempty"` // sent before

	response, nak bool
	asks          bool       // for an answer
	gap, sack     bool       // it says that its PSN is missing; as a SACK
	last          ib.PSN     // of those that a request takes; READ takes one for each packet of its response
	trigger       ib.PSN     // of a SACK: what has made it
	turn          ib.Instant // of the host's engine, by its own clock
}

// recorder collects the packets of two hosts. Each host reports on its own goroutine, after it has sent, and drops
// before the other packets of their turn. So reports may come in another order than the packets were sent in; their
// times (wrap.Event.At) tell.
type recorder struct {
	mu      sync.Mutex
	mtu     int
	began   time.Time
	sent    map[string]int
	arrived map[string]int // at the other host
	packets []Packet
	// captured: packets are those of a capture, with the time of day. All are recorded as sent.
	captured bool
	answered ib.PSN            // latest PSN of the server's responses
	covered  map[string]ib.PSN // PSN up to which a host has sent requests
	replied  map[reply]bool    // responses that were sent
}

// reply identifies a response, to detect retransmissions.
type reply struct {
	from string
	psn  ib.PSN
	nak  bool
}

func (r *recorder) init(mtu int) {
	*r = recorder{mtu: mtu, began: time.Now(), sent: map[string]int{}, arrived: map[string]int{},
		answered: clientPSN - 1, covered: map[string]ib.PSN{"client": clientPSN - 1, "server": serverPSN - 1},
		replied: map[reply]bool{}}
}

// now returns the time since the start of the tour.
func (r *recorder) now() ib.Instant { return ib.Instant(time.Since(r.began)) }

// capture records a captured packet.
func (r *recorder) capture(host string, at time.Time, p *wire.Packet) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.add(host, at, p)
}

// passed records a packet that host has sent or received.
func (r *recorder) passed(host string, ev *wrap.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ev.Err != nil {
		return
	}
	if !ev.Sent {
		r.arrived[host]++
		return
	}
	r.sent[host]++
	p := r.add(host, ev.At, &ev.Packet)
	p.turn = ev.Now
	for i := range r.packets { // drops have the time of the turn that they are of
		if drop := &r.packets[i]; drop.Lost && drop.From == host && drop.turn == p.turn {
			drop.At = p.At
		}
	}
}

// lost records a packet of host that the fault injector has dropped in a turn of the host's engine. A nil recorder
// ignores it.
func (r *recorder) lost(host string, turn ib.Instant, frame []byte) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var decoded wire.Packet
	if decoded.Decode(frame[:len(frame)-wire.ICRCLen]) == nil {
		p := r.add(host, time.Now(), &decoded)
		p.turn, p.Lost = turn, true
	}
}

// add records a packet that host has sent.
func (r *recorder) add(host string, at time.Time, p *wire.Packet) *Packet {
	e := Packet{At: ib.Instant(at.Sub(r.began)), From: host, Label: trace.Label(p), PSN: p.PSN, last: p.PSN,
		response: p.Opcode.IsResponse(), nak: p.Opcode.Headers()&wire.HasAETH != 0 && !p.AETH.Syndrome.IsAck()}
	e.asks = p.AckReq || p.Opcode.IsAtomic()
	e.gap = e.nak && p.AETH.Syndrome == wire.NAKSequence
	var sack wire.SACK
	if p.Opcode == wire.SACKOpcode && sack.Decode(p.Payload) == nil {
		e.gap, e.sack, e.trigger = true, true, sack.Trigger
	}
	if p.Opcode.Op() == wire.OpReadRequest {
		e.asks = true
		e.last = e.last.Add(max(int(p.RETH.Len)+r.mtu-1, 1)/r.mtu - 1)
	}
	if host == "server" && e.response && !e.nak && !e.sack && e.PSN.After(r.answered) {
		r.answered = e.PSN
	}
	r.packets = append(r.packets, e)
	return &r.packets[len(r.packets)-1]
}

// repeated reports whether p's host has sent it, or a request for the same PSNs, before. Packets are passed to it in
// the order in which they were sent.
func (r *recorder) repeated(p *Packet) bool {
	if p.response {
		id := reply{p.From, p.PSN, p.nak}
		seen := r.replied[id]
		r.replied[id] = true
		return seen
	}
	before := !p.PSN.After(r.covered[p.From])
	if p.last.After(r.covered[p.From]) {
		r.covered[p.From] = p.last
	}
	return before
}

// settle waits until all packets that have arrived are also recorded by their sender. In a capture, it waits for the
// answer to the client's last request, which is the last packet.
func (r *recorder) settle(last ib.PSN) error {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		r.mu.Lock()
		done := r.sent["client"] >= r.arrived["server"] && r.sent["server"] >= r.arrived["client"]
		if r.captured {
			done = !last.After(r.answered)
		}
		r.mu.Unlock()
		if done {
			return nil
		}
	}
	return fmt.Errorf("packets that were sent have not been recorded within %v", patience)
}

// take returns the packets since the last call, in the order in which they were sent. last is the PSN of the client's
// last request. Packets of one turn have the same time and are sorted by PSN.
func (r *recorder) take(last ib.PSN) ([]Packet, error) {
	if err := r.settle(last); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	packets := r.packets
	r.packets = nil
	slices.SortStableFunc(packets, func(a, b Packet) int {
		if a.At != b.At || a.From != b.From {
			return cmp.Compare(a.At, b.At)
		}
		return a.PSN.Sub(b.PSN)
	})
	for i := range packets {
		packets[i].Again = r.repeated(&packets[i])
	}
	return packets, nil
}
