package demo

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/goroce/goroce/cmd/goroced/internal/trace"
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/wire"
)

// Packet is a packet that a host sent.
type Packet struct {
	At    ib.Instant `json:"at_ns"` // since the tour began
	From  string     `json:"from"`  // "client" or "server"
	Label string     `json:"packet"`
	PSN   ib.PSN     `json:"psn"`
	Lost  bool       `json:"lost,omitempty"`  // dropped on purpose
	Again bool       `json:"again,omitempty"` // a repetition of what was sent before
	nak   bool
}

// recorder collects the packets of two hosts. Each reports on its own goroutine
// and by its own clock. Both clocks count from some instant at opening, which is
// found by comparing them with ours: no report comes before the step whose time
// it carries, and some come right after.
type recorder struct {
	mu      sync.Mutex
	mtu     int
	began   time.Time
	lag     map[string]ib.Instant // our clock minus the host's, at most
	sent    map[string]int
	arrived map[string]int // at the other host
	packets []Packet
	// captured: packets come from a capture, all of them by their sender and with the
	// time of day.
	captured bool
	covered  map[string]ib.PSN // up to where a host has sent requests
	replied  map[reply]bool    // responses sent
}

// reply identifies a response, for telling repetitions.
type reply struct {
	from string
	psn  ib.PSN
	nak  bool
}

func (r *recorder) init(mtu int) {
	*r = recorder{mtu: mtu, began: time.Now(), lag: map[string]ib.Instant{}, sent: map[string]int{},
		arrived: map[string]int{}, covered: map[string]ib.PSN{"client": clientPSN - 1, "server": serverPSN - 1},
		replied: map[reply]bool{}}
}

// capture takes a packet that a host sent at a time of day.
func (r *recorder) capture(host string, at time.Time, p *wire.Packet) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.add(host, ib.Instant(at.Sub(r.began)), p, false)
}

// now is the recorder's clock.
func (r *recorder) now() ib.Instant { return ib.Instant(time.Since(r.began)) }

// passed takes a packet that host sent or received.
func (r *recorder) passed(host string, ev *wrap.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if lag, known := r.lag[host]; !known || r.now()-ev.Now < lag {
		r.lag[host] = r.now() - ev.Now
	}
	if ev.Err != nil {
		return
	}
	if !ev.Sent {
		r.arrived[host]++
		return
	}
	r.sent[host]++
	r.add(host, ev.Now, &ev.Packet, false)
}

// lost takes a packet that host did not send because the fault injector dropped
// it. A nil recorder ignores it.
func (r *recorder) lost(host string, now ib.Instant, frame []byte) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var p wire.Packet
	if p.Decode(frame[:len(frame)-wire.ICRCLen]) == nil {
		r.add(host, now, &p, true)
	}
}

// add records a packet; At is by the host's clock until take.
func (r *recorder) add(host string, now ib.Instant, p *wire.Packet, lost bool) {
	nak := p.Opcode.Headers()&wire.HasAETH != 0 && !p.AETH.Syndrome.IsAck()
	r.packets = append(r.packets, Packet{At: now, From: host, Label: trace.Label(p), PSN: p.PSN, Lost: lost, nak: nak,
		Again: r.repeated(reply{host, p.PSN, nak}, p)})
}

// repeated reports whether a host sent p, or what p asks for, before.
func (r *recorder) repeated(id reply, p *wire.Packet) bool {
	if p.Opcode.IsResponse() {
		seen := r.replied[id]
		r.replied[id] = true
		return seen
	}
	host, last := id.from, p.PSN
	if p.Opcode.Op() == wire.OpReadRequest { // takes a PSN for each packet of the response
		last = last.Add(max(int(p.RETH.Len)+r.mtu-1, 1)/r.mtu - 1)
	}
	if !last.After(r.covered[host]) {
		return true
	}
	before := !p.PSN.After(r.covered[host])
	r.covered[host] = last
	return before
}

// settle waits until whatever arrived has been recorded by its sender too, which
// reports only after the fact. Of a capture, the answer to the client's last request is
// what comes last.
func (r *recorder) settle(last ib.PSN) error {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		r.mu.Lock()
		done := r.sent["client"] >= r.arrived["server"] && r.sent["server"] >= r.arrived["client"]
		if r.captured {
			done = !last.After(clientPSN-1) || r.replied[reply{"server", last, false}]
		}
		r.mu.Unlock()
		if done {
			return nil
		}
	}
	return fmt.Errorf("packets that were sent have not been recorded within %v", patience)
}

// take returns the packets since the last take in the order in which they left. last is
// the PSN of the client's last request. Packets of one step have the same time; these go
// by PSN, since losses are reported before the packets around them.
func (r *recorder) take(last ib.PSN) ([]Packet, error) {
	if err := r.settle(last); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	packets := r.packets
	r.packets = nil
	for i := range packets {
		packets[i].At += r.lag[packets[i].From]
	}
	slices.SortStableFunc(packets, func(a, b Packet) int {
		if a.At != b.At || a.From != b.From {
			return cmp.Compare(a.At, b.At)
		}
		return a.PSN.Sub(b.PSN)
	})
	return packets, nil
}
