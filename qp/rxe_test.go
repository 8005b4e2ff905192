package qp

import (
	"bytes"
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

// rxeResponder answers READs and WRITEs as rdma_rxe does (rxe_resp.c of Linux 6.12).
// It answers requests one after the other, each completely. It differs from the
// specification in duplicate READs: each must lie within the range of the duplicate
// before it (IBTA 9.7.5.1.3: within the original request). After a READ was repeated from
// the middle on, it is never answered from its beginning any more.
type rxeResponder struct {
	mem       []byte
	epsn, msn ib.PSN
	acked     ib.PSN // of the latest WRITE; READs are acknowledged by their responses
	nakSent   bool   // one sequence NAK for each gap
	at        uint64 // address for the next packet of the current WRITE
	resources []rxeResource
	head      int
	refused   int        // duplicates that it has dropped
	busy      ib.Instant // until then it is answering earlier requests
	send      func(at ib.Instant, p wire.Packet)
}

// rxeResource is a READ that the responder remembers. There are as many as the requester
// may have in flight.
type rxeResource struct {
	first  ib.PSN
	npsn   int
	va     uint64 // of the latest request, which may be a duplicate
	length uint32 // of the original request
}

// rxeAnswerTime is the time to build a response packet, in nanoseconds.
const rxeAnswerTime = 2_000

func (r *rxeResponder) handle(now ib.Instant, p wire.Packet) {
	r.busy = max(r.busy, now)
	switch gap := p.PSN.Sub(r.epsn); {
	case gap > 0:
		if !r.nakSent {
			r.nakSent = true
			r.answer(wire.RCAck, r.epsn, wire.NAKSequence, nil)
		}
	case p.Opcode.IsWrite():
		r.write(&p, gap < 0)
	case gap < 0:
		r.duplicate(&p)
	default:
		r.nakSent = false
		res := &r.resources[r.head]
		r.head = (r.head + 1) % len(r.resources)
		*res = rxeResource{first: p.PSN, npsn: packets(p.RETH.Len), va: p.RETH.VA, length: p.RETH.Len}
		r.epsn = p.PSN.Add(res.npsn)
		r.msn = r.msn.Add(1)
		r.reply(&p, true)
	}
}

// write handles a packet of a WRITE. A duplicate is acknowledged with the PSN of the latest WRITE, not
// with its own.
func (r *rxeResponder) write(p *wire.Packet, duplicate bool) {
	if !duplicate {
		r.nakSent = false
		if op := p.Opcode.Op(); op == wire.OpWriteFirst || op == wire.OpWriteOnly {
			r.at = p.RETH.VA
		}
		r.at += uint64(copy(r.mem[r.at-memAddr:], p.Payload))
		r.acked, r.epsn = p.PSN, p.PSN.Add(1)
		if op := p.Opcode.Op(); op == wire.OpWriteLast || op == wire.OpWriteOnly {
			r.msn = r.msn.Add(1)
		}
	}
	if p.AckReq || duplicate {
		r.answer(wire.RCAck, r.acked, wire.AckNoCredits, nil)
	}
}

// duplicate answers a READ again, or drops it.
func (r *rxeResponder) duplicate(p *wire.Packet) {
	i := slices.IndexFunc(r.resources, func(s rxeResource) bool {
		d := p.PSN.Sub(s.first)
		return d >= 0 && d < s.npsn
	})
	if i < 0 {
		r.refused++
		return
	}
	res := &r.resources[i]
	if p.RETH.VA < res.va || p.RETH.Len > res.length || p.RETH.VA+uint64(p.RETH.Len) > res.va+uint64(res.length) {
		r.refused++
		return
	}
	res.va = p.RETH.VA
	r.reply(p, p.PSN == res.first)
}

// reply sends the responses to p. A reply from the middle on begins with a MIDDLE or LAST.
func (r *rxeResponder) reply(p *wire.Packet, begins bool) {
	data := r.mem[p.RETH.VA-memAddr:][:p.RETH.Len]
	for i := range packets(p.RETH.Len) {
		n := min(len(data), int(pathMTU))
		op := wire.RCReadRespMiddle
		switch first, last := begins && i == 0, n == len(data); {
		case first && last:
			op = wire.RCReadRespOnly
		case first:
			op = wire.RCReadRespFirst
		case last:
			op = wire.RCReadRespLast
		}
		r.answer(op, p.PSN.Add(i), wire.AckNoCredits, data[:n])
		data = data[n:]
	}
}

func (r *rxeResponder) answer(op wire.Opcode, psn ib.PSN, syndrome wire.Syndrome, data []byte) {
	r.busy += rxeAnswerTime
	p := request(op, psn, data)
	p.AckReq = false
	p.AETH = wire.AETH{Syndrome: syndrome, MSN: r.msn}
	r.send(r.busy, p)
}

const pathMTU = ib.MTU1024

func packets(n uint32) int { return max(1, (int(n)+int(pathMTU)-1)/int(pathMTU)) }

// rxeRun is a requester that reads from an rxeResponder, or writes, over a network, in
// virtual time.
type rxeRun struct {
	*testing.T
	link
	now      ib.Instant
	us       *host
	rxe      rxeResponder
	arrivals arrivals
	posts    [][2]int // offset and length of each, posted in order
}

// readsInFlight is how many READs both ends agree on.
const readsInFlight = 16

func newRxeRun(t *testing.T, net network, seed uint64) *rxeRun {
	if net.oneWay == 0 {
		net.oneWay = oneWay
	}
	x := &rxeRun{T: t, link: link{network: net, rng: rand.New(rand.NewPCG(seed, 0))}, us: newHost(t, ourNum)}
	x.us.q.cfg.Probe = true
	attr := goodAttr(peerNum, ourPSN, peerPSN)
	attr.PathMTU, attr.MaxRdAtomic, attr.RetryCnt = pathMTU, readsInFlight, 7
	x.us.up(ib.StateRTS, attr)
	x.rxe = rxeResponder{mem: make([]byte, memSize), epsn: ourPSN, resources: make([]rxeResource, readsInFlight)}
	x.rxe.send = func(at ib.Instant, p wire.Packet) { x.send(at, x.us.handle, p) }
	for i := range x.rxe.mem {
		x.rxe.mem[i] = byte(x.rng.Uint32()) | 1
	}
	return x
}

// send sends a packet to the requester or to the responder.
func (x *rxeRun) send(now ib.Instant, to func(ib.Instant, wire.Packet), p wire.Packet) {
	if at, ok := x.carry(now, len(p.Payload), &p); ok {
		x.arrivals.add(arrival{at: at, to: to, p: p})
	}
}

// post posts a READ or WRITE of n bytes at a random offset, the same on both sides.
func (x *rxeRun) post(op ib.WROpcode, n int) {
	off := x.rng.IntN(memSize - n + 1)
	x.us.q.now = x.now
	x.us.post(&ib.SendWR{ID: uint64(len(x.posts)), Opcode: op, Flags: ib.SendSignaled,
		SGL: []ib.SGE{x.us.sge(off, n)}, RemoteAddr: memAddr + uint64(off)})
	x.posts = append(x.posts, [2]int{off, n})
}

// step sends, and advances the time to the next arrival or deadline.
func (x *rxeRun) step() {
	for _, tx := range x.us.emit(x.now, 16) {
		if tx.Opcode.IsWrite() {
			tx.Payload = make([]byte, tx.Len)
			if err := mr.Gather(tx.Payload, tx.SGL, tx.Off); err != nil {
				x.Fatal(err)
			}
		}
		x.send(x.now, x.rxe.handle, tx.Packet)
	}
	next := min(x.us.q.Deadline(), x.arrivals.next())
	if next == driver.Never {
		x.Fatalf("nothing can happen any more at %d ns", x.now)
	}
	x.now = max(x.now, next)
	x.arrivals.deliver(x.now)
	if x.us.q.Deadline() <= x.now {
		x.us.q.HandleTimeout(x.now)
	}
}

// await runs until the completion of the request with number id, and takes it.
func (x *rxeRun) await(id int) {
	var wc [1]ib.WC
	for x.us.sendCQ.Poll(wc[:]) == 0 {
		x.step()
	}
	off, n := x.posts[id][0], x.posts[id][1]
	switch {
	case wc[0].ID != uint64(id) || wc[0].Status != ib.WCSuccess:
		x.Fatalf("request %d of %d bytes: %v at %d ns", id, n, wc[0], x.now)
	case !bytes.Equal(x.us.mem[off:off+n], x.rxe.mem[off:off+n]):
		x.Fatalf("request %d of %d bytes has wrong data", id, n)
	}
}

// TestReadFromRxe checks that READs of many packets and of few, as many in flight as rxe
// grants, complete over networks over which two rdma_rxe can read from each other, and
// with the right data: a repeated request must have the address that belongs to its PSN.
// A long READ is sent in several pieces.
//
// Of runs with 15 % loss one in a thousand may fail: eight times in a row the request or
// the first response gets lost, and a retry count of 7 means 7.
func TestReadFromRxe(t *testing.T) {
	seeds, reads := require.Rounds(3, 40), 48
	sizes := []int{8, 1024, 5000, 64 << 10, 200_000}
	for _, c := range []struct {
		name string
		network
	}{
		{"loss=2%", network{drop: 0.02}}, // corrupted packets are lost, too
		{"loss=7%", network{drop: 0.07}},
		{"loss=15%", network{drop: 0.15}},
		{"late=5%", network{late: 0.05, delay: 2_000_000}},
		{"late=30%", network{late: 0.3, delay: 5_000_000}},
		{"latency=100ms", network{oneWay: 100 * ms}},
		{"loss=7%,late=5%", network{drop: 0.07, late: 0.05, delay: 2_000_000}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(seeds) {
				t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
					x := newRxeRun(t, c.network, seed)
					for i := range reads {
						x.post(ib.WRRead, sizes[x.rng.IntN(len(sizes))])
						if i >= readsInFlight {
							x.await(i - readsInFlight)
						}
					}
					for i := reads - readsInFlight; i < reads; i++ {
						x.await(i)
					}
					if c.late == 0 && x.rxe.refused > 0 { // rxe may drop a late request
						t.Errorf("rxe dropped %d repeated requests, want 0", x.rxe.refused)
					}
				})
			}
		})
	}
}

