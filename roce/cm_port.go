package roce

import (
	"container/list"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/cm"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/wire"
)

// The connection manager of the port is one state machine (package cm) behind QP 1
// (package engine). Applications use it through event channels and IDs (ib.CM, ib.CMID), as
// programs use the kernel's through Linux's rdma_ucm: applications of this process
// (Device.OpenCM), and of other processes through a daemon (Device.OpenCMFor).
//
//	engine/gsi.go  QP 1: datagrams in and out, on the first shard
//	cm_port.go     the state machine with its lock, its time, its events
//	cm_owner.go    its users, and their limits
//	cm_channel.go  event channels
//	cm_id.go       IDs: their states, options and end
//	cm_bind.go     addresses and ports
//	cm_connect.go  verbs of the active and the passive end
//	cm_dial.go     attempts to connect, by peer, and their end by ICMP errors
//	cm_event.go    conversion of the state machine's events to those of rdma_cm
//	cm_attr.go     attributes for the QPs of connections
//	cm_group.go    multicast groups
//
// # The lock
//
// cmPort.mu guards the state machine, and all channels and IDs. It is the innermost lock
// except for those of links: the first shard takes it with its own lock held, so its holder
// must not take locks of shards and devices. A call holds it for an input to the state machine and
// for the resulting events, which it puts into the channels' queues. Messages stay in the state
// machine until the first shard, which the call wakes, takes them out. So an application
// never waits for the network here, and a turn of a loop waits at most for an application's call. A call that has many
// IDs to change, as the end of a channel, releases the lock between them (cmPort.breathe).
//
// # A connection, step by step
//
// A REQ arrives: engine.gsiQP checks the Q_Key, cmPort.Receive hands the
// datagram to the state machine, which finds the listener by service ID and address, chooses the
// first PSN, and raises Request. request makes a new ID on the listener's channel, and queues
// CMConnectRequest; unless the listener's backlog is full (the REQ is ignored, and the peer repeats
// it) or the owner may have no more IDs (REJ, reason 3). Until the answer, duplicates of the REQ are dropped.
//
// Accept: the application has moved its QP to RTS before, because the peer may send as soon as
// it has the REP. The QP must be the owner's. The REP is retransmitted until the RTU arrives.
//
// The RTU is lost: the REP is retransmitted, and the peer's manager answers with the RTU
// again. If data have arrived before the RTU, the application may call Notify, which
// establishes the connection at once. If nothing arrives the ID gets CMUnreachable.
//
// DREQs cross: each end takes the other's as the answer to its own, sends a DREP, and enters
// timewait with one CMDisconnected. The DREPs arrive in timewait and are dropped.
//
// An owner ends, by its own call or with its process: each of its IDs is released, in whatever
// state it is. Bound and resolved IDs need no message. A pending REQ is withdrawn (REJ, reason 4).
// A peer's request without an answer is rejected (reason 28; 8 if no application has read it), as
// is one that waits for its RTU. A connection gets a DREQ, which the state machine retransmits
// without the owner, and timewait. A listener's port becomes free. So the peer learns of the end
// within a round trip, and only timewait remains.

// cmPort is the connection manager of a device's port.
type cmPort struct {
	dev     *Device
	due     atomic.Int64 // ib.Instant: when the shard must call Next; 0 for at once
	stepped atomic.Int64 // ib.Instant: the time of the last Step, with Options.Manual
	own     *CMOwner     // account of this process

	mu        cmLock
	m         *cm.Manager
	rng       *rand.Rand      // source of dynamic ports
	channels  *list.List      // of *CM
	conns     map[cm.ID]*CMID // of connections, resolutions and requests that are not over
	listeners map[cm.ListenID]*CMID
	dials     dials
	binds     map[uint64]binding // what is reserved of each service ID
	sweep     uint64             // counts calls of addressGone
	closed    bool
}

// cmLock is the lock of a cmPort. A shard waits for it, so no call holds it for work whose amount an application
// chooses: after maxHold IDs it breathes. Tests read most.
type cmLock struct {
	sync.Mutex
	touched int // IDs that the present hold has changed
	most    int // largest touched so far
}

// maxHold is how many IDs a hold of cmPort.mu changes before others get the lock.
const maxHold = cm.MaxStep

// Unlock ends a hold.
func (l *cmLock) Unlock() {
	l.most, l.touched = max(l.most, l.touched), 0
	l.Mutex.Unlock()
}

// breathe lets others have the lock if the present hold has changed maxHold IDs. It sends the messages that have come of
// them, which therefore do not pile up. Afterwards anything may have changed, p.closed too.
func (p *cmPort) breathe() {
	if p.mu.touched < maxHold {
		return
	}
	if !p.closed {
		p.settle()
	}
	p.mu.Unlock()
	p.dev.engine.FlushGSI()
	runtime.Gosched() // whoever waits for the lock runs first
	p.mu.Lock()
}

var _ ib.CMDevice = (*Device)(nil)

