package roce

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
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
// never waits for the network here, and a turn of a loop waits at most for an application's call.
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

	mu        sync.Mutex
	m         *cm.Manager
	rng       *rand.Rand // source of dynamic ports
	channels  map[*CM]struct{}
	conns     map[cm.ID]*CMID // of connections, resolutions and requests that are not over
	listeners map[cm.ListenID]*CMID
	dialing   map[*CMID]struct{} // active IDs whose peer has not answered yet
	binds     map[uint64][]*CMID // IDs that have reserved a service ID, or a port, by its service ID
	closed    bool
}

var _ ib.CMDevice = (*Device)(nil)

// newCMPort makes the connection manager.
func newCMPort(d *Device) *cmPort {
	rng := newRand(d.opts.Seed, streamCM)
	var key [32]byte
	for i := 0; i < len(key); i += 8 {
		binary.LittleEndian.PutUint64(key[i:], rng.Uint64())
	}
	p := &cmPort{dev: d, m: cm.New(cm.Options{GUID: d.guid, Seed: key}), rng: rng, channels: map[*CM]struct{}{},
		conns: map[cm.ID]*CMID{}, listeners: map[cm.ListenID]*CMID{}, dialing: map[*CMID]struct{}{},
		binds: map[uint64][]*CMID{}}
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
	if p.m.Pending() {
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
	for ch := range p.channels {
		for id := range ch.ids {
			if id.local.IsValid() && id.local.Addr() == g.Addr() {
				ch.drop(id, func(ev *ib.CMEvent) bool { return ev.Type == ib.CMAddrChange }) // one at most is queued
				ch.put(id, ib.CMEvent{Type: ib.CMAddrChange, Status: -errnoNoAddr})
			}
		}
	}
}

// Unreachable tells the device that the network cannot reach a peer, and why, as a Linux error number: ECONNREFUSED if
// its port 4791 is closed, EHOSTUNREACH, ENETUNREACH. Requests to the peer that have had no answer end with
// CMUnreachable. Links call it, with the error of an ICMP message.
func (d *Device) Unreachable(peer ib.GID, errno int) {
	p := d.cm
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.dialing) == 0 {
		return
	}
	for id := range p.dialing {
		if id.path.Remote == peer && p.m.Lost(p.clock(), id.conn) {
			id.cause = errno
		}
	}
	p.settle()
}

// close ends all channels and IDs with the device. Their last messages are in the state machine
// then, for FlushGSI.
func (p *cmPort) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock()
	for ch := range p.channels {
		for id := range ch.ids {
			id.release(now)
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
