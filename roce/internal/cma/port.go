package cma

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
}

// Port is the connection manager of a device's port.
type Port struct {
	host Host
	opts Options
	due  atomic.Int64 // ib.Instant: when the shard must call Next; 0 for at once

	mu        lock
	m         *cm.Manager
	channels  *list.List    // of *Channel
	conns     map[cm.ID]*ID // of connections, resolutions and requests that are not over
	lingering map[cm.ID]*Owner
	most      shares // what the port has
	used      shares // what all owners hold
	listeners map[cm.ListenID]*ID
	dials     dials
	binds     map[bindKey]binding // what is reserved of each service ID
	sweep     uint64              // counts calls of addressGone
	closed    bool
}

// lock is the lock of a Port. A shard waits for it, so no call holds it for work whose amount an application chooses:
// after MaxHold IDs it breathes. Tests read most.
type lock struct {
	sync.Mutex
	touched int // IDs that the present hold has changed
	most    int // largest touched so far
}

// MaxHold is how many IDs a hold of Port.mu changes before others get the lock.
const MaxHold = cm.MaxStep

// Unlock ends a hold.
func (l *lock) Unlock() {
	l.most, l.touched = max(l.most, l.touched), 0
	l.Mutex.Unlock()
}

// breathe lets others have the lock if the present hold has changed MaxHold IDs. It sends the messages that have come
// of them, which therefore do not pile up. Afterwards anything may have changed, p.closed too.
func (p *Port) breathe() {
	if p.mu.touched < MaxHold {
		return
	}
	if !p.closed {
		p.settle()
	}
	p.mu.Unlock()
	p.host.FlushGSI()
	runtime.Gosched() // whoever waits for the lock runs first
	p.mu.Lock()
}

// New makes the connection manager of a host.
func New(h Host, o Options) *Port {
	var key [32]byte
	for i := 0; i < len(key); i += 8 {
		binary.LittleEndian.PutUint64(key[i:], o.Rand.Uint64())
	}
	mtu := func(cm.Path) ib.MTU { return h.MTU() }
	p := &Port{host: h, opts: o, m: cm.New(cm.Options{GUID: o.GUID, Seed: key, PathMTU: mtu}), channels: list.New(),
		conns: map[cm.ID]*ID{}, lingering: map[cm.ID]*Owner{}, listeners: map[cm.ListenID]*ID{},
		dials: dials{to: map[ib.GID]*dialled{}}, binds: map[bindKey]binding{},
		most: shares{connections: cm.MaxConns, dynamicPorts: dynamicCount}}
	p.due.Store(int64(driver.Never))
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

// unlock ends a call: it delivers events, and wakes the shard to send messages.
func (p *Port) unlock() {
	p.settle()
	p.mu.Unlock()
	p.host.WakeGSI()
}

// settle delivers the state machine's events, and sets due.
func (p *Port) settle() {
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

// AddressGone queues CMAddrChange for the IDs with local address g, which the port has lost.
func (p *Port) AddressGone(g ib.GID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sweep++
	var all []*Channel // p.channels may change while the lock is free
	for e := p.channels.Front(); e != nil; e = e.Next() {
		all = append(all, e.Value.(*Channel))
	}
	for _, ch := range all {
		for ch.sweep(g.Addr()) {
			p.breathe()
		}
	}
}

// sweep queues CMAddrChange for MaxHold IDs of the channel, if they have the local address a. It reports whether there
// are more. IDs that are done go to the end of the list, where new IDs are.
func (ch *Channel) sweep(a netip.Addr) (more bool) {
	for range MaxHold {
		e := ch.ids.Front()
		if e == nil || e.Value.(*ID).swept == ch.port.sweep {
			return false
		}
		id := e.Value.(*ID)
		id.swept = ch.port.sweep
		ch.ids.MoveToBack(e)
		ch.port.mu.touched++
		if id.local.IsValid() && id.local.Addr() == a {
			ch.put(id, ib.CMEvent{Type: ib.CMAddrChange, Status: -errnoNoAddr})
		}
	}
	return true
}

// Close ends all channels and IDs with the device. Their last messages are in the state machine then, for FlushGSI.
func (p *Port) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.host.Now()
	for c := p.channels.Front(); c != nil; c = c.Next() {
		ch := c.Value.(*Channel)
		for e := ch.ids.Front(); e != nil; e = e.Next() {
			id := e.Value.(*ID)
			for !id.release(now) {
			}
			ch.put(id, ib.CMEvent{Type: ib.CMDeviceRemoval})
		}
		ch.end()
	}
	p.settle()
	p.closed = true
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
	return ch.owner.held[connections]
}

// LongestHold returns the largest number of IDs that changed in one hold of the lock, for tests.
func (p *Port) LongestHold() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.most
}

// addrOf returns the address of a GID with a port.
func addrOf(g ib.GID, port uint16) netip.AddrPort { return netip.AddrPortFrom(g.Addr(), port) }
