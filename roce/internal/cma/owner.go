package cma

import (
	"container/list"
	"fmt"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/roce/cm"
	"github.com/goroce/goroce/roce/internal/crowd"
)

// Limits bound the objects of an owner in a port's connection manager. Zero fields take the defaults.
type Limits struct {
	IDs       int // of all kinds, connections included (default 65,536)
	Listeners int // IDs that listen (default 4,096)
	HalfOpen  int // peers' requests in the handshake; a new one replaces one of the busiest peer (default 4,096)
	Backlog   int // unread requests of one listener (default 4,096); others are ignored, and peers repeat them

	// Fair owners hold as many connections, and dynamic ports, as stay free for others of the port.
	Fair bool

	// Charge is told of each change, in bytes, of the memory that the owner's IDs use, unread events included. An error
	// refuses an increase. It is called with locks held: it must neither block nor call the device. nil allows all.
	Charge func(bytes int64) error

	// MayBind returns an error if the owner may not bind a port; nil allows all ports. It is called with locks held: it
	// must neither block nor call the device.
	MayBind func(ib.PortSpace, uint16) error
}

// Defaults of Limits.
const (
	defaultIDs       = 1 << 16
	defaultListeners = 1 << 12
	defaultHalfOpen  = 1 << 12
	defaultBacklog   = 1 << 12
)

// What an ID uses, with a few unread events, and with a connection in the state machine or its listener there; what
// each further port adds, over which it may be; and what a membership in a group adds, with its event. Measured
// (TestAccounts of roce/daemon/server) and rounded up.
const (
	idHeap    = 3 << 10
	portHeap  = 1 << 10
	connHeap  = 1 << 10 // the part of idHeap that is kept for a connection without an ID
	groupHeap = 1 << 10
)

// Owner is an account: it counts the objects of all channels that were opened for it.
type Owner struct {
	routes chan struct{} // has an item for each running call of Options.Route

	// Guarded by Port.mu.
	limits    Limits
	ids       int
	listeners int
	lingering int // connections without an ID
	held      map[*Port]shares
	ports     map[portService]int // of its IDs, how many have each dynamic port
	half      crowd.List[*ID]     // half-open requests of peers
}

// portService is a dynamic port in the port space of a service ID, at a device's port.
type portService struct {
	port    *Port
	service uint64
}

// NewOwner makes an account for a user or a process, of one port or of ports that are joined.
func NewOwner(l Limits) *Owner {
	return &Owner{routes: make(chan struct{}, maxRoutes), limits: l.orDefaults(), held: map[*Port]shares{},
		ports: map[portService]int{}}
}

// SetLimits changes the limits of an account. An account above the new limits keeps its objects, but gets no more;
// listeners keep their backlogs.
func (p *Port) SetLimits(o *Owner, l Limits) {
	p.mu.Lock()
	defer p.mu.Unlock()
	o.limits = l.orDefaults()
}

func (l Limits) orDefaults() Limits {
	for _, f := range []struct {
		v   *int
		def int
	}{{&l.IDs, defaultIDs}, {&l.Listeners, defaultListeners}, {&l.HalfOpen, defaultHalfOpen},
		{&l.Backlog, defaultBacklog}} {
		if *f.v <= 0 {
			*f.v = f.def
		}
	}
	return l
}

// Open opens an event channel on the account of o. Its IDs may name QPs of the tenant only (Host.CheckQP). With all it
// is over all ports that p was joined with, else over p.
func (p *Port) Open(o *Owner, tenant any, all bool) (*Channel, error) {
	if err := p.lock("open connection manager"); err != nil {
		return nil, err
	}
	defer p.mu.Unlock()
	ch := &Channel{port: p, ports: p.alone, owner: o, tenant: tenant, ids: list.New(), events: list.New(),
		ready: make(chan struct{}, 1), done: make(chan struct{})}
	if all {
		ch.ports = p.mu.here().ports
	}
	ch.at = p.mu.here().channels.PushBack(ch)
	return ch, nil
}

