package cma

import (
	"cmp"
	"container/list"
	"fmt"
	"net/netip"
	"slices"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/roce/cm"
	"github.com/goroce/goroce/roce/internal/crowd"
	"github.com/goroce/goroce/wire"
)

// state is the state of an ID, similar to Linux's enum rdma_cm_state.
type state uint8

const (
	stateIdle state = iota
	stateBound
	stateAddrResolved
	stateRouteResolved
	stateListening
	stateConnecting // has sent or received a request, and has no connection yet
	stateConnected
	stateOver // the connection or the attempt has ended; only Close remains
	stateClosed
	numStates
)

// String returns the state's name.
func (s state) String() string { return stateText[s] }

var stateText = [numStates]string{"idle", "bound", "address resolved", "route resolved", "listening", "connecting",
	"connected", "over", "closed"}

// defaultAckTimeout is the local ACK timeout of connections, 268 ms: long enough for a busy peer to answer.
const defaultAckTimeout = 16

// ID is an ID of the connection manager. It implements ib.CMID.
type ID struct {
	driver.Implementation

	home    *Port // that of the channel on which it was made
	several bool  // it may be at other ports of the hub, too

	// Guarded by Port.mu of home.
	port   *Port // where it is; home until it has an address
	ch     *Channel
	swept  uint64 // the last sweep of its channel that has met the ID
	init   ib.CMIDInit
	state  state
	local  netip.AddrPort
	remote netip.AddrPort
	zone   string          // of both, if they are link-local; they have none
	unread []*list.Element // the ID's events in the channel's queue

	tos           uint8
	reuse, afOnly bool
	ackTimeout    uint8
	mtu           ib.MTU // CMOptionPathMTU; 0 takes the port's
	routeMTU      ib.MTU // largest path MTU of the route to the peer; 0 if it is not known
	routing       bool   // a call of Options.Route is under way or waits for its turn
	bound         reservation
	lingers       bool // after the end of the ID its connection goes on in the state machine

	// For a connection, a resolution or a request.
	conn   cm.ID // 0 before the state machine has one, and after its end
	path   cm.Path
	params cm.ConnParams
	active bool
	cause  int    // why the peer cannot be reached, as a Linux error number; 0 if there was just no answer
	agreed bool   // params has the values of both ends: the QP may go to RTR
	dialed uint64 // order among Port.dials

	inChannel, inDials, inBacklog *list.Element // positions in lists
	inHalf                        *crowd.Entry[*ID]

	// For a request whose CMConnectRequest has not been read.
	listener *ID

	quietRequests bool // for a listener: see QuietRequests
	muted         bool // for a request of such a listener that was not accepted

	// For a listener.
	listens []listening
	backlog int
	waiting *list.List // of *ID: requests whose CMConnectRequest has not been read

	groups []netip.Addr
}

// listening is a listener at a port.
type listening struct {
	port *Port
	id   cm.ListenID
}

var _ ib.CMID = (*ID)(nil)

// complete checks the arguments of CreateID, and fills in defaults.
func complete(op string, init *ib.CMIDInit) error {
	if init.Space == 0 {
		init.Space = ib.PortSpaceTCP
		if init.Type == ib.UD {
			init.Space = ib.PortSpaceUDP
		}
	}
	if init.Type == 0 {
		init.Type = ib.RC
		if init.Space == ib.PortSpaceUDP || init.Space == ib.PortSpaceIPoIB {
			init.Type = ib.UD
		}
	}
	_, _, known := wire.SplitServiceID(init.Space.ServiceID(0))
	_, _, port := wire.SplitServiceID(init.ServiceID)
	switch {
	case init.Type != ib.RC && init.Type != ib.UC && init.Type != ib.UD:
		return driver.Refuse(op, "Type", init.Type, "RC, UC, UD", ib.ErrNotSupported)
	case !known:
		return driver.Refuse(op, "Space", init.Space, "TCP, UDP, IB, IPoIB", ib.ErrInvalid)
	case init.ServiceID>>24 == prefixIP && !port:
		return driver.Refuse(op, "ServiceID", fmt.Sprintf("%#x", init.ServiceID),
			"one outside the services of IP protocols, which name their sender in the private data; or a port of Space",
			ib.ErrInvalid)
	}
	return nil
}

// prefixIP is the upper 40 bits of the service IDs of the RDMA IP CM service (IBTA A11.2).
const prefixIP = 1

// lock takes the hub's lock for a call that is allowed in these states only. The caller ends the call with
// home.unlock, or home.mu.Unlock if the call sends no message.
func (id *ID) lock(op string, states ...state) error {
	if err := id.home.lock(op); err != nil {
		return err
	}
	if id.state == stateClosed || id.ch.closed {
		id.home.mu.Unlock()
		return fmt.Errorf("%s: CM ID: %w", op, ib.ErrClosed)
	}
	if err := id.check(op, states...); err != nil {
		id.home.mu.Unlock()
		return err
	}
	return nil
}

