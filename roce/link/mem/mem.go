// Package mem is a network in memory: links that pass runs to one another within one process, without sockets,
// privileges or a clock.
//
//	network := mem.NewNetwork()
//	a := network.Open([]ib.GID{gidA}, mem.Options{})
//	b := network.Open([]ib.GID{gidB}, mem.Options{})
//
// The owner of the destination GID can Recv at once what was passed to Send, so under virtual time one goroutine can
// step all devices in turn. The links may also be owned by different goroutines; Wait then blocks until a run arrives.
//
// Like a switch, the network has bounded memory: a run for a link whose queue is full is dropped and counted there
// (Stats.RxOverflow). Runs to unknown GIDs are counted at the sender (Stats.TxErrors). Runs to a multicast group go to
// all its members, if any, in the order in which they joined. Faults, delay and captures are in package wrap.
package mem

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/internal/group"
	"github.com/goroce/goroce/roce/link/internal/local"
	"github.com/goroce/goroce/roce/link/internal/runs"
)

// Defaults of Options.
const (
	DefaultMTU        = 4200 // enough for path MTU 4096, see ib.MTUFor
	DefaultRunFrames  = 64
	DefaultQueueRuns  = 1024
	DefaultQueueBytes = 1 << 20
	maxRunBytes       = 65000
)

// Options are the capabilities of a link. Zero fields take the defaults above.
type Options struct {
	MTU        int // most bytes of an IP packet
	RunFrames  int // most frames in a run; 1 is a link without offload
	QueueRuns  int // most runs that wait for Recv
	QueueBytes int // most bytes of frames that wait for Recv

	// Steer chooses one of n links with the same GIDs; nil stands for link.FrameShard of the first frame. Senders call
	// it.
	Steer func(r *link.Run, n int) int
}

// Network connects the links that were opened on it.
type Network struct {
	mu      sync.RWMutex          // taken before the mutex of a link
	owner   map[ib.GID][]*memLink // several for a device with several shards
	members map[ib.GID][]*memLink // of multicast groups
}

// NewNetwork returns a network without links.
func NewNetwork() *Network {
	return &Network{owner: make(map[ib.GID][]*memLink), members: make(map[ib.GID][]*memLink)}
}

// Open returns a new link that owns the GIDs. A GID that another link owned moves to the new one; with AddLocal, too.
func (n *Network) Open(gids []ib.GID, o Options) link.Link { return n.OpenShards(gids, o, 1)[0] }

// OpenShards returns several links that own the GIDs together: a run to one of the GIDs goes to one of the links
// (Options.Steer).
func (n *Network) OpenShards(gids []ib.GID, o Options, shards int) []link.Link {
	links := make([]link.Link, shards)
	owners := make([]*memLink, shards)
	for i := range links {
		owners[i] = n.newLink(gids, o)
		owners[i].device = owners
		links[i] = owners[i]
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, g := range gids {
		n.owner[g] = owners
	}
	return links
}

func (n *Network) newLink(gids []ib.GID, o Options) *memLink {
	o.MTU = or(o.MTU, DefaultMTU)
	o.RunFrames = or(o.RunFrames, DefaultRunFrames)
	o.QueueRuns = or(o.QueueRuns, DefaultQueueRuns)
	o.QueueBytes = or(o.QueueBytes, DefaultQueueBytes)
	if o.Steer == nil {
		o.Steer = func(r *link.Run, n int) int { return link.FrameShard(r.Frame(0), n) }
	}
	l := &memLink{
		net:   n,
		steer: o.Steer,
		caps: link.Caps{
			Name:      "mem",
			MTU:       o.MTU,
			Local:     append([]ib.GID(nil), gids...),
			RunFrames: o.RunFrames,
			RunBytes:  maxRunBytes,
			ID:        link.IDFree,
			Keeps:     true,
			Note:      "memory of this process",
		},
		queue:   runs.NewQueue(o.QueueRuns, o.QueueBytes),
		arrived: make(chan struct{}, 1),
		timer:   time.NewTimer(0),
	}
	l.local.Init("mem", gids)
	return l
}

func or(v, def int) int {
	if v == 0 {
		return def
	}
	return v
}

// deliver passes r to the links of its destination. It returns false if there is none.
func (n *Network) deliver(r *link.Run) bool {
	n.mu.RLock()
	defer n.mu.RUnlock()
	if group.Is(&r.Dst) {
		for _, l := range n.members[r.Dst] {
			l.deliver(r)
		}
		return true
	}
	owners := n.owner[r.Dst]
	if len(owners) == 0 {
		return false
	}
	owners[owners[0].steer(r, len(owners))].deliver(r)
	return true
}

type memLink struct {
	net    *Network
	device []*memLink // links with the same GIDs, this one included
	steer  func(*link.Run, int) int
	caps   link.Caps
	local  local.Set
	stats  link.Stats // used by the owner; RxOverflow is counted in overflow
	closed atomic.Bool
	woken  atomic.Bool
	timer  *time.Timer

	// arrived has a token when Wait has to look again.
	arrived chan struct{}

	mu       sync.Mutex // guards the fields below, which senders use
	queue    *runs.Queue
	overflow uint64
}

func (l *memLink) Caps() link.Caps { return l.caps }

func (l *memLink) Send(_ ib.Instant, out []link.Run) (int, error) {
	if l.closed.Load() {
		return 0, link.ErrClosed
	}
	for i := range out {
		l.sendRun(&out[i])
	}
	return len(out), nil
}

func (l *memLink) sendRun(r *link.Run) {
	why := runs.Refuse(&l.caps, r)
	if why == "" && !l.local.Has(&r.Src) {
		why = runs.NotOurs
	}
	if why == "" && !l.net.deliver(r) {
		why = "no link owns the destination GID"
	}
	if why != "" {
		l.stats.TxErrors += runs.Count(r)
		l.stats.LastError = why
		return
	}
	l.stats.TxRuns++
	l.stats.TxFrames += uint64(r.Frames())
	l.stats.TxBytes += uint64(len(r.Buf))
}

// deliver queues a run. The sender calls it.
func (l *memLink) deliver(r *link.Run) {
	l.mu.Lock()
	ok := l.queue.Push(r)
	if !ok {
		l.overflow += uint64(r.Frames())
	}
	l.mu.Unlock()
	if ok {
		l.signal()
	}
}

// signal makes Wait look again.
func (l *memLink) signal() {
	select {
	case l.arrived <- struct{}{}:
	default:
	}
}

func (l *memLink) Recv(_ ib.Instant, in []link.Run) (int, error) {
	if l.closed.Load() {
		return 0, link.ErrClosed
	}
	l.mu.Lock()
	n := l.queue.Pop(in)
	l.mu.Unlock()
	for i := range in[:n] {
		in[i].KnownID = true
		l.stats.RxRuns++
		l.stats.RxFrames += uint64(in[i].Frames())
		l.stats.RxBytes += uint64(len(in[i].Buf))
	}
	return n, nil
}

func (l *memLink) Keep() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue.Keep()
}

