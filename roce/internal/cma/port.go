package cma

import (
	"container/list"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/roce/cm"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/wire"
)

// Host is the device. Its methods are called with Port.mu held, but for FlushGSI.
type Host interface {
	Now() ib.Instant // the time for applications' calls
	MTU() ib.MTU     // the port's active MTU

	// GIDIndex returns the index of the row of the GID table that has g or, with held false, of an empty row that had
	// it last; -1 if there is none. HeldGIDs returns the rows that are not empty.
	GIDIndex(g ib.GID, held bool) int
	HeldGIDs() []ib.GIDEntry

	// CheckQP refuses a QP that an ID of the tenant and the type must not name: if an application could name another's
	// QP, the peer would end that QP's connection as stale (IBTA 12.9.8.3.1).
	CheckQP(op string, tenant any, num ib.QPN, typ ib.QPType) error

	WakeGSI()  // makes the first shard call Deadline, and Next if it is due
	FlushGSI() // sends what Next has, and returns then
}

// Options are what a Port is told of its host once.
type Options struct {
	Name        string
	GUID        uint64
	Rand        *rand.Rand // source of communication IDs, first PSNs and dynamic ports; used with Port.mu held
	MaxRdAtomic uint8      // READs and atomics that a QP may have in flight, each way
	HopLimit    uint8      // of messages whose path does not say it

	// Route finds the path MTU of a route, or a Linux error number; nil if there is no network to ask. It may block.
	Route func(src, dst netip.Addr, want ib.MTU) (ib.MTU, int)

	// Source returns the address from which the host's routes lead to dst; the zero value if it is not known. It
	// chooses among several devices, and is nil if there is no network to ask. It may block.
	Source func(dst netip.Addr) netip.Addr
}

// Port is the connection manager of a device's port.
type Port struct {
	host  Host
	opts  Options
	due   atomic.Int64 // ib.Instant: when the shard must call Next; 0 for at once
	alone []*Port      // the port

	mu        hubLock
	m         *cm.Manager
	conns     map[cm.ID]*ID // of connections, resolutions and requests that are not over
	lingering map[cm.ID]*Owner
	most      shares // what the port has
	used      shares // what all owners hold
	listeners map[cm.ListenID]*ID
	dials     dials
	binds     map[bindKey]binding // what is reserved of each service ID
	closed    bool
}

// New makes the connection manager of a host.
func New(h Host, o Options) *Port {
	var key [32]byte
	for i := 0; i < len(key); i += 8 {
		binary.LittleEndian.PutUint64(key[i:], o.Rand.Uint64())
	}
	mtu := func(cm.Path) ib.MTU { return h.MTU() }
	wall := func() int64 { return time.Now().UnixNano() }
	p := &Port{host: h, opts: o, m: cm.New(cm.Options{GUID: o.GUID, Seed: key, PathMTU: mtu, Wall: wall}),
		conns: map[cm.ID]*ID{}, lingering: map[cm.ID]*Owner{}, listeners: map[cm.ListenID]*ID{},
		dials: dials{to: map[ib.GID]*dialled{}}, binds: map[bindKey]binding{},
		most: shares{connections: cm.MaxConns, dynamicPorts: dynamicCount}}
	p.due.Store(int64(driver.Never))
	p.alone = []*Port{p}
	p.mu.hub.Store(&hub{ports: p.alone, channels: list.New()})
	return p
}

// lock takes mu for a call that needs the device; the caller unlocks it.
func (p *Port) lock(op string) error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return fmt.Errorf("%s on %s: %w", op, p.opts.Name, ib.ErrClosed)
	}
	return nil
}

// unlock ends a call: it delivers events, and wakes shards to send messages.
func (p *Port) unlock() {
	p.mu.here().settle()
	p.mu.Unlock()
}

// nudge has the port's shard look at its state machine, from within a call for another port.
func (p *Port) nudge() {
	p.due.Store(0)
	p.host.WakeGSI()
}

// settle delivers the state machine's events, and sets due. It reports whether that is sooner than before.
func (p *Port) settle() (sooner bool) {
	var ev cm.Event
	for p.m.NextEvent(&ev) {
		p.handle(&ev)
	}
	at := p.m.Deadline()
	if p.m.Pending() || len(p.dials.lost) > 0 {
		at = 0
	}
	return p.due.Swap(int64(at)) > int64(at)
}

// Deadline returns when Next must be called (engine.GSI).
func (p *Port) Deadline() ib.Instant { return ib.Instant(p.due.Load()) }

// Receive handles a datagram for QP 1 (engine.GSI).
func (p *Port) Receive(now ib.Instant, from *link.Run, payload []byte) bool {
	if p.host.GIDIndex(from.Dst, true) < 0 {
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

// Next runs timers that are due, and takes out a message to send (engine.GSI). It drops messages from an address that
// the port has lost; the state machine retransmits them, or gives up.
func (p *Port) Next(now ib.Instant, to *link.Run, mad *[wire.MADLen]byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.m.Deadline() <= now {
		p.m.Timeout(now)
	}
	p.endLost(now)
	defer p.settle()
	var msg cm.Message
	for p.m.NextMessage(&msg) {
		if p.host.GIDIndex(msg.Path.Local, true) < 0 {
			continue
		}
		*to = link.Run{Src: msg.Path.Local, Dst: msg.Path.Remote, TrafficClass: msg.Path.TrafficClass,
			FlowLabel: msg.Path.FlowLabel, HopLimit: msg.Path.HopLimit}
		if to.HopLimit == 0 {
			to.HopLimit = p.opts.HopLimit
		}
		*mad = msg.MAD
		return true
	}
	return false
}

// Stats returns the counters.
func (p *Port) Stats() cm.Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.m.Stats()
}

// Held returns how many connections count for the owner of a channel, for tests.
func (p *Port) Held(ch *Channel) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return ch.owner.held[p][connections]
}

// LongestHold returns the largest number of IDs that changed in one hold of the lock, for tests.
func (p *Port) LongestHold() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.here().most
}

// addrOf returns the address of a GID with a port.
func addrOf(g ib.GID, port uint16) netip.AddrPort { return netip.AddrPortFrom(g.Addr(), port) }