// check refuses a call in a state that is not in the list; an empty list allows all states.
func (id *ID) check(op string, states ...state) error {
	for _, s := range states {
		if id.state == s {
			return nil
		}
	}
	if len(states) == 0 {
		return nil
	}
	return driver.Refuse(op, "CM ID", id.state, fmt.Sprint(states), ib.ErrState)
}

// SetOption sets an option.
func (id *ID) SetOption(o ib.CMOption, value int) error {
	const op = "set CM option"
	if err := id.lock(op); err != nil {
		return err
	}
	defer id.home.mu.Unlock()
	bad := func(allowed string) error {
		return driver.Refuse(op, fmt.Sprintf("option %d", o), value, allowed, ib.ErrInvalid)
	}
	active := id.port.host.MTU()
	switch o {
	case ib.CMOptionTOS:
		if value < 0 || value > 255 {
			return bad("0 to 255")
		}
		id.tos = uint8(value)
	case ib.CMOptionReuseAddr: // in the states of Linux's rdma_set_reuseaddr
		if value == 0 || id.state == stateListening {
			if err := id.check(op, stateIdle); err != nil {
				return err
			}
		}
		id.reuse = value != 0
		id.rebind()
	case ib.CMOptionAFOnly:
		if err := id.check(op, stateIdle, stateBound); err != nil {
			return err
		}
		id.afOnly = value != 0
		id.rebind()
	case ib.CMOptionAckTimeout:
		if value < 0 || value > 31 {
			return bad("a 5-bit code, 0 to 31")
		}
		id.ackTimeout = uint8(value)
	case ib.CMOptionPathMTU:
		if mtu := ib.MTU(value); !mtu.Valid() || mtu > active {
			return bad(fmt.Sprintf("256, 512, 1024, 2048 or 4096, at most the port's %d", active))
		}
		id.mtu = ib.MTU(value)
	default:
		return driver.Refuse(op, "option", int(o), "one of ib.CMOption", ib.ErrNotSupported)
	}
	return nil
}

// kernelStates are the names of states that rdma(8) shows (Linux's enum rdma_cm_state).
var kernelStates = [numStates]string{"IDLE", "ADDR_BOUND", "ADDR_RESOLVED", "ROUTE_RESOLVED", "LISTEN", "CONNECT",
	"CONNECT", "DISCONNECT", "DESTROYING"}

// State returns the ID's state by the name that rdma(8) has for it.
func (id *ID) State() string {
	id.home.mu.Lock()
	defer id.home.mu.Unlock()
	return kernelStates[id.state]
}

// Port returns the port at which the ID is. Without an address that is the one by which its channel was opened.
func (id *ID) Port() *Port {
	id.home.mu.Lock()
	defer id.home.mu.Unlock()
	return id.port
}

// ListensAt reports whether the ID is a listener that takes requests to a port.
func (id *ID) ListensAt(p *Port) bool {
	id.home.mu.Lock()
	defer id.home.mu.Unlock()
	return slices.ContainsFunc(id.listens, func(l listening) bool { return l.port == p })
}

// QuietRequests makes a listener report CMConnectRequest and no other event of a request until the request is accepted.
// Linux does the same: ucma_event_handler drops other events while the new ID has no uid, which Accept sets.
func (id *ID) QuietRequests() {
	id.home.mu.Lock()
	defer id.home.mu.Unlock()
	id.quietRequests = true
}

// Type returns the type of the ID's QP.
func (id *ID) Type() ib.QPType { return id.init.Type }

// pathMTU returns the path MTU of the ID's connection.
func (id *ID) pathMTU() ib.MTU {
	if id.params.PathMTU != 0 {
		return id.params.PathMTU
	}
	mtu := id.port.host.MTU()
	if id.mtu != 0 {
		mtu = id.mtu
	}
	if id.routeMTU != 0 {
		mtu = min(mtu, id.routeMTU)
	}
	return mtu
}

// Query describes the ID.
func (id *ID) Query() (ib.CMIDAttr, error) {
	if err := id.lock("query CM ID"); err != nil {
		return ib.CMIDAttr{}, err
	}
	defer id.home.mu.Unlock()
	a := ib.CMIDAttr{Space: id.init.Space, Type: id.init.Type, ServiceID: id.init.ServiceID, Local: id.zoned(id.local),
		Remote: id.zoned(id.remote), PathMTU: id.pathMTU()}
	if id.path.Remote != (ib.GID{}) {
		a.AH = id.addressVector()
	}
	return a, nil
}

// addressVector returns the ID's path as an address vector. If the port has lost the local address, it names the empty
// row of the GID table that had the address.
func (id *ID) addressVector() ib.AHAttr {
	index := id.port.host.GIDIndex(id.path.Local, true)
	if index < 0 {
		index = max(id.port.host.GIDIndex(id.path.Local, false), 0)
	}
	return ib.AHAttr{DGID: id.path.Remote, SGIDIndex: index, Port: 1, TrafficClass: id.path.TrafficClass,
		HopLimit: cmp.Or(id.path.HopLimit, cm.DefaultHopLimit), FlowLabel: id.path.FlowLabel}
}

