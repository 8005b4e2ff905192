package device_test

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/roce/trace"
	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
	"github.com/goroce/goroce/wire"
)

var (
	modelSeeds = flag.Int("model.seeds", require.Rounds(40, 200), "seeds that TestModel runs")
	modelTrace = flag.Bool("model.trace", false, "print every frame")
	modelSeed  = flag.Uint64("model.seed", 0, "the one seed that TestModel runs, to replay a failure")
	modelShard = flag.Int("model.shards", 1, "with how many shards a side")
)

// TestModel lets two QPs exchange operations over a network that drops,
// duplicates, reorders, delays and corrupts, in virtual time, and compares every
// completion and every byte with a plain model: operations of one side take
// effect at the other in the order in which they were posted, once. The memory of
// some sides is not direct.
func TestModel(t *testing.T) {
	if *modelSeed != 0 {
		runModel(t, *modelSeed, *modelShard)
		return
	}
	for _, c := range []struct{ shards, seeds int }{{1, *modelSeeds}, {2, *modelSeeds / 4}, {4, *modelSeeds / 4}} {
		for seed := uint64(1); seed <= uint64(c.seeds); seed++ {
			// A subtest for each, so that its worlds are closed before the next one begins.
			ok := t.Run(fmt.Sprintf("%d shards/%d", c.shards, seed), func(t *testing.T) { runModel(t, seed, c.shards) })
			if !ok {
				t.Fatalf("replay it with: go test ./roce -run TestModel -model.seed=%d -model.shards=%d", seed,
					c.shards)
			}
		}
	}
}

// Layout of a host's memory in the model test. The parts that a peer writes and those
// that it reads are separate; fences order WRITE and READ of the target part.
const (
	modelSource = 0       // source of the data that is sent; never changes
	modelTarget = 1 << 16 // the peer writes and reads here
	modelWords  = 2 << 16 // the peer's atomics
	modelLand   = modelWords + 64
	modelMost   = 20_000 // longest message
	modelOps    = 40
	modelMem    = modelLand + modelOps*(modelMost+8)*2
)

// modelSide is one host with the work that it has to do and the expected results.
type modelSide struct {
	*host
	t      *testing.T
	name   string
	rng    *rand.Rand
	peer   *modelSide
	want   []byte // the model's memory
	work   []ib.SendWR
	posted int
	recvs  int // receives posted, of wantRecv
	land   int // next free byte of the landing zone

	wantSend, wantRecv []ib.WC
	ok                 bool
}

func runModel(t *testing.T, seed uint64, shards int) {
	rng := rand.New(rand.NewPCG(seed, 0))
	mtu := []ib.MTU{256, 512, 1024, 2048, 4096}[rng.IntN(5)]
	s := faultyStack(seed, rng)
	s.shards = shards
	if seed%4 == 0 { // decoding all frames takes as long as the rest
		faulty, rule := s.above, ackRule{t: t, mtu: mtu, answered: map[ib.GID]map[ib.PSN]bool{}}
		s.above = func(l link.Link) link.Link { return wrap.Trace(faulty(l), rule.check) }
	}
	if shards > 1 {
		s.home = rng.IntN(shards)
		s.steer = []func(*link.Run, int) int{
			nil, // to the shard of its QP
			func(*link.Run, int) int { return 0 },
			func(_ *link.Run, n int) int { return rng.IntN(n) }, // out of order, too
		}[rng.IntN(3)]
	}
	w := newWorld(t, seed, modelMem, s)
	if seed%5 == 0 {
		w.a.slow(t)
	}
	if seed%10 < 5 && seed%5 < 2 {
		w.b.slow(t)
	}
	w.connect(mtu, func(a *ib.QPAttr) {
		a.MaxRdAtomic = 1 + rng.IntN(4)
		a.MaxDestRdAtomic = 4
		a.Timeout = uint8(10 + rng.IntN(4))
		a.MinRNRTimer = uint8(1 + rng.IntN(14))
		a.RQPSN = 0xFFFF00 + ib.PSN(seed%512)&0xFF
		a.SQPSN = a.RQPSN
	})
	a, b := newModel(t, w, seed, mtu)
	w.play(a, b)
}

