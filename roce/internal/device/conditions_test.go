package device_test

import (
	"bytes"
	"flag"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/tests/require"
)

var (
	conditionSeeds = flag.Int("conditions.seeds", require.Rounds(1, 4),
		"seeds that TestConditions and TestBottleneck run in each row, 4 with GOROCE_FULL=1")
	conditionSeed = flag.Uint64("conditions.seed", 0, "the one seed that they run, to replay a failure")
)

// conditions are networks over which real peers work: the rows of tests/rxe's TestForwarder,
// which simulates them between guests. Here they run in virtual time. A network is the same in
// both directions.
var conditions = []struct {
	name    string
	net     wrap.FaultConfig
	timeout uint8         // of ACKs; 14, 67 ms, if 0
	most    time.Duration // maximum average time for a message of 64 KiB; 0: no limit
}{
	{name: "perfect"},
	{name: "loss=7%", net: wrap.FaultConfig{Drop: 0.07}},
	{name: "loss=15%", net: wrap.FaultConfig{Drop: 0.15}},
	{name: "bursts", net: wrap.FaultConfig{Burst: wrap.Burst{Begin: 0.005, End: 0.3, Loss: 0.7}}},
	{name: "duplicates=10%", net: wrap.FaultConfig{Duplicate: 0.1}},
	{name: "reorder=10%", net: wrap.FaultConfig{Reorder: 0.1}},
	{name: "late=5%,2ms", net: wrap.FaultConfig{Late: 0.05, LateBy: 2 * time.Millisecond}},
	{name: "late=30%,5ms", net: wrap.FaultConfig{Late: 0.3, LateBy: 5 * time.Millisecond}},
	{name: "jitter=200us", net: wrap.FaultConfig{Latency: time.Millisecond, Jitter: 200 * time.Microsecond}},
	// The round trip is three ACK timeouts. rdma_rxe, which has 128 packets in flight at
	// most, moves five to seven messages a second between two of its kind.
	{name: "latency=100ms", net: wrap.FaultConfig{Latency: 100 * time.Millisecond}, most: 200 * time.Millisecond},
	{name: "latency=100ms,loss=1%", net: wrap.FaultConfig{Latency: 100 * time.Millisecond, Drop: 0.01},
		most: 300 * time.Millisecond},
	{name: "corrupt=2%", net: wrap.FaultConfig{Corrupt: 0.02}},
	{name: "checksum=5%", net: wrap.FaultConfig{BadChecksum: 0.05}},
	{name: "truncate=5%", net: wrap.FaultConfig{Truncate: 0.05}},
	{name: "ce=20%", net: wrap.FaultConfig{MarkCE: 0.2}},
	{name: "bottleneck", net: wrap.FaultConfig{Rate: 1e9, Buffer: 2 * time.Millisecond}},
}

// load describes the requester's work.
type load struct {
	name               string
	op                 ib.WROpcode
	size, count, depth int
	pong               bool // the peer answers each message with one of its own
}

var loads = []load{
	{name: "write", op: ib.WRWrite, size: 64 << 10, count: 48, depth: 8},
	{name: "read", op: ib.WRRead, size: 64 << 10, count: 48, depth: 8},
	{name: "send", op: ib.WRSend, size: 64 << 10, count: 48, depth: 8},
	{name: "pingpong", op: ib.WRSend, size: 4 << 10, count: 48, depth: 1, pong: true},
}

// TestConditions moves data over each network in virtual time, with a retry count of 7:
// every request completes, with the right data. At 15 % loss a few requests in a thousand may
// fail correctly, when eight transmissions in a row are lost: other seeds may show that.
func TestConditions(t *testing.T) {
	for _, c := range conditions {
		for _, l := range loads {
			t.Run(c.name+"/"+l.name, func(t *testing.T) {
				eachSeed(t, func(seed uint64) {
					p := newTraffic(t, seed, c.net, l, 1, c.timeout)
					p.run()
					per := time.Duration(p.w.now) / time.Duration(l.count)
					t.Logf("%v a message, %d retries", per, p.w.a.dev.Stats().CompleterRetry)
					if l.size == 64<<10 && c.most > 0 && per > c.most {
						t.Errorf("%v a message, want at most %v", per, c.most)
					}
				})
			})
		}
	}
}

