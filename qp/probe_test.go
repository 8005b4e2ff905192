package qp

import (
	"bytes"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/tests/require"
	"github.com/goroce/goroce/wire"
)

// oneWay is the one-way delay of a path, in nanoseconds.
const oneWay ib.Instant = 25_000

// path carries packets between two hosts in virtual time, in order. lose decides
// which packets are lost.
type path struct {
	t     *testing.T
	now   ib.Instant
	a, b  *host
	lose  func(from *host, p *wire.Packet) bool
	queue []inTransit
	wcs   []ib.WC      // of a
	at    []ib.Instant // times of the completions
	sent  int          // packets that a has sent
}

type inTransit struct {
	at ib.Instant
	to *host
	p  wire.Packet
}

// newPath connects two hosts with probes, and measures a round trip.
func newPath(t *testing.T, change func(*ib.QPAttr)) *path {
	t.Helper()
	x := &path{t: t, a: newHost(t, ourNum), b: newHost(t, peerNum)}
	x.lose = func(*host, *wire.Packet) bool { return false }
	a, b := goodAttr(peerNum, ourPSN, peerPSN), goodAttr(ourNum, peerPSN, ourPSN)
	if change != nil {
		change(&a)
	}
	for _, h := range []*host{x.a, x.b} {
		h.q.cfg.Probe = true
		for i := range h.mem {
			h.mem[i] = byte(i*7) ^ byte(h.q.Num())
		}
	}
	x.a.up(ib.StateRTS, a)
	x.b.up(ib.StateRTS, b)
	x.post(ib.WRWrite, 8)
	x.run(1)
	if got := x.a.flow.rtt.mean; got != int64(2*oneWay) {
		t.Fatalf("the round trip is estimated at %d ns, want %d", got, 2*oneWay)
	}
	x.wcs, x.at, x.sent = nil, nil, 0
	return x
}

// post posts a request of a, from and to the same offset.
func (x *path) post(op ib.WROpcode, size int) {
	x.t.Helper()
	x.a.q.now = x.now
	x.a.post(&ib.SendWR{ID: 1, Opcode: op, Flags: ib.SendSignaled, SGL: []ib.SGE{x.a.sge(0, size)},
		RemoteAddr: memAddr, RKey: x.b.region.Key()})
}

// run runs until a has n completions, or there is no arrival or deadline left.
func (x *path) run(n int) {
	x.t.Helper()
	for range 100_000 {
		x.emit(x.a, x.b)
		x.emit(x.b, x.a)
		var buf [8]ib.WC
		for _, wc := range buf[:x.a.sendCQ.Poll(buf[:])] {
			x.wcs, x.at = append(x.wcs, wc), append(x.at, x.now)
		}
		if len(x.wcs) >= n || !x.step() {
			return
		}
	}
	x.t.Fatalf("no end at %d ns", x.now)
}

func (x *path) emit(from, to *host) {
	for _, tx := range from.emit(x.now, 8) {
		p := tx.Packet
		p.Payload = make([]byte, tx.Len)
		if tx.Inline != nil {
			copy(p.Payload, tx.Inline)
		} else if err := mr.Gather(p.Payload, tx.SGL, tx.Off); err != nil {
			x.t.Fatal(err)
		}
		if from == x.a {
			x.sent++
		}
		if !x.lose(from, &p) {
			x.queue = append(x.queue, inTransit{x.now + oneWay, to, p})
		}
	}
}

// step moves to the next arrival or deadline; false if there is none.
func (x *path) step() bool {
	next := min(x.a.q.Deadline(), x.b.q.Deadline())
	if len(x.queue) > 0 {
		next = min(next, x.queue[0].at)
	}
	if next == driver.Never {
		return false
	}
	x.now = max(x.now, next)
	for len(x.queue) > 0 && x.queue[0].at <= x.now {
		p := x.queue[0]
		x.queue = x.queue[1:]
		p.to.handle(x.now, p.p)
	}
	for _, h := range []*host{x.a, x.b} {
		if h.q.Deadline() <= x.now {
			h.q.HandleTimeout(x.now)
		}
	}
	return true
}

