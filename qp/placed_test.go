package qp

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/tests/require"
	"github.com/goroce/goroce/wire"
)

// TestAcknowledgedMeansPlaced checks that when any packet acknowledges a PSN (ACK, NAK, RNR
// NAK, READ response, ATOMIC ACK), the data of all requests up to that PSN is in memory, with
// any order and any failures of placements. It also checks that receives complete in the order
// of posting, and the one with the error that ended the connection before all flushed ones.
func TestAcknowledgedMeansPlaced(t *testing.T) {
	for seed := range uint64(require.Rounds(60, 1000)) {
		if !t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { newLatePeer(t, seed).play() }) {
			return
		}
	}
}

// latePeer sends requests to a host whose memory is mostly slow and fails occasionally.
type latePeer struct {
	*host
	rng      *rand.Rand
	requests []wire.Packet // by PSN, from peerPSN on
	next     int           // which of them is sent next
	atomics  []ib.PSN      // accepted and without a placement, oldest first
	late     []latePlacement
	waiting  map[ib.PSN]int // unfinished placements of a PSN
	failed   map[ib.PSN]bool
	posted   uint64 // receives
	done     uint64 // receives that are complete
	over     bool   // a receive failed
}

type latePlacement struct {
	mr.Placement
	psn ib.PSN
}

func newLatePeer(t *testing.T, seed uint64) *latePeer {
	p := &latePeer{host: newHost(t, ourNum), rng: rand.New(rand.NewPCG(seed, 1)), waiting: map[ib.PSN]int{},
		failed: map[ib.PSN]bool{}}
	p.up(ib.StateRTS, goodAttr(peerNum, ourPSN, peerPSN))
	p.q.attr.PathMTU = ib.MTU256
	inside := false
	for range 40 {
		p.add(&inside)
	}
	return p
}

// add appends a random request packet.
func (p *latePeer) add(inside *bool) {
	psn := peerPSN.Add(len(p.requests))
	reth := wire.RETH{VA: slowAddr + uint64(8*p.rng.IntN(256)), RKey: p.slowReg.Key(), Len: 8}
	if p.rng.IntN(4) == 0 {
		reth.VA, reth.RKey = memAddr, p.region.Key()
	}
	r := request(wire.RCSendOnly, psn, make([]byte, 1+p.rng.IntN(64)))
	kind := p.rng.IntN(100)
	switch {
	case *inside:
		r = request(wire.RCSendLast, psn, make([]byte, 1+p.rng.IntN(64)))
		*inside = false
	case kind < 10:
		r = request(wire.RCSendFirst, psn, make([]byte, 256))
		*inside = true
	case kind < 30:
	case kind < 75:
		r = request(wire.RCWriteOnly, psn, make([]byte, 8))
		r.RETH = reth
	case kind < 85:
		r = request(wire.RCReadRequest, psn, nil)
		r.RETH = reth
	case kind < 95:
		r = request(wire.RCFetchAdd, psn, nil)
		r.Atomic = wire.AtomicETH{VA: reth.VA, RKey: reth.RKey, Swap: 1}
	default: // a key of no region
		r = request(wire.RCWriteOnly, psn, make([]byte, 8))
		r.RETH = wire.RETH{VA: slowAddr, RKey: 0xDEAD, Len: 8}
	}
	r.AckReq = p.rng.IntN(3) != 0
	if len(r.Payload) > 0 {
		r.Payload[0] = byte(len(p.requests))
	}
	p.requests = append(p.requests, r)
}

func (p *latePeer) play() {
	for range 400 {
		switch p.rng.IntN(8) {
		case 0, 1, 2:
			p.sendNext()
		case 3:
			p.receive()
		case 4, 5, 6:
			p.place()
		case 7:
			p.fetch()
		}
		p.listen()
	}
	p.must(p.q.Modify(0, &ib.QPAttr{State: ib.StateErr}, ib.AttrState))
	for len(p.late) > 0 {
		p.place()
	}
	p.listen()
	for flushed := p.done; p.done < p.posted; flushed = p.done { // the flush goes in parts
		p.q.Doorbell(0)
		if p.listen(); p.done == flushed {
			break
		}
	}
	if p.done != p.posted {
		p.t.Errorf("%d receives were posted, %d completed; want all", p.posted, p.done)
	}
}

