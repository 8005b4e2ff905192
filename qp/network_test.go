package qp

import (
	"bytes"
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/tests/require"
	"github.com/goroce/goroce/wire"
)

const ms ib.Instant = 1_000_000

// network describes delays and losses between two devices, the same in both directions.
type network struct {
	oneWay ib.Instant // of every packet
	jitter ib.Instant // of every packet at most, in order. Without any, who finds a full queue is always the same.
	drop   float64    // probability that a packet is lost
	late   float64    // probability that it arrives later, by delay
	delay  ib.Instant
	twice  float64    // probability that it arrives twice
	rate   float64    // of a bottleneck, in bytes per nanosecond; 0 for none
	buffer ib.Instant // a packet that would wait longer for the bottleneck is lost
	mark   ib.Instant // one that waits longer than this for it is marked; 0: none is
	socket bool       // the buffer is that of a socket: it marks when it is half full, and behind a packet that is lost
}

// link is one direction of a network, in virtual time.
type link struct {
	network
	rng  *rand.Rand
	free ib.Instant // when the bottleneck is free
	last ib.Instant // when the latest packet arrives, if there is jitter

	longest ib.Instant // wait for it
	full    int        // packets that were lost there

	overflowed bool // and none has arrived since
}

// carry returns when a packet of size bytes that is sent now arrives; false if it is lost.
func (l *link) carry(now ib.Instant, size int, p *wire.Packet) (ib.Instant, bool) {
	at := now
	if l.rate > 0 {
		l.free = max(l.free, now)
		if l.free-now > l.buffer {
			l.full++
			l.overflowed = l.socket
			return 0, false
		}
		if l.overflowed {
			l.overflowed, p.ECN = false, wire.CE
		}
		l.longest = max(l.longest, l.free-now)
		if l.mark > 0 && l.free-now > l.mark || l.socket && l.free-now > l.buffer/2 {
			p.ECN = wire.CE
		}
		l.free += ib.Instant(float64(size) / l.rate)
		at = l.free
	}
	if l.rng.Float64() < l.drop {
		return 0, false
	}
	at += l.oneWay
	if l.jitter > 0 {
		at = max(l.last, at+ib.Instant(l.rng.Int64N(int64(l.jitter))))
		l.last = at
	}
	if l.rng.Float64() < l.late {
		at += l.delay
	}
	return at, true
}

// arrivals are packets in the network, a heap by the time of their arrival.
type arrivals struct {
	list  []*arrival
	count int
	spare []*arrival // whose memory can be used again
}

type arrival struct {
	at     ib.Instant
	number int // those of one instant arrive in the order in which they were added
	to     func(now ib.Instant, p wire.Packet)
	p      wire.Packet
}

func (q *arrivals) Len() int      { return len(q.list) }
func (q *arrivals) Swap(i, j int) { q.list[i], q.list[j] = q.list[j], q.list[i] }
func (q *arrivals) Push(a any)    { q.list = append(q.list, a.(*arrival)) }

func (q *arrivals) Less(i, j int) bool {
	a, b := q.list[i], q.list[j]
	return a.at < b.at || a.at == b.at && a.number < b.number
}

func (q *arrivals) Pop() any {
	end := len(q.list) - 1
	a := q.list[end]
	q.list = q.list[:end]
	return a
}

func (q *arrivals) add(a arrival) {
	own := new(arrival)
	if end := len(q.spare) - 1; end >= 0 {
		own, q.spare = q.spare[end], q.spare[:end]
	}
	a.number = q.count
	q.count++
	*own = a
	heap.Push(q, own)
}

// deliver passes the packets that have arrived to their QPs.
func (q *arrivals) deliver(now ib.Instant) {
	for q.next() <= now {
		a := heap.Pop(q).(*arrival)
		a.to(now, a.p)
		q.spare = append(q.spare, a)
	}
}

// next is when the next packet arrives.
func (q *arrivals) next() ib.Instant {
	if len(q.list) == 0 {
		return driver.Never
	}
	return q.list[0].at
}

// devices holds QPs of one device, each with its peer on another, over a network and with one
// Flow, in virtual time.
type devices struct {
	*testing.T
	now      ib.Instant
	forth    link
	back     link
	pairs    []*pair
	flow     *Flow   // of all QPs that send, but for senders that have their own
	senders  []*Flow // these
	arrivals arrivals
	wcs      [hostEntries]ib.WC
	spare    [][]byte                            // see payload
	others   []station                           // that send into the same network
	end      ib.Instant                          // when run returns; 0: when all is done
	passes   func(to *host, p *wire.Packet) bool // if not nil: whether a packet that arrives is taken
}

// station is something else in the network.
type station interface {
	deadline() ib.Instant
	wake(now ib.Instant) // does what is due
}

type pair struct {
	a, b   *host
	far    bool       // a is where b is of other pairs, sends READs instead of what others do, and b is where a is
	start  ib.Instant // when a begins
	posted int
	done   []ib.Instant // when each request was complete
	failed ib.WCStatus

	una     ib.PSN     // of the requester
	movedAt ib.Instant // when una moved
	stuck   ib.Instant // the longest time without that
}

