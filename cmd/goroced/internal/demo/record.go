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

// Packet is a packet that a host has sent.
type Packet struct {
	At    ib.Instant `json:"at_ns"` // since the start of the tour
	From  string     `json:"from"`  // "client" or "server"
	Label string     `json:"packet"`
	PSN   ib.PSN     `json:"psn"`
	Lost  bool       `json:"lost,omitempty"`  // dropped by fault injection
	Again bool       `json:"again,omitempty"` // sent before
	nak   bool
}

// recorder collects the packets of two hosts. Each host reports on its own goroutine, with times of its own clock. Both
// clocks start when the devices are opened. The start is found by comparing them with the recorder's clock: a report
// never comes before the time that it has, and some come directly after it.
type recorder struct {
	mu      sync.Mutex
	mtu     int
	began   time.Time
	lag     map[string]ib.Instant // upper bound of the recorder's clock minus the host's
	sent    map[string]int
	arrived map[string]int // at the other host
	packets []Packet
	// captured: packets are those of a capture, with the time of day. All are recorded as sent.
	captured bool
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
	*r = recorder{mtu: mtu, began: time.Now(), lag: map[string]ib.Instant{}, sent: map[string]int{},
		arrived: map[string]int{}, covered: map[string]ib.PSN{"client": clientPSN - 1, "server": serverPSN - 1},
		replied: map[reply]bool{}}
}

// capture records a captured packet.
func (r *recorder) capture(host string, at time.Time, p *wire.Packet) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.add(host, ib.Instant(at.Sub(r.began)), p, false)
}

// now returns the time of the recorder's clock.
func (r *recorder) now() ib.Instant { return ib.Instant(time.Since(r.began)) }

// passed records a packet that host has sent or received.
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

// lost records a packet of host that the fault injector has dropped. A nil recorder ignores it.
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

// add records a packet. At is the time of the host's clock until take is called.
func (r *recorder) add(host string, now ib.Instant, p *wire.Packet, lost bool) {
	nak := p.Opcode.Headers()&wire.HasAETH != 0 && !p.AETH.Syndrome.IsAck()
	r.packets = append(r.packets, Packet{At: now, From: host, Label: trace.Label(p), PSN: p.PSN, Lost: lost, nak: nak,
		Again: r.repeated(reply{host, p.PSN, nak}, p)})
}

// repeated reports whether a host has sent p, or a request for the same PSNs, before.
func (r *recorder) repeated(id reply, p *wire.Packet) bool {
	if p.Opcode.IsResponse() {
		seen := r.replied[id]
		r.replied[id] = true
		return seen
	}
	host, last := id.from, p.PSN
	if p.Opcode.Op() == wire.OpReadRequest { // has a PSN for each packet of the response
		last = last.Add(max(int(p.RETH.Len)+r.mtu-1, 1)/r.mtu - 1)
	}
	if !last.After(r.covered[host]) {
		return true
	}
	before := !p.PSN.After(r.covered[host])
	r.covered[host] = last
	return before
}

// settle waits until all packets that have arrived are also recorded by their sender, which reports them only after
// sending. In a capture, it waits for the answer to the client's last request, which is the last packet.
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

// take returns the packets since the last call, in the order in which they were sent. last is the PSN of the client's
// last request. Packets that were sent in one step have the same time and are sorted by PSN, because drops are reported
// before the other packets.
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