// faultyStack builds a bad network: faults above the seal, corruption below. Two
// seeds in four have links with segmentation offload, one of which numbers segments
// correctly.
func faultyStack(seed uint64, rng *rand.Rand) stack {
	bad := wrap.FaultConfig{MaxDelay: time.Duration(1+rng.IntN(300)) * time.Microsecond}
	if rng.IntN(8) != 0 { // one in eight is perfect
		bad.Drop, bad.Duplicate = rng.Float64()*0.05, rng.Float64()*0.05
		bad.Reorder, bad.Delay = rng.Float64()*0.05, rng.Float64()*0.1
	}
	flips := rng.Float64() * 0.01
	above := func(l link.Link) link.Link {
		if *modelTrace {
			l = wrap.Trace(l, tracer(l.Caps().Local[0].String()))
		}
		seed++
		bad.Seed = seed
		return wrap.Fault(l, bad)
	}
	offload, lie := seed%4 > 1, seed%4 == 3
	shift := uint16(seed % 3)
	below := func(l link.Link) link.Link {
		if offload {
			l = linktest.Segment(l, func(ids []uint16) {
				if lie {
					each(ids, func(i uint16) uint16 { return i*i + shift })
				}
			})
		}
		if bad.Drop == 0 {
			return l
		}
		return wrap.Corrupt(l, wrap.FaultConfig{Seed: seed, Corrupt: flips})
	}
	return stack{above: above, below: below}
}

// tracer prints the frames that a host sends, to study a failing seed.
func tracer(name string) func(*wrap.Event) {
	return func(e *wrap.Event) {
		if e.Sent {
			fmt.Printf("%9d %s sends %s\n", e.Now, name, trace.Label(&e.Packet))
		}
	}
}

// ackRule checks that no plain ACK has the PSN of a READ or atomic, whose acknowledgment is the response. rdma_rxe
// would complete the READ by such an ACK, without data (rxe_comp.c check_ack).
type ackRule struct {
	t        *testing.T
	mtu      ib.MTU
	answered map[ib.GID]map[ib.PSN]bool // the PSNs of a requester's READs and atomics
}

func (a *ackRule) check(e *wrap.Event) {
	switch p := &e.Packet; {
	case !e.Sent || e.Err != nil:
	case p.Opcode.IsRequest() && !p.Opcode.IsSend() && !p.Opcode.IsWrite():
		psns := a.answered[e.Outer.Src]
		if psns == nil {
			psns = map[ib.PSN]bool{}
			a.answered[e.Outer.Src] = psns
		}
		n := 1
		if p.Opcode.IsRead() {
			n = max(1, (int(p.RETH.Len)+int(a.mtu)-1)/int(a.mtu))
		}
		for i := range n {
			psns[p.PSN.Add(i)] = true
		}
	case p.Opcode.Op() == wire.OpAck && p.AETH.Syndrome.IsAck() && a.answered[e.Outer.Dst][p.PSN]:
		a.t.Errorf("%v acknowledges PSN %#x, which a READ or atomic has", e.Outer.Src, p.PSN)
	}
}

// newModel gives the hosts, which are connected, their memory and work.
func newModel(t *testing.T, w *world, seed uint64, mtu ib.MTU) (a, b *modelSide) {
	a = &modelSide{host: w.a, name: "A"}
	b = &modelSide{host: w.b, name: "B", peer: a}
	a.peer = b
	for i, s := range []*modelSide{a, b} {
		s.t, s.ok, s.land = t, true, modelLand
		s.rng = rand.New(rand.NewPCG(seed, uint64(i)+1))
		for j := range s.buf[:modelTarget] {
			s.buf[j] = byte(s.rng.Uint32())
		}
		s.want = bytes.Clone(s.buf)
	}
	for _, s := range []*modelSide{a, b} {
		s.plan(int(mtu))
	}
	return a, b
}