func (l *memLink) Deadline() ib.Instant { return driver.Never }

// Wait returns at once if writable is set: Send never blocks.
func (l *memLink) Wait(d time.Duration, writable bool) error {
	var timeout <-chan time.Time
	if d > 0 {
		l.timer.Reset(d)
		timeout = l.timer.C
	}
	for {
		switch {
		case l.closed.Load():
			return link.ErrClosed
		case l.woken.Swap(false) || writable || d == 0 || l.pending():
			return nil
		}
		select {
		case <-l.arrived:
		case <-timeout:
			return nil
		}
	}
}

func (l *memLink) pending() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.queue.Len() > 0
}

func (l *memLink) Wake() {
	l.woken.Store(true)
	l.signal()
}

func (l *memLink) Watch(int) error {
	return fmt.Errorf("link mem waits for no file descriptor: %w", errors.ErrUnsupported)
}

func (l *memLink) Join(g ib.GID) error {
	l.net.mu.Lock()
	defer l.net.mu.Unlock()
	if l.closed.Load() {
		return link.ErrClosed
	}
	members := l.net.members[g]
	if err := group.CheckJoin(&l.caps, l.local.List(), g, slices.Contains(members, l)); err != nil {
		return err
	}
	l.net.members[g] = append(members, l)
	return nil
}

func (l *memLink) Leave(g ib.GID) error {
	l.net.mu.Lock()
	defer l.net.mu.Unlock()
	if l.closed.Load() {
		return link.ErrClosed
	}
	if err := group.CheckLeave(&l.caps, g, slices.Contains(l.net.members[g], l)); err != nil {
		return err
	}
	l.net.leave(g, l)
	return nil
}

// disown removes a GID from l and from the links that share it. The caller holds n.mu.
func (n *Network) disown(g ib.GID, l *memLink) {
	if slices.Contains(n.owner[g], l) {
		delete(n.owner, g)
	}
}

// leave removes l from a group. The caller holds n.mu.
func (n *Network) leave(g ib.GID, l *memLink) {
	left := slices.DeleteFunc(n.members[g], func(m *memLink) bool { return m == l })
	if len(left) > 0 {
		n.members[g] = left
	} else {
		delete(n.members, g)
	}
}

func (l *memLink) AddLocal(g ib.GID) error {
	l.net.mu.Lock()
	defer l.net.mu.Unlock()
	return l.local.Add(g, func() error {
		l.net.owner[g] = l.device // for all links of the device, as in Open
		return nil
	})
}

func (l *memLink) RemoveLocal(g ib.GID) error {
	l.net.mu.Lock()
	defer l.net.mu.Unlock()
	return l.local.Remove(g, func() error {
		l.net.disown(g, l)
		return nil
	})
}

func (l *memLink) Stats() link.Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stats
	s.RxOverflow = l.overflow
	return s
}

func (l *memLink) Close() error {
	if l.closed.Swap(true) {
		return nil
	}
	l.net.mu.Lock()
	l.local.Shut()
	for _, g := range l.local.List() {
		l.net.disown(g, l)
	}
	for g := range l.net.members {
		l.net.leave(g, l)
	}
	l.net.mu.Unlock()
	l.signal()
	return nil
}