// eachSeed runs the seeds until one fails, and prints how to repeat that one.
func eachSeed(t *testing.T, run func(seed uint64)) {
	seeds := []uint64{*conditionSeed}
	if *conditionSeed == 0 {
		seeds = nil
		for i := range *conditionSeeds {
			seeds = append(seeds, uint64(i)+1)
		}
	}
	seed := uint64(0)
	defer func() { // after a Fatal as well
		if t.Failed() {
			t.Logf("replay it with: go test ./roce -run '%s$' -conditions.seed=%d", t.Name(), seed)
		}
	}()
	for _, seed = range seeds {
		if run(seed); t.Failed() {
			return
		}
	}
}

// traffic is the load on some QPs, all between the same two hosts.
type traffic struct {
	load
	w       *world
	streams []*stream
	byQPN   map[ib.QPN]*stream
	left    int // requests that have not completed
	quiet   time.Duration
}

// stream is the load on one QP of the requester, and its peer.
type stream struct {
	qp, peer     ib.QP
	base         int // of its memory, at either end
	posted, done int
	last         ib.Instant // when something completed last
}

func newTraffic(t *testing.T, seed uint64, net wrap.FaultConfig, l load, qps int, timeout uint8) *traffic {
	t.Helper()
	next := seed * 2
	w := newWorld(t, seed, qps*l.depth*l.size, stack{above: same, below: func(l link.Link) link.Link {
		net.Seed = next
		next++
		return wrap.Network(l, net)
	}})
	w.timeout = timeout
	p := &traffic{load: l, w: w, byQPN: make(map[ib.QPN]*stream), left: qps * l.count}
	rng := rand.New(rand.NewPCG(seed, 0))
	from := w.a.buf
	if l.op == ib.WRRead {
		from = w.b.buf
	}
	for i := range from {
		from[i] = byte(rng.Uint32())
	}
	for i := range qps {
		w.connect(ib.MTU1024, func(a *ib.QPAttr) { a.MaxRdAtomic, a.MaxDestRdAtomic = 16, 16 })
		s := &stream{qp: w.a.qp, peer: w.b.qp, base: i * l.depth * l.size}
		p.streams = append(p.streams, s)
		p.byQPN[s.qp.Num()], p.byQPN[s.peer.Num()] = s, s
		for j := range l.depth {
			p.recv(w.b, s.peer, s.at(l, j))
			if l.pong {
				p.recv(w.a, s.qp, s.at(l, j))
			}
		}
	}
	return p
}

// at returns the offset of message i in the memory of either end.
func (s *stream) at(l load, i int) int { return s.base + i%l.depth*l.size }

func (p *traffic) recv(h *host, q ib.QP, off int) {
	p.w.t.Helper()
	if p.op != ib.WRSend {
		return
	}
	if _, err := q.PostRecv([]ib.RecvWR{{ID: uint64(off), SGL: h.sge(off, p.size)}}); err != nil {
		p.w.t.Fatal(err)
	}
}

func (p *traffic) send(h, to *host, q ib.QP, off int) {
	p.w.t.Helper()
	wr := ib.SendWR{ID: uint64(off), Opcode: p.op, Flags: ib.SendSignaled, SGL: h.sge(off, p.size),
		RemoteAddr: to.mr.Addr() + uint64(off), RKey: to.mr.RKey()}
	if _, err := q.PostSend([]ib.SendWR{wr}); err != nil {
		p.w.t.Fatal(err)
	}
}

// run continues until all requests are done, and compares the memories.
func (p *traffic) run() {
	p.w.t.Helper()
	p.until(func() bool { return p.left == 0 })
	if !p.w.t.Failed() && !bytes.Equal(p.w.a.buf, p.w.b.buf) {
		p.w.t.Error("the memories differ")
	}
}