// plan draws the work of s, and computes its results in the model.
func (s *modelSide) plan(mtu int) {
	fenceNext := false
	for i := range 5 + s.rng.IntN(modelOps-5) {
		wr := ib.SendWR{ID: uint64(i)}
		n := s.size(mtu)
		wc := ib.WC{ID: wr.ID, QPN: s.qp.Num()}
		switch s.rng.IntN(8) {
		case 0, 1, 2:
			s.planSend(&wr, &wc, n, i)
		case 3, 4:
			s.planWrite(&wr, &wc, n)
		case 5, 6:
			fenceNext = s.planRead(&wr, &wc, n) || fenceNext
		case 7:
			s.planAtomic(&wr, &wc)
		}
		// A WRITE may overtake the retransmission of a READ; a fence prevents that.
		if fenceNext && (wr.Opcode == ib.WRWrite || wr.Opcode == ib.WRWriteImm) {
			wr.Flags |= ib.SendFence
			fenceNext = false
		}
		if s.rng.IntN(3) != 0 {
			wr.Flags |= ib.SendSignaled
			s.wantSend = append(s.wantSend, wc)
		}
		s.work = append(s.work, wr)
	}
	last := &s.work[len(s.work)-1]
	if last.Flags&ib.SendSignaled == 0 {
		last.Flags |= ib.SendSignaled
		s.wantSend = append(s.wantSend, ib.WC{ID: last.ID, QPN: s.qp.Num(), Opcode: completionOf[last.Opcode],
			ByteLen: s.readLen(last)})
	}
}

var completionOf = map[ib.WROpcode]ib.WCOpcode{
	ib.WRSend: ib.WCSend, ib.WRSendImm: ib.WCSend, ib.WRSendInv: ib.WCSend, ib.WRWrite: ib.WCWrite,
	ib.WRWriteImm: ib.WCWrite,
	ib.WRRead:     ib.WCRead, ib.WRCompareSwap: ib.WCCompareSwap, ib.WRFetchAdd: ib.WCFetchAdd,
}

// readLen is the ByteLen of a READ's or atomic's completion.
func (s *modelSide) readLen(wr *ib.SendWR) uint32 {
	if wr.Opcode != ib.WRRead && wr.Opcode != ib.WRCompareSwap && wr.Opcode != ib.WRFetchAdd {
		return 0
	}
	n := uint32(0)
	for _, e := range wr.SGL {
		n += e.Length
	}
	return n
}

// size draws a length, often an edge case: 0, 1, or around multiples of the path MTU.
func (s *modelSide) size(mtu int) int {
	switch s.rng.IntN(6) {
	case 0:
		return s.rng.IntN(2)
	case 1, 2:
		return min(max(mtu*(1+s.rng.IntN(5))+s.rng.IntN(3)-1, 0), modelMost)
	case 3:
		return s.rng.IntN(modelMost)
	}
	return s.rng.IntN(300)
}

// split describes n bytes at off by up to four SGEs.
func (s *modelSide) split(off, n int) []ib.SGE {
	var sgl []ib.SGE
	for len(sgl) < 3 && n > 1 && s.rng.IntN(2) == 0 {
		k := 1 + s.rng.IntN(n-1)
		sgl = append(sgl, s.sge(off, k)...)
		off, n = off+k, n-k
	}
	return append(sgl, s.sge(off, n)...)
}

// landing reserves n bytes that only one operation writes to.
func (s *modelSide) landing(n int) int {
	at := s.land
	s.land += (n + 15) &^ 7
	return at
}