// nth loses some of the packets that match, by number: 1 is the first, and so on.
func nth(match func(*wire.Packet) bool, numbers ...int) func(*host, *wire.Packet) bool {
	seen := 0
	return func(_ *host, p *wire.Packet) bool {
		if !match(p) {
			return false
		}
		seen++
		for _, n := range numbers {
			if n == seen {
				return true
			}
		}
		return false
	}
}

// upTo returns the numbers from 1 to n.
func upTo(n int) (numbers []int) {
	for i := range n {
		numbers = append(numbers, i+1)
	}
	return numbers
}

func isAck(p *wire.Packet) bool          { return p.Opcode == wire.RCAck }
func isAtomicAck(p *wire.Packet) bool    { return p.Opcode.Op() == wire.OpAtomicAck }
func isReadRequest(p *wire.Packet) bool  { return p.Opcode.IsRead() }
func isReadResponse(p *wire.Packet) bool { return p.Opcode.IsReadResp() }
func isWrite(p *wire.Packet) bool        { return p.Opcode.IsWrite() }

// lastResponse is the last packet of a READ response.
func lastResponse(p *wire.Packet) bool { return p.Opcode.IsReadResp() && p.Opcode.Ends() }

// TestProbe checks that probes find each loss that neither side can see, after a certain
// number of waits and before the ACK timeout.
func TestProbe(t *testing.T) {
	const size = 8 * 1024
	for _, c := range []struct {
		name  string
		op    ib.WROpcode
		lose  func(*host, *wire.Packet) bool
		waits ib.Instant // 1 for one probe, 1 + 2 for two
	}{
		{"nothing", ib.WRWrite, nth(isWrite), 0},
		{"the last packet", ib.WRWrite, nth(isWrite, 8), 1},
		{"the last three", ib.WRWrite, nth(isWrite, 6, 7, 8), 1},
		{"the whole flight", ib.WRWrite, nth(isWrite, upTo(8)...), 1},
		// The answer to the first probe acknowledges the packets before the gap, the second ends it.
		{"a packet, and the NAK", ib.WRWrite, either(nth(isWrite, 3), nth(isAck, 1)), 3},
		{"a packet, and what is sent again", ib.WRWrite, nth(isWrite, 3, 9), 1},
		{"the ACK", ib.WRWrite, nth(isAck, 1), 1},
		{"the last packet, and the probe", ib.WRWrite, nth(isWrite, 8, 9, 10), 3},
		{"the request of a READ", ib.WRRead, nth(isReadRequest, 1), 1},
		{"the last response", ib.WRRead, nth(lastResponse, 1), 1},
		{"all responses", ib.WRRead, nth(isReadResponse, upTo(8)...), 1},
		{"the answer of an atomic", ib.WRFetchAdd, nth(isAtomicAck, 1), 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := newPath(t, nil)
			x.lose = c.lose
			n := size
			if c.op == ib.WRFetchAdd {
				n = 8
			}
			want, word := bytes.Clone(x.a.mem[:n]), bytes.Clone(x.b.mem[:n])
			began := x.now
			x.post(c.op, n)
			x.run(1)
			if len(x.wcs) != 1 || x.wcs[0].Status != ib.WCSuccess {
				t.Fatalf("got completions %v, want one success", x.wcs)
			}
			if took := x.now - began; took > c.waits*probeLeast*5/4+6*oneWay {
				t.Errorf("it took %d ns, want %d waits of about %d and a few round trips", took, c.waits, probeLeast)
			}
			if x.a.stats.LocalAckTimeout != 0 {
				t.Error("the ACK timeout has found it")
			}
			switch {
			case c.op == ib.WRWrite && !bytes.Equal(x.b.mem[:n], want):
				t.Error("the data did not arrive")
			case c.op != ib.WRWrite && !bytes.Equal(x.a.mem[:n], word):
				t.Error("the answer did not arrive")
			}
			if packets, held := x.a.flow.InFlight(); packets != 0 || held != 0 {
				t.Errorf("got %d packets, %d bytes in flight at the end, want none", packets, held)
			}
			x.run(2) // runs until no arrival or deadline is left
			if d := x.a.q.Deadline(); d != driver.Never {
				t.Errorf("with nothing in flight: got a deadline at %d ns, want none", d)
			}
		})
	}
}