// Migrate moves the ID to another channel of its owner.
func (id *ID) Migrate(to ib.CM) error {
	const op = "migrate CM ID"
	if err := id.lock(op); err != nil {
		return err
	}
	defer id.home.mu.Unlock()
	ch, ok := to.(*Channel)
	if !ok || !slices.Equal(ch.ports, id.ch.ports) || ch.owner != id.ch.owner || ch.tenant != id.ch.tenant {
		return driver.Refuse(op, "channel", fmt.Sprintf("%T", to), "a channel of this device and owner", ib.ErrForeign)
	}
	if ch.closed {
		return fmt.Errorf("%s: event channel: %w", op, ib.ErrClosed)
	}
	id.moveTo(ch)
	for id.state == stateListening && id.ch == ch { // until another call closes or moves it
		e := id.waiting.Front()
		if e == nil || e.Value.(*ID).ch == ch {
			break
		}
		id.waiting.MoveToBack(e) // where requests on the new channel are
		e.Value.(*ID).moveTo(ch)
		id.home.breathe()
	}
	return nil
}

// moveTo moves the ID and its unread events to another channel.
func (id *ID) moveTo(ch *Channel) {
	from := id.ch
	from.ids.Remove(id.inChannel)
	h := id.home.mu.here()
	if id.inChannel = ch.ids.PushBack(id); id.swept != h.sweep {
		ch.ids.MoveToFront(id.inChannel) // where addressGone looks next
	}
	id.ch = ch
	h.touched++
	for i, e := range id.unread {
		id.unread[i] = ch.events.PushBack(from.events.Remove(e))
		ch.queued()
	}
}

// Close ends the ID.
func (id *ID) Close() error {
	p := id.home
	p.mu.Lock()
	for !id.close() {
		p.breathe()
	}
	if p.closed { // the ID had been released; only its channel still counted it
		p.mu.Unlock()
		return nil
	}
	p.unlock()
	return nil
}

// close ends the ID, and removes it from its channel. A listener with many requests takes several calls, until done.
func (id *ID) close() (done bool) {
	if id.state == stateClosed {
		return true
	}
	if !id.release() {
		return false
	}
	id.ch.drop(id, func(*ib.CMEvent) bool { return true })
	id.leaveBacklog()
	id.ch.ids.Remove(id.inChannel)
	id.ch.owner.giveGroups(len(id.groups))
	id.groups = nil
	if !id.routing { // otherwise the goroutine of ResolveRoute takes the ID off
		id.give()
	}
	id.state = stateClosed
	return true
}

// leaveBacklog ends the wait of a request on its listener.
func (id *ID) leaveBacklog() {
	if id.listener != nil {
		id.listener.waiting.Remove(id.inBacklog)
		id.listener, id.inBacklog = nil, nil
	}
}

// release ends the ID's listener, connection or request, with the REJ or DREQ to the peer, and frees its port. A
// listener with many requests takes several calls, until done. The state machine drops each request, which closes its
// ID.
func (id *ID) release() (done bool) {
	p, h := id.port, id.home.mu.here()
	h.touched++
	for len(id.listens) > 0 {
		l := id.listens[0]
		if !l.port.m.Unlisten(l.id) {
			h.touched += MaxHold
			return false
		}
		delete(l.port.listeners, l.id)
		if id.listens = id.listens[1:]; len(id.listens) == 0 {
			id.ch.owner.listeners--
		}
	}
	if conn := id.disown(); conn != 0 {
		if id.lingers = p.m.Release(p.host.Now(), conn); id.lingers {
			p.linger(id.ch.owner, conn)
		}
	}
	id.unbind()
	return true
}

// disown detaches the ID from its connection in the state machine, and returns that.
func (id *ID) disown() cm.ID {
	conn := id.conn
	id.port.dials.remove(id)
	if conn != 0 {
		delete(id.port.conns, conn)
		id.conn = 0
		id.port.hold(id.ch.owner, connections, -1)
	}
	id.ch.owner.notHalf(id)
	return conn
}

// evict ends a half-open request, with a REJ to the peer, to make room for another one.
func (id *ID) evict() {
	p := id.port
	now := p.host.Now()
	if p.m.Reject(now, id.conn, ib.RejectNoResources, nil, nil) != nil { // it has been accepted
		p.m.Release(now, id.conn)
	}
	id.disown()
	p.nudge()
	id.lapse(ib.CMEvent{Type: ib.CMUnreachable, Status: -errnoTimedOut})
}

// lapse ends an attempt or a request with event ev. A request that no application has read is closed without an event.
func (id *ID) lapse(ev ib.CMEvent) {
	if id.listener != nil {
		id.close()
		return
	}
	id.state = stateOver
	id.ch.put(id, ev)
}

// wasRead notes that an application has read a request: the end of the listener does not end it any more.
func (id *ID) wasRead() {
	if id.listener != nil {
		id.leaveBacklog()
		id.port.m.Take(id.conn)
	}
}