// source picks n bytes to send, sometimes inline.
func (s *modelSide) source(wr *ib.SendWR, n int) []byte {
	off := s.rng.IntN(modelTarget - n)
	data := s.want[off : off+n]
	if n <= 64 && s.rng.IntN(2) == 0 {
		wr.Flags |= ib.SendInline
		wr.Inline = bytes.Clone(data)
	} else {
		wr.SGL = s.split(off, n)
	}
	return data
}

func (s *modelSide) planSend(wr *ib.SendWR, wc *ib.WC, n, i int) {
	p := s.peer
	wr.Opcode = []ib.WROpcode{ib.WRSend, ib.WRSendImm, ib.WRSendInv}[s.rng.IntN(3)]
	wc.Opcode = ib.WCSend
	data := s.source(wr, n)
	at := p.landing(n + 8)
	copy(p.want[at:], data)
	got := ib.WC{ID: uint64(at), QPN: p.qp.Num(), Opcode: ib.WCRecv, ByteLen: uint32(n)}
	switch wr.Opcode {
	case ib.WRSendImm:
		wr.Imm = s.rng.Uint32()
		got.Flags, got.Imm = ib.WCWithImm, wr.Imm
	case ib.WRSendInv:
		mr, err := p.pd.RegMR(ib.MRInit{Buf: make([]byte, 8), Access: ib.RemoteInvalidate})
		if err != nil {
			s.t.Fatal(err)
		}
		wr.InvalidateKey = mr.RKey()
		got.Flags, got.InvalidatedKey = ib.WCWithInv, mr.RKey()
	}
	p.wantRecv = append(p.wantRecv, got)
}

func (s *modelSide) planWrite(wr *ib.SendWR, wc *ib.WC, n int) {
	p := s.peer
	wr.Opcode, wc.Opcode = ib.WRWrite, ib.WCWrite
	data := s.source(wr, n)
	at := modelTarget + s.rng.IntN(modelTarget-n)
	copy(p.want[at:], data)
	wr.RemoteAddr, wr.RKey = p.mr.Addr()+uint64(at), p.mr.RKey()
	if s.rng.IntN(3) == 0 {
		wr.Opcode, wr.Imm = ib.WRWriteImm, s.rng.Uint32()
		p.wantRecv = append(p.wantRecv, ib.WC{ID: uint64(p.landing(8)), QPN: p.qp.Num(), Opcode: ib.WCRecvImm,
			ByteLen: uint32(n),
			Flags:   ib.WCWithImm, Imm: wr.Imm})
	}
}

// planRead reports whether the READ is of memory that this side also writes.
func (s *modelSide) planRead(wr *ib.SendWR, wc *ib.WC, n int) bool {
	p := s.peer
	from, shared := s.rng.IntN(modelTarget-n), false
	if s.rng.IntN(2) == 0 {
		from, shared = from+modelTarget, true
	}
	at := s.landing(n)
	copy(s.want[at:], p.want[from:from+n])
	wr.Opcode, wr.SGL = ib.WRRead, s.split(at, n)
	wr.RemoteAddr, wr.RKey = p.mr.Addr()+uint64(from), p.mr.RKey()
	wc.Opcode, wc.ByteLen = ib.WCRead, uint32(n)
	return shared
}

func (s *modelSide) planAtomic(wr *ib.SendWR, wc *ib.WC) {
	p := s.peer
	from := modelWords + 8*s.rng.IntN(4)
	word := p.want[from : from+8]
	old := binary.NativeEndian.Uint64(word)
	at := s.landing(8)
	binary.NativeEndian.PutUint64(s.want[at:], old)
	wr.SGL = s.split(at, 8)
	wr.RemoteAddr, wr.RKey, wr.Swap = p.mr.Addr()+uint64(from), p.mr.RKey(), s.rng.Uint64()
	wr.Opcode, wc.Opcode, wc.ByteLen = ib.WRFetchAdd, ib.WCFetchAdd, 8
	next := old + wr.Swap
	if s.rng.IntN(2) == 0 {
		wr.Opcode, wc.Opcode = ib.WRCompareSwap, ib.WCCompareSwap
		wr.Compare, next = old, wr.Swap
		if s.rng.IntN(2) == 0 {
			wr.Compare, next = old+1, old
		}
	}
	binary.NativeEndian.PutUint64(word, next)
}