// either loses the packets that f or g loses.
func either(f, g func(*host, *wire.Packet) bool) func(*host, *wire.Packet) bool {
	return func(from *host, p *wire.Packet) bool {
		first, second := f(from, p), g(from, p)
		return first || second
	}
}

// TestProbeDeadPeer checks that probes do not change when requests to a dead peer fail, and
// that they end.
func TestProbeDeadPeer(t *testing.T) {
	for _, op := range []ib.WROpcode{ib.WRWrite, ib.WRRead} {
		for _, c := range []struct{ timeout, retries uint8 }{{14, 7}, {14, 0}, {8, 7}, {6, 3}, {17, 1}, {0, 7}} {
			var ends [2]ib.Instant
			for i, probe := range []bool{false, true} {
				x := newPath(t, func(a *ib.QPAttr) { a.Timeout, a.RetryCnt = c.timeout, c.retries })
				x.a.q.cfg.Probe = probe
				x.lose = func(*host, *wire.Packet) bool { return true }
				x.post(op, 5000)
				flight := len(x.a.emit(x.now, 8))
				x.run(1)
				ends[i] = x.now
				switch {
				case c.timeout == 0 && len(x.wcs) != 0:
					t.Errorf("%v, no timeout: got completions %v, want none", op, x.wcs)
				case c.timeout != 0 && (len(x.wcs) != 1 || x.wcs[0].Status != ib.WCRetryExcErr):
					t.Errorf("%v, timeout %d: got completions %v, want one RETRY_EXC_ERR", op, c.timeout, x.wcs)
				}
				probes := probesMost + int(c.retries)*(probesMost-probesSilent)
				if most := int(c.retries)*flight + 2*probes; x.sent > most {
					t.Errorf("%v, timeout %d: %d packets to a peer that is gone, want at most %d",
						op, c.timeout, x.sent, most)
				}
			}
			if c.timeout != 0 && ends[0] != ends[1] {
				t.Errorf("%v, timeout %d, retries %d: given up at %d ns, want %d ns as without probes", op, c.timeout,
					c.retries, ends[1], ends[0])
			}
		}
	}
}

// TestProbeNotAsked checks that no probe is sent if no answer was requested, or during the
// delay of an RNR NAK.
func TestProbeNotAsked(t *testing.T) {
	t.Run("between the packets of a rate limit", func(t *testing.T) {
		x := newPath(t, func(a *ib.QPAttr) { a.RateLimit = 8000 }) // a packet takes 1.088 ms
		x.a.q.pace.setRate(8000)
		x.post(ib.WRWrite, 20*1024)
		x.run(1)
		if x.sent != 20 {
			t.Errorf("%d packets sent, want 20", x.sent)
		}
	})
	t.Run("after an RNR NAK", func(t *testing.T) {
		x := newPath(t, nil)
		x.post(ib.WRSend, 8)
		for more := true; more && x.a.stats.RcvdRNRErr == 0; more = x.step() {
			x.emit(x.a, x.b)
			x.emit(x.b, x.a)
		}
		if got := x.a.q.Deadline() - x.now; got != ib.Instant(wire.RNRDelay(12)) {
			t.Errorf("the next deadline is in %d ns, want that of the RNR NAK, %d", got, wire.RNRDelay(12))
		}
	})
}

