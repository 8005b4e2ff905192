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

// The connection manager of the port: one state machine (package cm) behind QP 1
// (package engine), used by applications through event channels and IDs (ib.CM, ib.CMID) as
// Linux's rdma_ucm lets programs use the kernel's. They are those of this process
// (Device.OpenCM) and of others, behind a daemon (Device.OpenCMFor).
//
//	engine/gsi.go  QP 1: datagrams in and out, on the first shard
//	cm_port.go     the state machine with its lock, its time, its events
//	cm_owner.go    who uses it, and how much of it
//	cm_channel.go  event channels
//	cm_id.go       IDs: their life and options
//	cm_bind.go     addresses and ports
//	cm_connect.go  what the active and the passive end do
//	cm_event.go    events of the state machine become those of rdma_cm
//	cm_attr.go     what to set a QP to
//	cm_group.go    multicast groups
//
// # The lock
//
// cmPort.mu guards the state machine, and all channels and IDs. It is the innermost lock
// but for links' own: the first shard takes it with its own lock held, so who holds it
// takes no lock of shards and devices. Everything is done at once under it: an input to the state
// machine, then its events, which go into the channels' queues; messages stay in the state
// machine until the first shard takes them out, which it is woken for. So an application
// never waits for the network here, and a turn of a loop at most for a call of an application.
//
// # A connection, step by step
//
// A REQ arrives: engine.gsiQP checks the Q_Key, cmPort.Receive hands the
// datagram to the state machine, which finds the listener by service ID and address, chooses the
// first PSN, and raises Request. request makes a new ID on the listener's channel, unless the
// listener's backlog or the owner's limits are full (REJ, reason 3), and queues
// CMConnectRequest. The peer's copies of the REQ are dropped meanwhile.
//
// Accept: the application has taken its QP to RTS by then, for the peer may send as soon as
// it has the REP. The QP must be the owner's. The REP is sent again until the RTU comes.
//
// The RTU is lost: the REP goes out again, and the peer's manager answers with the RTU
// once more. If data have come meanwhile the application may say so (Notify), which
// establishes the connection at once. If nothing comes the ID gets CMUnreachable.
//
// DREQs cross: each end takes the other's as the answer to its own, sends a DREP, and goes to
// timewait with one CMDisconnected. The DREPs find timewait and are dropped.
//
// An owner ends, by its own wish or with its process: each of its IDs is released, where it
// stands. Bound and resolved IDs just go. A REQ under way is taken back (REJ, reason 4). A
// request that has no answer is rejected (28; 8 if nobody has read it), as is one that waits for its RTU.
// A connection gets its DREQ, repeated without the owner, and timewait. A listener's
// port is free. So the peer hears of it within a round trip, and nothing is left but timewait.

// cmPort is the connection manager of a device's port.
type cmPort struct {
	dev   *Device
	due   atomic.Int64 // ib.Instant: when the shard shall call next; 0 for at once
	stept atomic.Int64 // ib.Instant: the time of the last Step, with Options.Manual
	own   *CMOwner     // this process

	mu        sync.Mutex
	m         *cm.Manager
	rng       *rand.Rand // of ports
	channels  map[*CM]struct{}
	conns     map[cm.ID]*CMID // of connections, resolutions and requests that are not over
	listeners map[cm.ListenID]*CMID
	binds     map[uint64][]*CMID // who has a service ID: by a port of a port space, or itself
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
		conns: map[cm.ID]*CMID{}, listeners: map[cm.ListenID]*CMID{}, binds: map[uint64][]*CMID{}}
	p.own = d.NewCMOwner(CMLimits{})
	p.due.Store(int64(ib.Never))
	return p
}

// clock is the time of applications' calls.
func (p *cmPort) clock() ib.Instant {
	if p.dev.opts.Manual {
		return ib.Instant(p.stept.Load())
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

// unlock ends a call: it hands out events, and has the shard send what there is to send.
func (p *cmPort) unlock() {
	p.settle()
	p.mu.Unlock()
	p.dev.engine.WakeGSI()
}

// settle hands out the state machine's events, and says when it wants to be called.
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

// Deadline is when Next wants to be called (engine.GSI).
func (p *cmPort) Deadline() ib.Instant { return ib.Instant(p.due.Load()) }

// Receive takes a datagram for QP 1 (engine.GSI).
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

// Next runs timers that are due (engine.GSI), and takes out a message to send. What is from an address
// that the port does not have any more is lost; the state machine repeats it, or gives up.
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

// addressGone tells the IDs that have an address that the port has lost it.
func (p *cmPort) addressGone(g ib.GID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for ch := range p.channels {
		for id := range ch.ids {
			if id.local.IsValid() && id.local.Addr() == g.Addr() {
				ch.drop(id, func(ev *ib.CMEvent) bool { return ev.Type == ib.CMAddrChange }) // it may come and go
				ch.put(id, ib.CMEvent{Type: ib.CMAddrChange, Status: -errnoNoAddr})
			}
		}
	}
}

// close ends everything with the device. The last messages are in the state machine then.
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

// addrOf is the address of a GID, as IDs have it.
func addrOf(g ib.GID, port uint16) netip.AddrPort { return netip.AddrPortFrom(g.Addr(), port) }
