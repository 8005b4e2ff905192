package qp

import (
	"fmt"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/tests/require"
	"github.com/goroce/goroce/wire"
)

// A tcpFlow is a TCP connection with endless data, sender and receiver, as a neighbour of QPs in a network that keeps
// the order of packets. What is lost goes again in the place of new data, so transmissions are counted and sequence
// numbers are not needed: SACKs tell which have arrived (RFC 6675), and one is lost when three later ones have. The
// receiver acknowledges each second segment, and at once behind a gap (RFC 5681, 4.2).
type tcpFlow struct {
	x       *devices
	control tcpControl
	start   ib.Instant

	next     int            // number of the next transmission
	flight   []transmission // the latest ones before it, from the oldest that is neither acknowledged nor lost on
	inFlight int            // of these neither acknowledged nor lost
	recover  int            // the control knows of losses before this one
	paced    ib.Instant     // when the next one may leave
	srtt     ib.Instant
	heard    ib.Instant // the latest ACK

	delivered   int // acknowledged segments
	deliveredAt ib.Instant
	firstAt     ib.Instant // when the latest acknowledged one was sent

	expected int   // by the receiver
	pending  []int // arrived, and not acknowledged yet
	ackAt    ib.Instant
}

// transmission is a segment in flight.
type transmission struct {
	at          ib.Instant
	delivered   int // what was acknowledged then, and when
	deliveredAt ib.Instant
	firstAt     ib.Instant
	acked       bool
}

// tcpControl is the congestion control of a tcpFlow.
type tcpControl interface {
	acked(f *tcpFlow, now ib.Instant, n int, latest *transmission)
	lost(f *tcpFlow, now ib.Instant) // once a round trip
	silent(f *tcpFlow, now ib.Instant)
	window() float64 // segments
	pace() float64   // segments a nanosecond; 0: no limit
}

const (
	tcpPayload = 1448
	tcpSize    = 1500 // of a packet with payload
	tcpAck     = 52
	tcpStart   = 10 // initial window (RFC 6928)
	tcpDelay   = 40 * ms
	tcpRTO     = 200 * ms // the least of Linux
)

// neighbour adds a TCP flow to a network.
func (x *devices) neighbour(c tcpControl, start ib.Instant) *tcpFlow {
	f := &tcpFlow{x: x, control: c, start: start, heard: start, ackAt: driver.Never}
	x.others = append(x.others, f)
	return f
}

func (f *tcpFlow) mayLeave() bool {
	return f.inFlight < max(int(f.control.window()), 1)
}

func (f *tcpFlow) rto() ib.Instant {
	if f.inFlight == 0 {
		return driver.Never
	}
	return f.heard + f.srtt + tcpRTO
}

func (f *tcpFlow) deadline() ib.Instant {
	at := min(f.rto(), f.ackAt)
	if f.mayLeave() {
		at = min(at, max(f.paced, f.start))
	}
	return at
}

func (f *tcpFlow) wake(now ib.Instant) {
	if now >= f.ackAt {
		f.acknowledge(now)
	}
	if now >= f.rto() {
		f.flight, f.inFlight, f.recover, f.heard = nil, 0, f.next, now
		f.control.silent(f, now)
	}
	for now >= f.start && now >= f.paced && f.mayLeave() {
		f.transmit(now)
	}
}

func (f *tcpFlow) transmit(now ib.Instant) {
	if f.inFlight == 0 {
		f.firstAt, f.deliveredAt, f.heard = now, now, now
	}
	n := f.next
	f.next++
	f.inFlight++
	f.flight = append(f.flight, transmission{at: now, delivered: f.delivered, deliveredAt: f.deliveredAt,
		firstAt: f.firstAt})
	if rate := f.control.pace(); rate > 0 {
		f.paced = max(f.paced, now) + ib.Instant(1/rate)
	}
	f.x.carry(&f.x.forth, tcpSize, func(now ib.Instant, _ wire.Packet) { f.arrive(now, n) })
}

// carry sends something of another protocol.
func (x *devices) carry(l *link, size int, to func(ib.Instant, wire.Packet)) {
	var p wire.Packet
	if at, ok := l.carry(x.now, size, &p); ok {
		x.arrivals.add(arrival{at: at, to: to})
	}
}

// arrive is the receiver.
func (f *tcpFlow) arrive(now ib.Instant, n int) {
	gap := n != f.expected
	f.expected, f.pending = n+1, append(f.pending, n)
	if f.ackAt = min(f.ackAt, now+tcpDelay); gap || len(f.pending) > 1 {
		f.acknowledge(now)
	}
}

func (f *tcpFlow) acknowledge(ib.Instant) {
	list := f.pending
	f.pending, f.ackAt = nil, driver.Never
	f.x.carry(&f.x.back, tcpAck, func(now ib.Instant, _ wire.Packet) { f.answered(now, list) })
}

// answered handles an ACK that tells of these transmissions.
func (f *tcpFlow) answered(now ib.Instant, list []int) {
	latest, acked := (*transmission)(nil), 0
	for _, n := range list {
		if i := n - (f.next - len(f.flight)); i >= 0 {
			latest = &f.flight[i]
			latest.acked = true
			acked++
		}
	}
	if acked == 0 {
		return
	}
	rtt := now - latest.at
	if f.srtt == 0 {
		f.srtt = rtt
	}
	f.srtt += (rtt - f.srtt) / 8
	f.delivered += acked
	f.inFlight -= acked
	f.deliveredAt, f.firstAt, f.heard = now, latest.at, now
	last := list[len(list)-1]
	for recent := f.next - len(f.flight); len(f.flight) > 0 && (f.flight[0].acked || recent+3 <= last); recent++ {
		if !f.flight[0].acked {
			f.inFlight--
			f.lost(now, recent)
		}
		f.flight = f.flight[1:]
	}
	f.control.acked(f, now, acked, latest)
}

func (f *tcpFlow) lost(now ib.Instant, n int) {
	if n >= f.recover {
		f.recover = f.next
		f.control.lost(f, now)
	}
}

// recovering reports whether transmissions of the flight of the latest loss are not answered yet.
func (f *tcpFlow) recovering() bool { return f.next-len(f.flight) < f.recover }

// neighbours are the congestion controls that others use.
var neighbours = []struct {
	name string
	new  func() tcpControl
}{
	{"cubic", func() tcpControl { return newTCPCubic() }},
	{"bbr", func() tcpControl { return new(bbr) }},
}

// TestNeighbourAlone: the models do what is known of TCP: one fills a bottleneck with a queue of what the path holds,
// and two share it.
func TestNeighbourAlone(t *testing.T) {
	require.NoRace(t, "millions of packets")
	for _, c := range neighbours {
		for _, flows := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s/%d", c.name, flows), func(t *testing.T) {
				t.Parallel()
				const rate, rtt, end = 0.0125, 20 * ms, 30_000 * ms
				x := newDevices(t, network{oneWay: rtt / 2, rate: rate, buffer: rtt}, 0, 1)
				for i := range flows {
					x.neighbour(c.new(), ib.Instant(i)*100*ms)
				}
				shares := x.measure(load{}, end/3, end)
				t.Logf("%.3f of the link, Jain %.3f", sum(shares)/rate, jain(shares))
				if goal := 0.97 - 0.05*float64(flows); sum(shares) < goal*rate || jain(shares) < 0.9 {
					t.Errorf("got %.3f of the link, Jain %.3f, want %.2f, 0.9", sum(shares)/rate, jain(shares), goal)
				}
			})
		}
	}
}
