package cma

import (
	"container/list"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/cm"
)

// hub is what joined ports share: the lock, and the channels with their IDs, which may move from port to port. A port
// that was not joined has a hub of its own.
//
// A shard waits for the lock, so no call holds it for work whose amount an application chooses: after MaxHold IDs it
// breathes.
type hub struct {
	mu       sync.Mutex
	touched  int        // IDs that the present hold has changed
	most     int        // largest touched so far, for tests
	ports    []*Port    // in the order of Join; constant
	channels *list.List // of *Channel
	sweep    uint64     // counts calls of AddressGone

	sweeping sync.Mutex // held by AddressGone, of one port at a time; taken before mu
}

// MaxHold is how many IDs a hold of Port.mu changes before others get the lock.
const MaxHold = cm.MaxStep

// hubLock is the lock of a port's hub, whichever that is.
type hubLock struct{ hub atomic.Pointer[hub] }

// here returns the hub. It stays the port's while the lock is held.
func (l *hubLock) here() *hub { return l.hub.Load() }

// Lock locks the hub; if the port was joined meanwhile, its new one.
func (l *hubLock) Lock() {
	for {
		h := l.here()
		h.mu.Lock()
		if h == l.here() {
			return
		}
		h.mu.Unlock()
	}
}

// Unlock ends a hold.
func (l *hubLock) Unlock() {
	h := l.here()
	h.most, h.touched = max(h.most, h.touched), 0
	h.mu.Unlock()
}

// Join makes the ports of several devices one for the channels that are opened over all of them (Port.Open): their IDs
// are at the port whose address they have, and listeners without an address are at each. Channels that are there
// already stay over their port.
func Join(ports ...*Port) {
	h := &hub{ports: slices.Clone(ports), channels: list.New()}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range ports {
		p.mu.Lock()
		old := p.mu.here()
		for e := old.channels.Front(); e != nil; e = e.Next() {
			ch := e.Value.(*Channel)
			ch.at = h.channels.PushBack(ch)
		}
		h.sweep = max(h.sweep, old.sweep)
		p.mu.hub.Store(h)
		old.mu.Unlock()
	}
}

// settle delivers the events of the ports' state machines, and wakes the shards that have messages to send.
func (h *hub) settle() {
	for _, p := range h.ports {
		if !p.closed && p.settle() {
			p.host.WakeGSI()
		}
	}
}

// open returns the ports that are not closed.
func (h *hub) open() (list []*Port) {
	for _, p := range h.ports {
		if !p.closed {
			list = append(list, p)
		}
	}
	return list
}

// breathe lets others have the lock if the present hold has changed MaxHold IDs. It sends the messages that have come
// of them, which therefore do not pile up. Afterwards anything may have changed, p.closed too.
func (p *Port) breathe() {
	h := p.mu.here()
	if h.touched < MaxHold {
		return
	}
	h.settle()
	open := h.open()
	p.mu.Unlock()
	flush(open)
	runtime.Gosched() // whoever waits for the lock runs first
	p.mu.Lock()
}

// flush sends what the ports have to send.
func flush(ports []*Port) {
	for _, p := range ports {
		p.host.FlushGSI()
	}
}

// AddressGone queues CMAddrChange for the IDs with local address g, which the port has lost.
func (p *Port) AddressGone(g ib.GID) {
	sweeping := &p.mu.here().sweeping
	sweeping.Lock()
	defer sweeping.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.mu.here()
	h.sweep++
	var all []*Channel // h.channels may change while the lock is free
	for e := h.channels.Front(); e != nil; e = e.Next() {
		all = append(all, e.Value.(*Channel))
	}
	for _, ch := range all {
		for ch.sweep(p, g.Addr()) {
			p.breathe()
		}
	}
}

// sweep queues CMAddrChange for MaxHold IDs of the channel, if they have the local address a of the port. It reports
// whether there are more. IDs that are done go to the end of the list, where new IDs are.
func (ch *Channel) sweep(p *Port, a netip.Addr) (more bool) {
	h := p.mu.here()
	for range MaxHold {
		e := ch.ids.Front()
		if e == nil || e.Value.(*ID).swept == h.sweep {
			return false
		}
		id := e.Value.(*ID)
		id.swept = h.sweep
		ch.ids.MoveToBack(e)
		h.touched++
		if id.port == p && id.local.IsValid() && id.local.Addr() == a {
			ch.put(id, ib.CMEvent{Type: ib.CMAddrChange, Status: -errnoNoAddr})
		}
	}
	return true
}

// Close ends all channels that are open over the port, and their IDs, with the device. Their last messages are in the
// state machine then, for FlushGSI.
func (p *Port) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.mu.here()
	for c := h.channels.Front(); c != nil; c = c.Next() {
		ch := c.Value.(*Channel)
		if !slices.Contains(ch.ports, p) {
			continue
		}
		for e := ch.ids.Front(); e != nil; e = e.Next() {
			id := e.Value.(*ID)
			for !id.release() {
			}
			ch.put(id, ib.CMEvent{Type: ib.CMDeviceRemoval})
		}
		ch.end()
	}
	h.settle()
	p.closed = true
}