// TestProbePassesFullFlow checks that a probe does not wait for room in the Flow, which only
// its answer can make.
func TestProbePassesFullFlow(t *testing.T) {
	x := newPath(t, nil)
	x.post(ib.WRWrite, 200*1024)
	x.lose = func(*host, *wire.Packet) bool { return true }
	x.emit(x.a, x.b)
	if !x.a.flow.full() {
		t.Fatal("there is room left")
	}
	x.a.flow.cwnd /= 2 // another QP had a loss
	before, held := x.a.flow.InFlight()
	x.now = x.a.q.Deadline()
	x.a.q.HandleTimeout(x.now)
	out := x.a.emit(x.now, 8)
	win := &x.a.q.req.win
	if len(out) != 2 || !out[0].AckReq || !out[1].AckReq || out[0].PSN != win.una || out[1].PSN != win.nxt.Add(-1) {
		t.Errorf("%d packets, want the oldest and the latest, with AckReq: %v", len(out), out)
	}
	if packets, now := x.a.flow.InFlight(); packets != before || now != held {
		t.Errorf("got %d packets, %d bytes in flight, want %d and %d, as before the probe", packets, now, before, held)
	}
}

// TestProbePartlySentAgain checks that packets which wait for room to be sent again are not in
// flight, and that probes do not send them.
func TestProbePartlySentAgain(t *testing.T) {
	x := newPath(t, nil)
	x.post(ib.WRWrite, 100*1024)
	if n := len(x.a.emit(x.now, 8)); n != 100 {
		t.Fatalf("%d packets sent, want all", n)
	}
	una := x.a.q.req.win.una
	nak := ack(una, 1)
	nak.AETH.Syndrome = wire.NAKSequence
	x.a.handle(x.now, nak)
	again := len(x.a.emit(x.now, 8))
	if again >= 100 {
		t.Fatalf("%d packets sent again, want less: the account has shrunk", again)
	}
	x.now = x.a.q.Deadline()
	x.a.q.HandleTimeout(x.now)
	out := x.a.emit(x.now, 8)
	if len(out) != 2 || out[0].PSN != una || out[1].PSN != una.Add(again-1) {
		t.Errorf("the probe is %v, want PSN %d and %d", out, una, una.Add(again-1))
	}
}

// TestProbeReads checks that a probe asks for all that is missing of the oldest READ and of
// the latest. With two in flight nothing is left to be sent again.
func TestProbeReads(t *testing.T) {
	const n = 8 // responses of each READ
	for _, c := range []struct {
		name    string
		lose    func(*host, *wire.Packet) bool
		answers int // packets of b
	}{
		{"requests lost", nth(isReadRequest, 1, 2), 2 * n},
		{"responses lost", nth(isReadResponse, upTo(2*n)...), 2*n + 2*n},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := newPath(t, nil)
			answers := 0
			x.lose = func(from *host, p *wire.Packet) bool {
				if from == x.b {
					answers++
				}
				return c.lose(from, p)
			}
			x.post(ib.WRRead, n*1024)
			x.post(ib.WRRead, n*1024)
			x.run(2)
			if len(x.wcs) != 2 || x.wcs[1].Status != ib.WCSuccess || x.a.stats.LocalAckTimeout != 0 {
				t.Fatalf("got completions %v, %d timeouts, want two successes, 0", x.wcs, x.a.stats.LocalAckTimeout)
			}
			if answers != c.answers {
				t.Errorf("%d answers, want %d", answers, c.answers)
			}
		})
	}
}

// TestProbeOvertaken checks that an answer which arrives while the pacer holds a probe back
// cancels the probe.
func TestProbeOvertaken(t *testing.T) {
	for _, c := range []struct {
		name     string
		syndrome wire.Syndrome
		packets  int // sent when the pacer allows it
	}{
		{"by an ACK", wire.AckNoCredits, 0},
		{"by a NAK", wire.NAKSequence, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := newPath(t, nil)
			x.a.q.pace.setRate(8000) // a packet takes 1.088 ms
			x.post(ib.WRWrite, 1024)
			psn := x.a.emit(x.now, 8)[0].PSN
			x.now += probeLeast
			x.a.q.HandleTimeout(x.now)
			if n := len(x.a.emit(x.now, 8)); n != 0 {
				t.Fatalf("got %d packets, want none: the pacer holds them back", n)
			}
			p := ack(psn, 2)
			p.AETH.Syndrome = c.syndrome
			x.now += 1000
			x.a.handle(x.now, p)
			if wait := x.a.q.timers[timerProbe] - x.now; c.packets > 0 && !about(wait, 2*probeLeast) {
				t.Errorf("the next probe is due %d ns after the NAK, want %d and a quarter more or less", wait,
					2*probeLeast)
			}
			sent := 0
			for range 3 {
				x.now += 1_100_000
				sent += len(x.a.emit(x.now, 8))
			}
			if sent != c.packets {
				t.Errorf("%d packets, want %d", sent, c.packets)
			}
		})
	}
}