// sendNext sends the next request; one in eight is lost, or is a duplicate.
func (p *latePeer) sendNext() {
	switch p.rng.IntN(16) {
	case 0:
		p.next++
		return
	case 1:
		p.next = p.rng.IntN(p.next + 1)
	}
	if p.next >= len(p.requests) {
		p.next = p.rng.IntN(len(p.requests))
	}
	r := p.requests[p.next]
	p.next++
	psn := p.q.resp.epsn
	p.handle(0, r)
	for ; psn.Before(p.q.resp.epsn); psn = psn.Add(1) { // r, and kept requests before it
		if r := &p.requests[psn.Sub(peerPSN)]; r.Opcode == wire.RCFetchAdd && r.Atomic.VA >= slowAddr {
			p.atomics = append(p.atomics, psn)
			p.waiting[psn]++
		}
	}
	p.take()
}

// take takes the placements of an input: those of requests, whose data begins with the PSN, or of an
// atomic that was waiting to be executed.
func (p *latePeer) take() {
	for _, late := range p.placements() {
		var of ib.PSN
		if late.Kind == mr.PlaceFetchAdd {
			of, p.atomics = p.atomics[0], p.atomics[1:]
		} else {
			of = peerPSN.Add(int(late.Data[0]))
			p.waiting[of]++
		}
		p.late = append(p.late, latePlacement{late, of})
	}
}

// receive posts a receive: in slow memory, in direct memory, or one that is too short.
func (p *latePeer) receive() {
	if p.posted-p.done >= hostEntries-1 {
		return
	}
	sge := ib.SGE{Addr: slowAddr + 2048, Length: 512, LKey: p.slowReg.Key()}
	switch p.rng.IntN(12) {
	case 0:
		sge.Length = 8
	case 1, 2:
		sge = p.sge(0, 512)
	}
	p.posted++
	p.postRecv(&ib.RecvWR{ID: p.posted, SGL: []ib.SGE{sge}})
}

// place ends a random placement: one in forty fails.
func (p *latePeer) place() {
	if len(p.late) == 0 {
		return
	}
	i := p.rng.IntN(len(p.late))
	l := p.late[i]
	p.late = append(p.late[:i], p.late[i+1:]...)
	var err error
	p.waiting[l.psn]--
	if p.rng.IntN(40) == 0 {
		err = errors.New("the page is gone")
		p.failed[l.psn] = true
	}
	p.q.Placed(0, l.ID, 0, err)
	p.take()
}

func (p *latePeer) fetch() {
	for _, f := range p.fetches() {
		p.q.Fetched(0, f.ID, f.Do())
	}
}

// listen checks the packets that are sent, and the completions.
func (p *latePeer) listen() {
	p.t.Helper()
	for _, tx := range p.emit(ib.Instant(1e6), 4) {
		until := tx.PSN // the first PSN that is not acknowledged
		switch {
		case tx.Opcode == wire.RCAck && tx.AETH.Syndrome.IsAck(), tx.Opcode == wire.RCAtomicAck:
			until = until.Add(1)
		case tx.Opcode == wire.RCAck && tx.AETH.Syndrome == wire.NAKSequence:
			p.next = tx.PSN.Sub(peerPSN)
		}
		for psn := peerPSN; psn.Before(until); psn = psn.Add(1) {
			if p.waiting[psn] > 0 || p.failed[psn] {
				p.t.Fatalf("%v %v of PSN %d acknowledges %d, of which %d placements are under way; failed: %v",
					tx.Opcode, tx.AETH.Syndrome, tx.PSN, psn, p.waiting[psn], p.failed[psn])
			}
		}
	}
	var wcs [hostEntries]ib.WC
	for _, wc := range wcs[:p.recvCQ.Poll(wcs[:])] {
		if p.done++; wc.ID != p.done {
			p.t.Fatalf("receive %d completes (%v) where it is the turn of %d", wc.ID, wc.Status, p.done)
		}
		if p.over && wc.Status != ib.WCWRFlushErr {
			p.t.Fatalf("receive %d completes with %v behind one that has failed, want %v", wc.ID, wc.Status,
				ib.WCWRFlushErr)
		}
		p.over = p.over || wc.Status != ib.WCSuccess
	}
}