// TestWriteToRxe checks that WRITEs complete over the same networks, with one posted at a
// time, as in a ping-pong, and with many. A late packet arrives after its retransmission,
// and there is only one NAK for the gap.
func TestWriteToRxe(t *testing.T) {
	seeds := require.Rounds(1, 12)
	for _, c := range []struct {
		name string
		network
	}{
		{"loss=2%", network{drop: 0.02}},
		{"loss=7%", network{drop: 0.07}},
		{"loss=15%", network{drop: 0.15}},
		{"late=5%", network{late: 0.05, delay: 2_000_000}},
		{"late=30%", network{late: 0.3, delay: 5_000_000}},
		{"latency=100ms", network{oneWay: 100 * ms}},
	} {
		for _, load := range []struct{ size, count, depth int }{{4096, 100, 1}, {64 << 10, 48, 16}} {
			t.Run(fmt.Sprintf("%s/%d bytes, %d at a time", c.name, load.size, load.depth), func(t *testing.T) {
				t.Parallel()
				for seed := range uint64(seeds) {
					t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
						x := newRxeRun(t, c.network, seed)
						for i := range load.count {
							if i >= load.depth {
								x.await(i - load.depth)
							}
							x.post(ib.WRWrite, load.size)
						}
						for i := load.count - load.depth; i < load.count; i++ {
							x.await(i)
						}
					})
				}
			})
		}
	}
}