// until continues until over returns true, or a request has failed.
func (p *traffic) until(over func() bool) {
	w := p.w
	w.t.Helper()
	for !over() {
		for _, s := range p.streams {
			for s.posted < p.count && s.posted-s.done < p.depth {
				p.send(w.a, w.b, s.qp, s.at(p.load, s.posted))
				s.posted++
			}
		}
		w.settle()
		switch n := p.poll(w.a) + p.poll(w.b); {
		case w.t.Failed():
			return
		case n > 0: // there may be more to post
		case !w.advance():
			w.t.Errorf("nothing happens any more at %v, %d are missing", time.Duration(w.now), p.left)
			return
		}
	}
}

// poll handles the completions of one host.
func (p *traffic) poll(h *host) int {
	var wcs [32]ib.WC
	n, err := h.cq.Poll(wcs[:])
	if err != nil {
		p.w.t.Fatal(err)
	}
	for i := range wcs[:n] {
		p.completed(h, &wcs[i])
		if p.w.t.Failed() {
			return n
		}
	}
	return n
}

func (p *traffic) completed(h *host, wc *ib.WC) {
	s := p.byQPN[wc.QPN]
	if err := wc.Err(); err != nil {
		p.w.t.Errorf("%v at %v, after %d of %d messages", err, time.Duration(p.w.now), s.done, p.count)
		return
	}
	off := int(wc.ID)
	us := h == p.w.a
	switch {
	case wc.Opcode == ib.WCRecv && us: // the answer
		p.recv(h, s.qp, off)
		p.finished(s)
	case wc.Opcode == ib.WCRecv:
		p.recv(h, s.peer, off)
		if p.pong {
			p.send(h, p.w.a, s.peer, off)
		}
	case us && !p.pong:
		p.finished(s)
	}
}

func (p *traffic) finished(s *stream) {
	p.quiet = max(p.quiet, time.Duration(p.w.now-s.last))
	s.last = p.w.now
	s.done++
	p.left--
}

// TestBottleneck sends from 16 QPs of one host through 1 Gb/s with a buffer of 2 ms, which
// is less than they may have in flight: no QP waits longer for a completion than its ACK
// timeout. What they have posted at one time, 4 MiB, takes half of that.
func TestBottleneck(t *testing.T) {
	const timeout = 67 * time.Millisecond // 14
	for _, l := range loads[:require.Rounds(1, 3)] {
		t.Run(l.name, func(t *testing.T) {
			eachSeed(t, func(seed uint64) {
				l.count, l.depth = 1<<20, 4
				net := wrap.FaultConfig{Rate: 1e9, Buffer: 2 * time.Millisecond, Latency: 50 * time.Microsecond}
				p := newTraffic(t, seed, net, l, 16, 0)
				const end = ib.Instant(time.Second)
				p.until(func() bool { return p.w.now >= end })
				least := p.streams[0].done
				for _, s := range p.streams {
					p.quiet = max(p.quiet, time.Duration(p.w.now-s.last))
					least = min(least, s.done)
				}
				total := 16<<20 - p.left
				t.Logf("%d messages, %.2f Gb/s; at least %d a QP; the longest wait %v; %d retries", total,
					float64(total*l.size*8)/float64(p.w.now), least, p.quiet, p.w.a.dev.Stats().CompleterRetry)
				if p.quiet > timeout {
					t.Errorf("a QP has waited %v for a completion, want at most %v", p.quiet, timeout)
				}
			})
		})
	}
}

// TestBlackHole: packets of a full path MTU are lost. Smaller ones arrive; a request with a
// full packet fails when its retries are exhausted.
func TestBlackHole(t *testing.T) {
	hole := wrap.FaultConfig{BlackHole: 1000}
	small := load{op: ib.WRSend, size: 512, count: 20, depth: 4}
	newTraffic(t, 1, hole, small, 1, 0).run()

	for _, l := range loads {
		p := newTraffic(t, 1, hole, l, 1, 0)
		p.send(p.w.a, p.w.b, p.streams[0].qp, 0)
		wc := p.w.poll(p.w.a)
		// Eight times the timeout, and what a peer's answers may take on top.
		if wc.Status != ib.WCRetryExcErr || p.w.now > ib.Instant(2*time.Second) {
			t.Errorf("%s: %v at %v, want %v within 2 s", l.name, wc.Status, time.Duration(p.w.now), ib.WCRetryExcErr)
		}
	}
}