// moves notes whether the requester makes progress.
func (p *pair) moves(now ib.Instant) {
	if r := &p.a.q.req.win; r.una != p.una || r.inFlight() == 0 {
		p.una, p.movedAt = r.una, now
	}
	p.stuck = max(p.stuck, now-p.movedAt)
}

// longest returns the longest time without a completion.
func (p *pair) longest() (wait ib.Instant) {
	before := ib.Instant(0)
	for _, at := range p.done {
		wait, before = max(wait, at-before), at
	}
	return wait
}

func newDevices(t *testing.T, net network, pairs int, seed uint64) *devices {
	rng := rand.New(rand.NewPCG(seed, 0))
	x := &devices{T: t, forth: link{network: net, rng: rng}, back: link{network: net, rng: rng},
		flow: NewFlow(FlowConfig{})}
	for i := range ib.QPN(pairs) {
		p := &pair{a: newHost(t, 0x100+2*i), b: newHost(t, 0x101+2*i)}
		p.a.flow = x.flow
		a, b := goodAttr(p.b.q.Num(), ourPSN, peerPSN), goodAttr(p.a.q.Num(), peerPSN, ourPSN)
		a.MaxRdAtomic, b.MaxDestRdAtomic = 16, 16
		p.a.q.cfg.Probe, p.b.q.cfg.Probe = true, true
		p.a.up(ib.StateRTS, a)
		p.b.up(ib.StateRTS, b)
		x.pairs = append(x.pairs, p)
	}
	return x
}

// load is the load of each QP: n requests, depth of them at a time.
type load struct {
	op             ib.WROpcode
	size, depth, n int
}

// run runs until x.end, or without it until every QP has done its load, or has failed.
func (x *devices) run(l load) {
	for {
		busy := false
		for _, p := range x.pairs {
			if (x.poll(p) || p.posted == 0) && x.now >= p.start {
				x.post(p, l)
			}
			x.send(p)
			p.moves(x.now)
			busy = busy || p.failed == ib.WCSuccess && len(p.done) < l.n
		}
		x.wake(x.flow)
		for _, f := range x.senders {
			x.wake(f)
		}
		if x.end == 0 && !busy || x.end > 0 && x.now >= x.end {
			return
		}
		x.step()
	}
}

// links returns the links from a to b of a pair, and back.
func (x *devices) links(p *pair) (forth, back *link) {
	if p.far {
		return &x.back, &x.forth
	}
	return &x.forth, &x.back
}

// send lets both QPs of a pair send what they have.
func (x *devices) send(p *pair) {
	forth, back := x.links(p)
	if p.a.q.send {
		x.emit(forth, p.a, p.b)
	}
	if p.b.q.send {
		x.emit(back, p.b, p.a)
	}
}

// wake lets the QPs send that have waited at a Flow for room.
func (x *devices) wake(f *Flow) {
	for q := f.Next(); q != nil; q = f.Next() {
		i := slices.IndexFunc(x.pairs, func(p *pair) bool { return p.a.q == q })
		forth, _ := x.links(x.pairs[i])
		x.emit(forth, x.pairs[i].a, x.pairs[i].b)
	}
}

// step advances the time to the next arrival or deadline, and handles it.
func (x *devices) step() {
	next := x.arrivals.next()
	for _, p := range x.pairs {
		next = min(next, p.a.q.Deadline(), p.b.q.Deadline())
		if p.posted == 0 {
			next = min(next, max(p.start, x.now))
		}
	}
	for _, s := range x.others {
		next = min(next, s.deadline())
	}
	if next == driver.Never {
		x.Fatalf("nothing can happen any more at %d ns", x.now)
	}
	x.now = max(x.now, next)
	x.arrivals.deliver(x.now)
	for _, p := range x.pairs {
		for _, h := range []*host{p.a, p.b} {
			if h.q.Deadline() <= x.now {
				h.q.HandleTimeout(x.now)
			}
		}
	}
	for _, s := range x.others {
		s.wake(x.now)
	}
}

// post posts further requests of a QP, up to the depth, and its peer's receives.
func (x *devices) post(p *pair, l load) {
	op := l.op
	if p.far {
		op = ib.WRRead
	}
	for op == ib.WRSend && p.b.rq.Push(&ib.RecvWR{SGL: []ib.SGE{p.b.sge(0, l.size)}}) == nil {
	}
	p.b.rq.Publish()
	p.b.q.Doorbell(x.now)
	for ; p.posted < l.n && p.posted-len(p.done) < l.depth; p.posted++ {
		p.a.must(p.a.sq.Push(&ib.SendWR{Opcode: op, Flags: ib.SendSignaled, SGL: []ib.SGE{p.a.sge(0, l.size)},
			RemoteAddr: memAddr, RKey: p.b.region.Key()}))
	}
	p.a.sq.Publish()
	p.a.q.Doorbell(x.now)
}

// poll takes completions and reports whether there were any.
func (x *devices) poll(p *pair) bool {
	wcs := x.wcs[:]
	n := p.a.sendCQ.Poll(wcs)
	for _, wc := range wcs[:n] {
		if p.failed == ib.WCSuccess {
			p.failed = wc.Status
		}
		p.done = append(p.done, x.now)
	}
	return p.b.recvCQ.Poll(wcs)+n > 0
}