// newCMPort makes the connection manager.
func newCMPort(d *Device) *cmPort {
	rng := newRand(d.opts.Seed, streamCM)
	var key [32]byte
	for i := 0; i < len(key); i += 8 {
		binary.LittleEndian.PutUint64(key[i:], rng.Uint64())
	}
	p := &cmPort{dev: d, m: cm.New(cm.Options{GUID: d.guid, Seed: key}), rng: rng, channels: list.New(),
		conns: map[cm.ID]*CMID{}, listeners: map[cm.ListenID]*CMID{}, dials: dials{to: map[ib.GID]*dialled{}},
		binds: map[uint64]binding{}}
	p.own = d.NewCMOwner(CMLimits{})
	p.due.Store(int64(ib.Never))
	return p
}

// clock returns the time for applications' calls.
func (p *cmPort) clock() ib.Instant {
	if p.dev.opts.Manual {
		return ib.Instant(p.stepped.Load())
	}
	return p.dev.engine.Now()
}

// lock takes mu for a call that needs the device; the caller unlocks it.
func (p *cmPort) lock(op string) error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return fmt.Errorf("%s on %s: %w", op, p.dev.opts.Name, ib.ErrClosed)
	}
	return nil
}

// unlock ends a call: it delivers events, and wakes the shard to send messages.
func (p *cmPort) unlock() {
	p.settle()
	p.mu.Unlock()
	p.dev.engine.WakeGSI()
}

// settle delivers the state machine's events, and sets due.
func (p *cmPort) settle() {
	var ev cm.Event
	for p.m.NextEvent(&ev) {
		p.handle(&ev)
	}
	at := p.m.Deadline()
	if p.m.Pending() || len(p.dials.lost) > 0 {
		at = 0
	}
	p.due.Store(int64(at))
}

// Deadline returns when Next must be called (engine.GSI).
func (p *cmPort) Deadline() ib.Instant { return ib.Instant(p.due.Load()) }

// Receive handles a datagram for QP 1 (engine.GSI).
func (p *cmPort) Receive(now ib.Instant, from *link.Run, payload []byte) bool {
	if p.dev.gids.Load().find(from.Dst, true) < 0 {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return true
	}
	path := cm.Path{Local: from.Dst, Remote: from.Src, TrafficClass: from.TrafficClass}
	if !from.Src.Is4() {
		path.FlowLabel = from.FlowLabel
	}
	p.m.Handle(now, path, payload)
	p.settle()
	return true
}

// Next runs timers that are due, and takes out a message to send (engine.GSI). It drops messages
// from an address that the port has lost; the state machine retransmits them, or gives up.
func (p *cmPort) Next(now ib.Instant, to *link.Run, mad *[wire.MADLen]byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.m.Deadline() <= now {
		p.m.Timeout(now)
	}
	p.endLost(now)
	defer p.settle()
	gids := p.dev.gids.Load()
	var msg cm.Message
	for p.m.NextMessage(&msg) {
		if gids.find(msg.Path.Local, true) < 0 {
			continue
		}
		*to = link.Run{Src: msg.Path.Local, Dst: msg.Path.Remote, TrafficClass: msg.Path.TrafficClass,
			FlowLabel: msg.Path.FlowLabel, HopLimit: msg.Path.HopLimit}
		if to.HopLimit == 0 {
			to.HopLimit = defaultHops
		}
		*mad = msg.MAD
		return true
	}
	return false
}

// addressGone queues CMAddrChange for the IDs with local address g, which the port has lost.
func (p *cmPort) addressGone(g ib.GID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sweep++
	var all []*CM // p.channels may change while the lock is free
	for e := p.channels.Front(); e != nil; e = e.Next() {
		all = append(all, e.Value.(*CM))
	}
	for _, ch := range all {
		for ch.sweep(g.Addr()) {
			p.breathe()
		}
	}
}

// sweep queues CMAddrChange for maxHold IDs of the channel, if they have the local address a. It reports whether there
// are more. IDs that are done go to the end of the list, where new IDs are.
func (ch *CM) sweep(a netip.Addr) (more bool) {
	for range maxHold {
		e := ch.ids.Front()
		if e == nil || e.Value.(*CMID).swept == ch.port.sweep {
			return false
		}
		id := e.Value.(*CMID)
		id.swept = ch.port.sweep
		ch.ids.MoveToBack(e)
		ch.port.mu.touched++
		if id.local.IsValid() && id.local.Addr() == a {
			ch.put(id, ib.CMEvent{Type: ib.CMAddrChange, Status: -errnoNoAddr})
		}
	}
	return true
}

// close ends all channels and IDs with the device. Their last messages are in the state machine
// then, for FlushGSI.
func (p *cmPort) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock()
	for c := p.channels.Front(); c != nil; c = c.Next() {
		ch := c.Value.(*CM)
		for e := ch.ids.Front(); e != nil; e = e.Next() {
			id := e.Value.(*CMID)
			for !id.release(now) {
			}
			ch.put(id, ib.CMEvent{Type: ib.CMDeviceRemoval})
		}
		ch.end()
	}
	p.settle()
	p.closed = true
}

// CMStats returns the counters of the port's connection manager.
func (d *Device) CMStats() cm.Stats {
	d.cm.mu.Lock()
	defer d.cm.mu.Unlock()
	return d.cm.m.Stats()
}

// addrOf returns the address of a GID with a port.
func addrOf(g ib.GID, port uint16) netip.AddrPort { return netip.AddrPortFrom(g.Addr(), port) }
