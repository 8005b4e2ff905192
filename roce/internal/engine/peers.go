package engine

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/qp"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/wire"
)

// A device says hello to a destination when a packet to or from there was lost, and not before: over a good network a
// strict peer sees nothing of it. Who answers, or says hello itself, takes SACKs and sends them (package qp, sack.go).
// An address has one owner of UDP port 4791, who has QP 1, so the answer holds for all QPs there.
const (
	helloTries = 3
	helloWait  = ib.Instant(100_000_000) // for an answer; twice as long each time
	// How long what is known of a destination holds. One that does not answer is asked again for a later loss.
	announcedFor = ib.Instant(600_000_000_000)
	strictFor    = ib.Instant(60_000_000_000)
	peersMost    = 1024 // destinations
	repliesMost  = 64   // answers that wait to be sent
)

// peerTable has what is known of destinations. All shards ask; the first one sends and receives.
type peerTable struct {
	changes atomic.Uint32 // how often an answer has come; 0 on most devices
	due     atomic.Int64  // when the first shard must call next

	mu      sync.Mutex
	rand    *rand.Rand
	known   map[ib.GID]*peerState
	replies []hello
}

// peerState is a destination that was asked, or has said hello.
type peerState struct {
	announced bool
	refuted   bool       // it has announced itself, and does not do what it said
	until     ib.Instant // what is known holds
	tries     int        // hellos that may still be sent
	at        ib.Instant // the next one is due
	ask       hello
}

// hello is a Hello to be sent.
type hello struct {
	to   link.Run // addresses
	body wire.Hello
}

func (t *peerTable) init(seed *rand.Rand) {
	t.rand, t.known = rand.New(rand.NewPCG(seed.Uint64(), seed.Uint64())), map[ib.GID]*peerState{}
	t.due.Store(int64(driver.Never))
}

// ask begins to ask a destination, unless it is known or was asked. It reports whether the first shard is to be woken.
func (t *peerTable) ask(now ib.Instant, path *link.Run) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := t.known[path.Dst]; p != nil && now < p.until || !t.room(now) {
		return false
	}
	to := link.Run{Src: path.Src, Dst: path.Dst, HopLimit: path.HopLimit}
	t.known[path.Dst] = &peerState{until: now + strictFor, tries: helloTries, at: now,
		ask: hello{to, wire.Hello{TID: t.rand.Uint64(), Version: wire.HelloVersion}}}
	t.due.Store(int64(now))
	return true
}

// room makes room for one destination more, and reports whether there is.
func (t *peerTable) room(now ib.Instant) bool {
	if len(t.known) < peersMost {
		return true
	}
	for gid, p := range t.known {
		if p.until <= now {
			delete(t.known, gid)
		}
	}
	return len(t.known) < peersMost
}

// receive handles a datagram to QP 1, and reports whether it was a hello.
func (t *peerTable) receive(now ib.Instant, run *link.Run, payload []byte) bool {
	var h wire.Hello
	if len(payload) != wire.MADLen || isMulticast(&run.Dst) || !h.Decode((*[wire.MADLen]byte)(payload)) {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.known[run.Src]
	switch {
	case h.Answer && (p == nil || p.tries == 0 && p.announced || h.TID != p.ask.body.TID):
		return true // to nothing that was asked
	case p != nil && p.refuted && now < p.until:
		return true
	case h.Answer:
		p.tries = 0
	case len(t.replies) == repliesMost || p == nil && !t.room(now):
		return true
	default:
		if p == nil {
			p = &peerState{}
			t.known[run.Src] = p
		}
		to := link.Run{Src: run.Dst, Dst: run.Src, HopLimit: 64}
		t.replies = append(t.replies, hello{to, wire.Hello{Answer: true, TID: h.TID, Version: wire.HelloVersion}})
		t.due.Store(0)
	}
	if announced := h.Status == 0 && h.Version >= 1; announced != p.announced {
		p.announced = announced
		t.changes.Add(1)
	}
	p.until, p.refuted = now+strictFor, false
	if p.announced {
		p.until = now + announcedFor
	}
	return true
}

// next stores the next hello to send, and reports whether there is one.
func (t *peerTable) next(now ib.Instant, to *link.Run, mad *[wire.MADLen]byte) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.replies) > 0 {
		*to = t.replies[0].to
		t.replies[0].body.Put(mad)
		t.replies = append(t.replies[:0], t.replies[1:]...)
		return true
	}
	due, found := driver.Never, false
	for _, p := range t.known {
		if p.tries > 0 && p.at <= now && !found {
			*to, found = p.ask.to, true
			p.ask.body.Put(mad)
			p.at = now + helloWait<<(helloTries-p.tries)
			p.tries--
		}
		if p.tries > 0 {
			due = min(due, p.at)
		}
	}
	t.due.Store(int64(due))
	return found
}

// announced reports whether a destination has announced itself.
func (t *peerTable) announced(dst ib.GID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.known[dst]
	return p != nil && p.announced
}

// refuted forgets that a destination has announced itself: it does not do what it said.
func (t *peerTable) refuted(now ib.Instant, dst ib.GID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := t.known[dst]; p != nil {
		*p = peerState{until: now + strictFor, refuted: true}
		t.changes.Add(1)
	}
}

// meet asks a destination when its QPs want to know what it is, and tells them.
func (s *Shard) meet(f *flow, path *link.Run) {
	t := &s.engine.peers
	if n := t.changes.Load(); n != f.peersSeen {
		f.peersSeen = n
		on := t.announced(f.dst)
		f.account.SetSelective(on)
		if f.ecn = wire.NotECT; on {
			f.ecn = wire.ECT0 // it answers marks with CNPs
		}
	}
	path.TrafficClass |= uint8(f.ecn)
	switch f.account.TakeNews() {
	case qp.PeerWanted:
		if t.ask(s.now, path) {
			s.engine.WakeGSI()
		}
	case qp.PeerSilent:
		t.refuted(s.now, f.dst)
	}
}