func (x *devices) emit(l *link, from, to *host) {
	for _, tx := range from.emit(x.now, 16) {
		p := tx.Packet
		p.Payload = x.payload(tx.Len)
		if tx.Inline != nil {
			copy(p.Payload, tx.Inline)
		} else if err := mr.Gather(p.Payload, tx.SGL, tx.Off); err != nil {
			x.Fatal(err)
		}
		if at, ok := l.carry(x.now, tx.Len+packetOverhead, &p); ok {
			if l.twice > 0 && l.rng.Float64() < l.twice {
				again := p
				again.Payload = bytes.Clone(p.Payload)
				x.arrivals.add(arrival{at: at, p: again, to: to.handle})
			}
			x.arrivals.add(arrival{at: at, p: p, to: func(now ib.Instant, p wire.Packet) {
				if x.passes == nil || x.passes(to, &p) {
					to.handle(now, p)
				}
				x.spare = append(x.spare, p.Payload)
			}})
		}
	}
}

// payload returns n bytes. Those of packets that were delivered are used again.
func (x *devices) payload(n int) []byte {
	if end := len(x.spare) - 1; end >= 0 && cap(x.spare[end]) >= n {
		b := x.spare[end]
		x.spare = x.spare[:end]
		return b[:n]
	}
	return make([]byte, n, max(n, 1024))
}

// TestBadNetworks runs loads over networks with delays and losses as in tests of real
// devices, over which rdma_rxe works. No QP may wait longer for its next completion than
// the row's longest, and all must be done at its end.
func TestBadNetworks(t *testing.T) {
	seeds := require.Rounds(1, 3)
	near := network{oneWay: ms / 40}
	with := func(change func(*network)) network {
		n := near
		change(&n)
		return n
	}
	// The ACK timeout of goodAttr is 67 ms.
	const ackTimeout = 67 * ms
	write, read, send := ib.WRWrite, ib.WRRead, ib.WRSend
	all := []ib.WROpcode{write, read, send}
	for _, c := range []struct {
		name    string
		net     network
		qps     int
		ops     []ib.WROpcode
		size    int
		n       int
		longest ib.Instant // wait of a QP for a completion
		end     ib.Instant
	}{
		// An answer takes three times as long as the ACK timeout. A message takes three round trips at first.
		{"100ms", network{oneWay: 100 * ms}, 1, all, 64 << 10, 40, 650 * ms, 2000 * ms},
		{"100ms", network{oneWay: 100 * ms}, 1, all, 64, 200, 250 * ms, 4000 * ms},
		{"late=30%", with(func(n *network) { n.late, n.delay = 0.3, 5*ms }), 1, all, 4096, 100, 60 * ms, 1000 * ms},
		{"late=5%", with(func(n *network) { n.late, n.delay = 0.05, 2*ms }), 1, all, 64 << 10, 40, 20 * ms, 150 * ms},
		{"loss=5%", with(func(n *network) { n.drop = 0.05 }), 1, all, 64 << 10, 40, 30 * ms, 150 * ms},
		{"loss=7%", with(func(n *network) { n.drop = 0.07 }), 1, all, 64 << 10, 40, 40 * ms, 300 * ms},
		{"loss=15%", with(func(n *network) { n.drop = 0.15 }), 1, all, 64 << 10, 40, 400 * ms, 1000 * ms},
		// 1 Gb/s for 16 QPs, and a buffer of 2 ms: no QP may starve.
		{"bottleneck", network{oneWay: ms / 40, rate: 0.125, buffer: 2 * ms}, 16, all, 64 << 10, 10, ackTimeout,
			150 * ms},
	} {
		for _, op := range c.ops {
			t.Run(fmt.Sprintf("%s/%v/%d", c.name, op, c.size), func(t *testing.T) {
				t.Parallel()
				for seed := range uint64(seeds) {
					x := newDevices(t, c.net, c.qps, seed)
					x.run(load{op: op, size: c.size, depth: 16, n: c.n})
					x.judge(seed, c.longest, c.end)
				}
			})
		}
	}
}

func (x *devices) judge(seed uint64, longest, end ib.Instant) {
	wait, timeouts := ib.Instant(0), uint64(0)
	for i, p := range x.pairs {
		if p.failed != ib.WCSuccess {
			x.Errorf("seed %d: QP %d failed after %d requests: %v", seed, i, len(p.done), p.failed)
		}
		wait = max(wait, p.longest())
		timeouts += p.a.stats.LocalAckTimeout
	}
	x.Logf("seed %d: %.1f ms, a QP waited %.1f ms at most, %d ACK timeouts",
		seed, float64(x.now)/1e6, float64(wait)/1e6, timeouts)
	if wait > longest {
		x.Errorf("seed %d: a QP waited %d ns for a completion, want %d at most", seed, wait, longest)
	}
	if x.now > end {
		x.Errorf("seed %d: it took %d ns, want %d at most", seed, x.now, end)
	}
}
