package qp

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/tests/require"
	"github.com/goroce/goroce/wire"
)

// account returns what a QP has in flight, as its window has it.
func (q *QP) account() (packets, bytes int) {
	r := &q.req
	for psn := r.win.una; psn != r.win.nxt; {
		s := r.slot(r.find(psn))
		n := min(s.from(psn), r.win.nxt.Sub(psn)) // of the same cost
		n, need := r.win.need.run(psn, n)
		n, held := r.win.held.run(psn, n)
		n, sacked := r.win.sacked.run(psn, n)
		if !need && !held && !sacked {
			packets, bytes = packets+n, bytes+n*s.cost
		}
		psn = psn.Add(n)
	}
	return packets, bytes
}

// audit compares a Flow with what its QPs have in flight, and checks its queue, its pace and the shortest round trip. A
// Flow that counts more than there is, or whose pace is far ahead, would hold back all QPs of its destination; one with
// too short a round trip would take every loss for congestion.
func (x *devices) audit(f *Flow) {
	x.Helper()
	packets, bytes, waiting := 0, 0, map[*QP]bool{}
	for _, p := range x.pairs {
		if q := p.a.q; q.flow == f {
			n, size := q.account()
			packets, bytes = packets+n, bytes+size
			if q.waiting {
				waiting[q] = true
			}
		}
	}
	if f.packets != packets || f.bytes != bytes {
		x.Fatalf("at %d ns a Flow counts %d packets, %d bytes in flight, want its QPs' %d, %d", x.now, f.packets,
			f.bytes, packets, bytes)
	}
	var last *QP
	for q := f.first; q != nil; last, q = q, q.nextWaiting {
		if !waiting[q] {
			x.Fatalf("at %d ns QP %#x is in a Flow's queue twice, or does not wait there", x.now, q.Num())
		}
		delete(waiting, q)
	}
	if len(waiting) > 0 || f.last != last {
		x.Fatalf("at %d ns a Flow's queue ends with %p, want %p; %d QPs that wait are not in it", x.now, f.last,
			last, len(waiting))
	}
	if least, want := ib.Instant(f.rtt.least), x.forth.oneWay+x.back.oneWay; least > 0 && least < want {
		x.Fatalf("at %d ns the shortest round trip is taken to be %d ns, want %d at least", x.now, least, want)
	}
	if ahead := f.pace.free - x.now; ahead > paceMost {
		x.Fatalf("at %d ns the pace of a Flow is %d ns ahead, want %d at most", x.now, ahead, paceMost)
	}
}

// weather is what happens to packets for some time: the parts of the requests and of their answers that are lost.
type weather struct {
	name        string
	lasts       ib.Instant
	forth, back float64
}

// storms begin with one after which all requests to a host have failed once, in a soak.
var storms = []weather{
	{"calm", 50 * ms, 0, 0},
	{"28 % of the answers corrupted", 500 * ms, 0, 0.28},
	{"10 % of the answers lost", 300 * ms, 0, 0.1},
	{"calm", 100 * ms, 0, 0},
	{"30 % lost", 200 * ms, 0.3, 0.3},
	{"requests cut", 300 * ms, 1, 0},
	{"calm", 100 * ms, 0, 0},
	{"answers cut", 300 * ms, 0, 1},
	{"calm", 100 * ms, 0, 0},
	{"all cut", 450 * ms, 1, 1},
	{"calm", 100 * ms, 0, 0},
}

// TestAccount: in bad weather, and whatever becomes of its QPs, a Flow counts what they have in flight, and neither
// more nor less. Each QP goes on soon after the weather has become good.
func TestAccount(t *testing.T) {
	for seed := range uint64(require.Rounds(3, 60)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			runAccount(t, seed)
		})
	}
}

func runAccount(t *testing.T, seed uint64) {
	// All that the QPs have posted takes 60 ms, and an ACK timeout that has doubled twice 268 ms; then the window has
	// to grow again.
	const qps, soon = 11, 1500 * ms
	rng := rand.New(rand.NewPCG(seed, 1))
	x := newDevices(t, network{oneWay: ms / 40, rate: 0.05, buffer: 5 * ms}, qps, seed)
	x.senders = []*Flow{NewFlow(FlowConfig{})} // of another destination
	loads := make([]load, qps)
	for i := range loads {
		loads[i] = load{op: []ib.WROpcode{ib.WRWrite, ib.WRRead, ib.WRSend}[rng.IntN(3)], n: 1 << 30,
			size: []int{8, 4096, 64 << 10}[rng.IntN(3)], depth: 1 + rng.IntN(4)}
	}
	lost := map[*host]float64{}
	x.passes = func(to *host, _ *wire.Packet) bool {
		x.audit(x.flow)
		x.audit(x.senders[0])
		return rng.Float64() >= lost[to]
	}
	for _, w := range storms {
		for _, p := range x.pairs {
			lost[p.a], lost[p.b] = w.back, w.forth
		}
		if w.forth+w.back == 0 {
			x.settle(loads, w, soon)
			continue
		}
		for range 4 {
			x.spend(loads, w.lasts/4)
			x.replace(x.pairs[rng.IntN(qps)], rng)
		}
	}
	for i, p := range x.pairs {
		if p.failed != ib.WCSuccess {
			t.Errorf("QP %d ends with %v, want %v", i, p.failed, ib.WCSuccess)
		}
	}
}