// TestProbeAfterReset checks that a QP that has used up its probes has them again after
// RESET.
func TestProbeAfterReset(t *testing.T) {
	x := newPath(t, func(a *ib.QPAttr) { a.Timeout = 0 })
	x.lose = func(*host, *wire.Packet) bool { return true }
	x.post(ib.WRWrite, 8)
	x.run(1)
	if d := x.a.q.Deadline(); d != driver.Never {
		t.Fatalf("probes do not end: the next is due at %d ns", d)
	}
	x.a.must(x.a.modify(ib.StateReset, ib.QPAttr{}, 0))
	x.a.up(ib.StateRTS, goodAttr(peerNum, ourPSN, peerPSN))
	x.post(ib.WRWrite, 8)
	x.a.emit(x.now, 8)
	if got := x.a.q.timers[timerProbe] - x.now; got != probeLeast {
		t.Errorf("%d ns to the first probe, want %d", got, probeLeast)
	}
}

// TestProbeBacksOff checks that each probe waits about twice as long as the one before, until a
// round trip has been measured without a probe (Karn's algorithm).
func TestProbeBacksOff(t *testing.T) {
	x := newPath(t, nil)
	x.post(ib.WRWrite, 8)
	x.lose = nth(isWrite, 1, 2, 3)
	began := x.now
	x.run(1)
	if took := x.now - began; !about(took-2*oneWay, 7*probeLeast) {
		t.Errorf("the third probe got through after %d ns, want about (1 + 2 + 4) x %d", took, probeLeast)
	}
	if got := x.a.flow.rtt.mean; got != int64(2*oneWay) {
		t.Errorf("an answer in doubt: got an estimate of %d ns, want %d still", got, 2*oneWay)
	}
	if got := x.nextProbe(); !about(got, 8*probeLeast) {
		t.Errorf("%d ns to the next probe, want about %d, as long as it has become", got, 8*probeLeast)
	}
	x.a.handle(x.now+2*oneWay, ack(x.a.q.req.win.nxt.Add(-1), 3))
	x.now += 2 * oneWay
	if got := x.nextProbe(); got != probeLeast {
		t.Errorf("%d ns to the next probe, want %d", got, probeLeast)
	}
}

// about reports whether a wait is one of want, a quarter more or less.
func about(wait, want ib.Instant) bool { return wait >= want*3/4 && wait <= want*5/4 }

// nextProbe posts a small WRITE and returns the wait until the probe.
func (x *path) nextProbe() ib.Instant {
	x.t.Helper()
	x.post(ib.WRWrite, 8)
	x.a.emit(x.now, 8)
	return x.a.q.timers[timerProbe] - x.now
}

// TestProbesSpread: QPs that have lost all they sent at one instant do not try again at one.
func TestProbesSpread(t *testing.T) {
	x, at := newSenders(t, 64, network{oneWay: ms / 40, drop: 1}, 1), map[ib.Instant]int{}
	for _, p := range x.pairs {
		x.post(p, load{op: ib.WRWrite, size: 8, depth: 1, n: 1})
		x.emit(&x.forth, p.a, p.b)
	}
	x.step() // all send their first probe
	for _, p := range x.pairs {
		at[p.a.q.timers[timerProbe]]++
	}
	if len(at) < 60 {
		t.Errorf("the second probes of 64 QPs are due at %d instants, want 60 and more", len(at))
	}
}