// play posts the work in steps and checks completions until all is done.
func (w *world) play(a, b *modelSide) {
	for range 2_000_000 {
		for _, s := range []*modelSide{a, b} {
			s.post()
			s.poll()
		}
		if !a.ok || !b.ok {
			return
		}
		if a.finished() && b.finished() {
			a.compare()
			b.compare()
			return
		}
		more := w.a.dev.Step(w.now)
		if more = w.b.dev.Step(w.now) || more; more {
			continue
		}
		next := min(w.a.dev.Deadline(), w.b.dev.Deadline())
		if next == driver.Never && a.idle() && b.idle() && a.poll() == 0 && b.poll() == 0 {
			break
		}
		if next != driver.Never {
			w.now = max(w.now, next)
		}
	}
	w.t.Errorf("stuck at %d ns: A has %d/%d posted and waits for %d+%d completions, B %d/%d and %d+%d", w.now,
		a.posted, len(a.work), len(a.wantSend), len(a.wantRecv), b.posted, len(b.work), len(b.wantSend),
		len(b.wantRecv))
}

func (s *modelSide) finished() bool { return len(s.wantSend) == 0 && len(s.wantRecv) == 0 }
func (s *modelSide) idle() bool     { return s.posted == len(s.work) }

// post posts some of the remaining work, as a program does that also has other work.
func (s *modelSide) post() {
	if s.rng.IntN(3) == 0 && s.posted < len(s.work) {
		n := min(1+s.rng.IntN(8), len(s.work)-s.posted)
		k, err := s.qp.PostSend(s.work[s.posted : s.posted+n])
		if err != nil { // the queue has room for all requests
			s.fail("post send: %v", err)
		}
		s.posted += k
	}
	if s.rng.IntN(3) == 0 {
		for s.recvs < len(s.wantRecv) && s.rng.IntN(4) != 0 {
			want := s.wantRecv[s.recvs]
			wr := ib.RecvWR{ID: want.ID, SGL: s.split(int(want.ID), int(want.ByteLen)+s.rng.IntN(8))}
			if want.Opcode == ib.WCRecvImm {
				wr.SGL = nil
			}
			if _, err := s.qp.PostRecv([]ib.RecvWR{wr}); err != nil {
				return
			}
			s.recvs++
		}
	}
}

// poll polls some completions and compares them with the expected ones. It returns how
// many there were.
func (s *modelSide) poll() int {
	var wcs [4]ib.WC
	n, err := s.cq.Poll(wcs[:])
	if err != nil {
		s.fail("poll: %v", err)
	}
	for _, got := range wcs[:n] {
		want := &s.wantSend
		if got.Opcode >= ib.WCRecv {
			want = &s.wantRecv
			s.recvs--
		}
		got.Timestamp = 0
		if len(*want) == 0 {
			s.fail("unexpected completion %+v", got)
			return n
		}
		if got != (*want)[0] {
			s.fail("completion %+v, want %+v", got, (*want)[0])
			return n
		}
		*want = (*want)[1:]
	}
	return n
}

// compare checks every byte of memory.
func (s *modelSide) compare() {
	if bytes.Equal(s.buf, s.want) {
		return
	}
	for i := range s.buf {
		if s.buf[i] != s.want[i] {
			s.fail("memory differs at %#x: %#02x, want %#02x", i, s.buf[i], s.want[i])
			return
		}
	}
}

func (s *modelSide) fail(format string, args ...any) {
	s.t.Helper()
	s.ok = false
	s.t.Errorf("%s: %s", s.name, fmt.Sprintf(format, args...))
}