// share is what owners share of a port.
type share uint8

const (
	connections share = iota // in the state machine, those included that end without their ID
	dynamicPorts
	numShares
)

var shareText = [numShares]string{"connections", "dynamic ports"}

// shares are amounts of each.
type shares [numShares]int

// take counts one more for an owner, if there is room.
func (p *Port) take(op string, o *Owner, what share) error {
	err := p.room(op, o, what)
	if err == nil {
		p.hold(o, what, 1)
	}
	return err
}

// room returns an error unless an owner may have one more. A Fair owner may only if as many stay free for others as it
// holds then.
func (p *Port) room(op string, o *Owner, what share) error {
	free := p.most[what] - p.used[what]
	if held := o.held[p][what]; free <= 0 || o.limits.Fair && held >= free {
		return driver.Refuse(op, shareText[what]+" of one owner", held+1,
			fmt.Sprintf("%d: of the port's %d, an owner may hold as many as stay free for others; close some first",
				free, p.most[what]), ib.ErrLimit)
	}
	return nil
}

// hold counts n more for an owner, whatever it holds, or -n less.
func (p *Port) hold(o *Owner, what share, n int) {
	p.used[what] += n
	held := o.held[p]
	held[what] += n
	if o.held[p] = held; held == (shares{}) {
		delete(o.held, p)
	}
}

// charge tells the account's owner of more memory, which it may refuse, or less.
func (o *Owner) charge(bytes int64) error {
	if o.limits.Charge == nil {
		return nil
	}
	return o.limits.Charge(bytes)
}

// heap is what an ID of the channel uses.
func (ch *Channel) heap() int64 { return idHeap + portHeap*int64(len(ch.ports)-1) }

// takeID counts one more ID, of so many bytes, if the owner may have it.
func (o *Owner) takeID(op string, bytes int64) error {
	if o.ids+o.lingering >= o.limits.IDs {
		return overLimit(op, "IDs", o.limits.IDs)
	}
	if err := o.charge(bytes); err != nil {
		return err
	}
	o.ids++
	return nil
}

// give undoes takeID. The connection that the ID had may linger.
func (id *ID) give() {
	o := id.ch.owner
	o.ids--
	if id.lingers {
		_ = o.charge(connHeap - id.ch.heap())
	} else {
		_ = o.charge(-id.ch.heap())
	}
}

// linger counts a connection that ends without its ID, until over: one that waits for the DREP, or in timewait.
func (p *Port) linger(o *Owner, conn cm.ID) {
	p.lingering[conn] = o
	o.lingering++
	p.hold(o, connections, 1)
}

// over notes the end of a connection that lingered.
func (p *Port) over(conn cm.ID) {
	o := p.lingering[conn]
	delete(p.lingering, conn)
	o.lingering--
	p.hold(o, connections, -1)
	_ = o.charge(-connHeap)
}

// takeGroup counts one more membership of an ID, if the owner may have it.
func (o *Owner) takeGroup() error { return o.charge(groupHeap) }

// giveGroups undoes takeGroup n times.
func (o *Owner) giveGroups(n int) { _ = o.charge(-groupHeap * int64(n)) }

// toHalf counts a peer's request as half open. At the limit it evicts the oldest one of the peer that has the most.
func (o *Owner) toHalf(id *ID) {
	if o.half.Len() >= o.limits.HalfOpen {
		o.half.Crowded().Value.evict()
	}
	id.inHalf = o.half.Add(id.path.Remote, id)
}

// notHalf removes a request from the half-open ones, if it is one.
func (o *Owner) notHalf(id *ID) {
	if id.inHalf != nil {
		o.half.Remove(id.inHalf)
		id.inHalf = nil
	}
}

// overLimit is the error of one object more than a limit.
func overLimit(op, what string, limit int) error {
	return driver.Refuse(op, "number of "+what, limit+1, fmt.Sprintf("at most %d; free some first", limit), ib.ErrLimit)
}
