package neigh

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goroce/goroce/ib"
)

const (
	// refreshEvery is the interval at which routes and neighbours of the destinations in use are checked again. A
	// change may not have been reported, and the kernel, which does not see our packets, would drop neighbours that it
	// thinks are unused. A destination that was not used for a whole interval is dropped from the table.
	refreshEvery = 15 * time.Second

	// maxEntries limits the table. If it is full, new destinations have no MAC address until others are dropped.
	maxEntries = 1 << 16

	maxAsked = 256 // destinations that wait for the worker
)

// Table has the MAC addresses for packets that leave by one interface. It learns them from the kernel on first use, and
// follows changes. Lookup may be called from several goroutines at once; it neither blocks nor allocates.
type Table struct {
	netif  NetIf
	kernel *kernel
	ask    chan ib.GID   // destinations to learn
	done   chan struct{} // closed by Close
	ended  chan struct{} // closed when the worker has returned
	tell   func()
	once   sync.Once

	mu      sync.RWMutex
	entries map[ib.GID]*entry
	changed chan struct{} // closed and replaced when an entry changes
}

// entry is a destination.
type entry struct {
	hop   netip.Addr // next hop: a gateway or the destination; set by the worker
	mac   [6]byte
	known bool        // mac is valid
	asked atomic.Bool // the worker has been asked
	used  atomic.Bool // since the last refresh
}

// NewTable returns a table for an interface of this thread's network namespace. Close ends the goroutines that follow
// changes. If changed is not nil, it is called on one of them when a result of Lookup may have changed.
func NewTable(n NetIf, changed func()) (*Table, error) {
	if changed == nil {
		changed = func() {}
	}
	k, err := newKernel(n.Index)
	if err != nil {
		return nil, fmt.Errorf("neighbours of %s: %w", n.Name, err)
	}
	t := &Table{
		netif:   n,
		kernel:  k,
		tell:    changed,
		ask:     make(chan ib.GID, maxAsked),
		done:    make(chan struct{}),
		ended:   make(chan struct{}),
		entries: make(map[ib.GID]*entry),
		changed: make(chan struct{}),
	}
	go t.work()
	return t, nil
}

// Lookup returns the destination MAC address for packets to dst. If it is not known, the kernel is asked to find it,
// and the packet must wait or be dropped.
func (t *Table) Lookup(dst *ib.GID) (mac [6]byte, ok bool) {
	if t.netif.NoARP {
		return mac, true
	}
	t.mu.RLock()
	e := t.entries[*dst]
	if e != nil {
		mac, ok = e.mac, e.known
	}
	t.mu.RUnlock()
	switch {
	case e == nil:
		t.add(*dst)
	case !ok && !e.asked.Load():
		t.request(*dst, e)
	case !e.used.Load():
		e.used.Store(true)
	}
	return mac, ok
}

// add creates an entry for dst and requests it.
func (t *Table) add(dst ib.GID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.entries) >= maxEntries || t.entries[dst] != nil {
		return
	}
	e := &entry{}
	t.entries[dst] = e
	t.request(dst, e)
}

// request asks the worker for dst.
func (t *Table) request(dst ib.GID, e *entry) {
	e.used.Store(true)
	e.asked.Store(true)
	select {
	case t.ask <- dst:
	default:
		e.asked.Store(false) // the next packet will ask again
	}
}

// Resolve waits until the destination MAC address for packets to dst is known.
func (t *Table) Resolve(ctx context.Context, dst netip.Addr) error {
	gid := ib.GIDFromAddr(dst)
	for {
		t.mu.RLock()
		changed := t.changed
		t.mu.RUnlock()
		if _, ok := t.Lookup(&gid); ok {
			return nil
		}
		select {
		case <-changed:
		case <-t.done:
			return fmt.Errorf("resolve %v: %w", dst, ib.ErrClosed)
		case <-ctx.Done():
			return fmt.Errorf("resolve %v on %s: no answer; is the host up? %w", dst, t.netif.Name, ctx.Err())
		}
	}
}

// Close ends the table's goroutines.
func (t *Table) Close() {
	t.once.Do(func() { close(t.done) })
	<-t.ended
}

// work is the worker, the goroutine that calls the kernel.
func (t *Table) work() {
	defer close(t.ended)
	defer t.kernel.close()
	tick := time.NewTicker(refreshEvery)
	defer tick.Stop()
	for {
		select {
		case dst := <-t.ask:
			t.learn(dst)
		case u, ok := <-t.kernel.updates:
			if ok {
				t.update(u)
			} else {
				t.kernel.unsubscribe() // until the next refresh
			}
		case <-tick.C:
			t.kernel.subscribe()
			t.refresh()
		case <-t.done:
			return
		}
	}
}

// learn finds the next hop to dst and its MAC address, or makes the kernel find it.
func (t *Table) learn(dst ib.GID) {
	hop, err := t.kernel.nextHop(dst.Addr())
	if err != nil {
		t.forget(dst) // there is no route; the next packet may ask again
		return
	}
	t.mu.Lock()
	if e := t.entries[dst]; e != nil {
		e.hop = hop
	}
	t.mu.Unlock()
	t.kernel.resolve(hop)
	// No update will follow if the kernel knows the address already, or does not look for it because the interface is
	// down.
	looks := false
	for _, u := range t.kernel.list(hop.Is4()) {
		if u.addr == hop {
			looks = true
			t.update(u)
		}
	}
	if !looks {
		t.forget(dst)
	}
}

// refresh checks all destinations again.
func (t *Table) refresh() {
	t.mu.Lock()
	var used []ib.GID
	for dst, e := range t.entries {
		if e.used.Swap(false) {
			used = append(used, dst)
		} else {
			delete(t.entries, dst)
		}
	}
	t.mu.Unlock()
	for _, dst := range used {
		t.learn(dst)
	}
}

// update applies a change of one neighbour.
func (t *Table) update(u neighbour) {
	defer t.tell()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.entries {
		if e.hop != u.addr {
			continue
		}
		e.mac, e.known = u.mac, u.usable
		if u.usable || u.failed {
			e.asked.Store(false)
		}
	}
	close(t.changed)
	t.changed = make(chan struct{})
}

// forget removes a destination.
func (t *Table) forget(dst ib.GID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.entries, dst)
}