// TestProbesLast checks that probes continue on a network that loses packets for hours. Here
// each request is lost once, so no round trip can be measured.
func TestProbesLast(t *testing.T) {
	x := newPath(t, nil)
	writes := 0
	x.lose = func(_ *host, p *wire.Packet) bool {
		if isWrite(p) {
			writes++
		}
		return isWrite(p) && writes%2 == 1
	}
	for i := range 100 {
		began := x.now
		x.post(ib.WRWrite, 8)
		x.run(i + 1)
		if took := x.now - began; took > probeLeast<<probesCarried*5/4+2*oneWay {
			t.Fatalf("WRITE %d took %d ns, want at most %d, with %d ACK timeouts", i, took,
				probeLeast<<probesCarried*5/4+2*oneWay, x.a.stats.LocalAckTimeout)
		}
	}
}

// TestProbeLongerPath checks that late answers, after the path has become longer, raise the
// estimate, so that after a while no more probes are sent.
func TestProbeLongerPath(t *testing.T) {
	step := ib.Instant(200 * probeLeast / require.Rounds(100, 600))
	for late := ib.Instant(probeLeast); late < 200*probeLeast; late += step {
		x := newPath(t, nil)
		const messages, few = 20, 10
		for i := range messages {
			sent := x.now
			x.nextProbe()
			probes := 0
			for ; x.a.q.Deadline() < sent+late; probes++ {
				x.now = x.a.q.Deadline()
				x.a.q.HandleTimeout(x.now)
				x.a.emit(x.now, 8)
			}
			x.now = sent + late
			x.a.handle(x.now, ack(x.a.q.req.win.nxt.Add(-1), ib.PSN(i+2)))
			if i >= few && probes > 0 {
				t.Errorf("a round trip of %d ns: got %d probes for message %d, want none", late, probes, i)
			}
		}
		if got := x.a.flow.rtt.mean; got < int64(late/2) || got > int64(late) {
			t.Errorf("the round trip is estimated at %d ns, want %d", got, late)
		}
	}
}

// TestProbeSlowPath checks that on a path that is longer than the first wait the estimate,
// which begins too short, with the time since the latest probe, is right after a few
// answers, and no more probes are sent.
func TestProbeSlowPath(t *testing.T) {
	for rtt := ib.Instant(rttUnknown); rtt < 50*rttUnknown; rtt += rttUnknown / 7 {
		a := newHost(t, ourNum)
		a.q.cfg.Probe = true
		a.up(ib.StateRTS, goodAttr(peerNum, ourPSN, peerPSN))
		now := ib.Instant(0)
		const messages, few = 20, 15
		for i := range messages {
			a.post(&ib.SendWR{ID: 1, Opcode: ib.WRSend, SGL: []ib.SGE{a.sge(0, 8)}})
			sent := len(a.emit(now, 8))
			answer := now + rtt
			for a.q.Deadline() < answer {
				now = a.q.Deadline()
				a.q.HandleTimeout(now)
				sent += len(a.emit(now, 8))
			}
			now = answer
			a.handle(now, ack(ourPSN.Add(i), ib.PSN(i+1)))
			if i >= few && sent != 1 {
				t.Errorf("a round trip of %d ns: message %d left %d times, want once", rtt, i, sent)
			}
		}
		if got := a.flow.rtt.mean; got < int64(rtt/2) || got > int64(rtt) {
			t.Errorf("the round trip is estimated at %d ns, want %d", got, rtt)
		}
	}
}

// TestTimedAfterWrap: round trips are measured however many PSNs a QP has used since it has begun.
func TestTimedAfterWrap(t *testing.T) {
	h := newHost(t, ourNum)
	h.up(ib.StateRTS, goodAttr(peerNum, ourPSN, peerPSN))
	psn, now := ourPSN, ib.Instant(0)
	for i := range 3 {
		h.post(&ib.SendWR{ID: 1, Opcode: ib.WRSend, SGL: []ib.SGE{h.sge(0, 8)}})
		h.emit(now, 8)
		if !h.q.req.probe.timing {
			t.Fatalf("message %d: got no round trip measured, want one", i)
		}
		now += ms
		h.handle(now, ack(psn, ib.PSN(i+1)))
		psn = psn.Add(1)
	}
}