// settle runs the loads in calm weather, and checks that each QP goes on soon.
func (x *devices) settle(loads []load, w weather, soon ib.Instant) {
	x.Helper()
	calmed := x.now
	before := make([]int, len(x.pairs))
	for i, p := range x.pairs {
		before[i] = len(p.done)
	}
	for still := true; still; {
		if x.spend(loads, ms); x.now > calmed+soon {
			x.Fatalf("%d ns after the weather has become good, one QP has done nothing yet", x.now-calmed)
		}
		still = false
		for i, p := range x.pairs {
			still = still || len(p.done) <= before[i]
		}
	}
	x.spend(loads, w.lasts)
}

// replace ends a QP and its peer as an application may, in the midst of their work, and begins with new PSNs, perhaps
// to another destination. Or the destination alone changes.
func (x *devices) replace(p *pair, rng *rand.Rand) {
	x.Helper()
	p.a.flow = []*Flow{x.flow, x.senders[0]}[rng.IntN(2)]
	switch rng.IntN(3) {
	case 0:
		p.a.q.SetFlow(p.a.flow)
		return
	case 1:
		p.a.must(p.a.modify(ib.StateErr, ib.QPAttr{}, 0))
		x.audit(p.a.q.flow)
	}
	p.a.must(p.a.modify(ib.StateReset, ib.QPAttr{}, 0))
	p.b.must(p.b.modify(ib.StateReset, ib.QPAttr{}, 0))
	x.poll(p)
	p.posted, p.done, p.failed = 0, nil, ib.WCSuccess
	there, back := ib.PSN(rng.IntN(1<<24)), ib.PSN(rng.IntN(1<<24))
	a, b := goodAttr(p.b.q.Num(), there, back), goodAttr(p.a.q.Num(), back, there)
	a.MaxRdAtomic, b.MaxDestRdAtomic = 16, 16
	p.a.up(ib.StateRTS, a)
	p.b.up(ib.StateRTS, b)
}

// spend runs the loads for some time.
func (x *devices) spend(loads []load, lasts ib.Instant) {
	for end := x.now + lasts; x.now < end; x.step() {
		for i, p := range x.pairs {
			if x.poll(p) || p.posted == 0 {
				x.post(p, loads[i])
			}
			if p.a.q.send {
				x.emit(&x.forth, p.a, p.b)
			}
			if p.b.q.send {
				x.emit(&x.back, p.b, p.a)
			}
		}
		x.wake(x.flow)
		x.wake(x.senders[0])
	}
}

// TestPaceOfREADs: a READ that is sent again, whole, when the window has become small does not hold back the other QPs
// of the destination.
func TestPaceOfREADs(t *testing.T) {
	for cut := 270 * ms; cut < 540*ms; cut += 20 * ms {
		x := newDevices(t, network{oneWay: ms / 40, rate: 0.125, buffer: 5 * ms}, 3, 1)
		x.senders = []*Flow{NewFlow(FlowConfig{})}
		long := load{op: ib.WRRead, n: 1 << 30, size: 512 << 10, depth: 4}
		loads := []load{long, {op: ib.WRWrite, n: 1 << 30, size: 8, depth: 1}, long}
		lost := false
		x.passes = func(*host, *wire.Packet) bool { return !lost }
		x.spend(loads, 30*ms)
		lost = true
		x.spend(loads, cut)
		lost = false
		joined, short := x.now, x.pairs[1]
		for n := len(short.done); len(short.done) == n && x.now < joined+1000*ms; {
			x.spend(loads, ms)
		}
		// The ACK timeout of goodAttr is 67 ms.
		if wait := x.now - joined; wait > 150*ms {
			t.Errorf("after %d ms without network a short WRITE takes %d ms more, want 150 at most", cut/ms, wait/ms)
		}
	}
}
