package cm

import (
	"container/list"
	"fmt"
	"math/rand/v2"
	"net/netip"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/roce/internal/crowd"
	"github.com/goroce/goroce/wire"
)

// Manager is the communication manager of a port. It is not safe for concurrent use.
type Manager struct {
	opts      Options
	rng       *rand.Rand
	nextList  ListenID
	listeners map[listenKey]*listener
	byListen  map[ListenID]*listener

	conns    map[ID]*conn
	byRemote map[remoteKey]*conn
	byQP     map[qpKey]*conn // without those in timewait
	timers   timers
	half     crowd.List[*conn] // half-open connections
	waiting  *list.List        // connections in timewait, oldest first
	answers  answers
	echoes   []echoSession

	in       input // what is being handled; kept here to save allocations
	messages queue[Message]
	events   queue[Event]
	stats    Stats
}

// listenKey is what a listener occupies.
type listenKey struct {
	service  uint64
	local    netip.Addr
	datagram bool
}

// listener is a listener with the requests that Unlisten rejects: those that are neither answered nor taken.
type listener struct {
	id      ListenID
	key     listenKey
	waiting *list.List // of *conn, the oldest first
}

// New returns a manager without connections.
func New(o Options) *Manager {
	return &Manager{
		opts: o.withDefaults(), rng: rand.New(rand.NewChaCha8(o.Seed)),
		listeners: map[listenKey]*listener{}, byListen: map[ListenID]*listener{},
		conns: map[ID]*conn{}, byRemote: map[remoteKey]*conn{}, byQP: map[qpKey]*conn{},
		waiting: list.New(), answers: answers{index: map[requestKey]int{}},
	}
}

// Listen accepts requests for a service ID that are sent to one local address. If local is unspecified, that means any
// address of its family; if local is zero, any address at all. The listener with the most specific address gets a
// request. Listeners for connections and for datagrams are separate.
func (m *Manager) Listen(service uint64, local netip.Addr, datagram bool) (ListenID, error) {
	key := listenKey{service, local, datagram}
	if l, ok := m.listeners[key]; ok {
		return 0, driver.Refuse("listen", "service ID", fmt.Sprintf("%#x of listener %d", service, l.id),
			"one listener for a service ID and address; Unlisten the other", ErrInUse)
	}
	m.nextList++
	l := &listener{id: m.nextList, key: key, waiting: list.New()}
	m.listeners[key], m.byListen[l.id] = l, l
	return l.id, nil
}

// listener returns the listener for a request; nil if there is none.
func (m *Manager) listener(service uint64, local ib.GID, datagram bool) *listener {
	family := netip.IPv6Unspecified()
	if local.Is4() {
		family = netip.IPv4Unspecified()
	}
	for _, at := range [...]netip.Addr{local.Addr(), family, {}} {
		if l := m.listeners[listenKey{service, at, datagram}]; l != nil {
			return l
		}
	}
	return nil
}

// Take detaches a Request from its listener, so that Unlisten leaves it alone.
func (m *Manager) Take(id ID) {
	if c := m.conns[id]; c != nil {
		c.detach()
	}
}

// attach makes a new request wait on its listener.
func (c *conn) attach(l *listener) {
	c.listener, c.inListener = l, l.waiting.PushBack(c)
}

// detach removes a request from those that wait on its listener.
func (c *conn) detach() {
	if c.listener != nil {
		c.listener.waiting.Remove(c.inListener)
		c.listener, c.inListener = nil, nil
	}
}

// Unlisten ends a listener. It rejects the requests that are neither answered nor taken (Take), as the consumer's
// refusal (Linux's cm_destroy_id), and raises Dropped for each. One call rejects MaxStep requests at most; Unlisten is
// called until it returns true.
func (m *Manager) Unlisten(id ListenID) (done bool) {
	l := m.byListen[id]
	if l == nil {
		return true
	}
	delete(m.listeners, l.key)
	for n := 0; l.waiting.Len() > 0; n++ {
		if n == MaxStep {
			return false
		}
		c := l.waiting.Front().Value.(*conn)
		m.reject(c, ib.RejectConsumer, nil, nil)
		m.fail(c, Event{Kind: Dropped})
	}
	delete(m.byListen, id)
	return true
}

// Reject answers a Request, or Replied, with a REJ (IBTA 12.6.7); a Request of a datagram service with a SIDR_REP of
// status SIDRReject, which cannot carry the reason. Copies of the request get the same answer again. info may have 72
// bytes, private 148 (SIDR: 136).
func (m *Manager) Reject(now ib.Instant, id ID, reason ib.RejectReason, info, private []byte) error {
	c, err := m.get("reject", id, mayReject)
	if err != nil {
		return err
	}
	most := wire.REJPrivateLen
	if c.state == sidrReqRcvd {
		most = wire.SIDRREPPrivateLen
	}
	if err := checkLen("reject", "info", info, wire.REJInfoLen); err != nil {
		return err
	}
	if err := checkLen("reject", "private data", private, most); err != nil {
		return err
	}
	m.reject(c, reason, info, private)
	m.forget(c)
	return nil
}

// Ignore forgets a Request without an answer, as Linux's cm_destroy_id does if the consumer's handler returns -ENOMEM.
// The sender repeats the request, and the copy raises Request again.
func (m *Manager) Ignore(id ID) error {
	c, err := m.get("ignore", id, mayReject)
	if err != nil {
		return err
	}
	m.stats.BacklogFull++
	m.forget(c)
	return nil
}

// Delay answers a Request, or Replied, with a MRA (IBTA 12.6.6): the answer will come within d, at most 2.4 hours.
// Delay may be called again. A peer that is Linux waits for d. One that is a Manager waits for at most 5 s and a
// retransmission interval; then it repeats its message, and is sent the MRA again.
func (m *Manager) Delay(now ib.Instant, id ID, d ib.Instant) error {
	c, err := m.get("delay", id, mayDelay)
	if err != nil {
		return err
	}
	mra := wire.MRA{LocalID: uint32(c.id), RemoteID: c.remote.id, ServiceTimeout: timeoutCode(d)}
	s, at := mraReqSent, now+timeoutOf(mra.ServiceTimeout)+m.opts.RequestLife
	if mayConfirm.has(c.state) {
		mra.Message, s, at = wire.MessageREP, mraRepSent, driver.Never
	}
	c.compose(wire.AttrMRA, c.tid, &mra)
	m.transmit(c)
	m.setState(c, s, at)
	return nil
}

// Disconnect sends a DREQ (IBTA 12.6.10). private may have 220 bytes. Nothing happens if a DREQ is under way already,
// which is so when the peer turned out to have forgotten the connection.
func (m *Manager) Disconnect(now ib.Instant, id ID, private []byte) error {
	c, err := m.get("disconnect", id, mayDisconnect)
	if err != nil {
		return err
	}
	if err := checkLen("disconnect", "private data", private, wire.DREQPrivateLen); err != nil {
		return err
	}
	if c.state == established {
		m.sendDREQ(c, now, private)
	}
	return nil
}

// Release ends whatever is under way with this ID, and tells the peer by the message that the state calls for. If the
// connection lingers, because it waits for the DREP or for the end of timewait, Release returns true, and Forgotten is
// the only further event for the ID.
func (m *Manager) Release(now ib.Instant, id ID) (lingers bool) {
	c := m.conns[id]
	if c == nil {
		return false
	}
	m.in = input{now: now}
	m.dispatch(c, onRelease, &m.in)
	return m.conns[id] == c
}

// Lost says that the network cannot reach the peer of a connection (ICMP). A request that has had no answer at all
// ends: Unreachable, and Lost returns true. Anything else goes on, because anybody can forge such a message.
func (m *Manager) Lost(now ib.Instant, id ID) bool {
	c := m.conns[id]
	if c == nil {
		return false
	}
	m.in = input{now: now}
	m.dispatch(c, onLost, &m.in)
	return m.conns[id] == nil
}

// checkLen checks the length of data for a field of a message.
func checkLen(op, what string, data []byte, most int) error {
	if len(data) <= most {
		return nil
	}
	return driver.Refuse(op, what, fmt.Sprintf("%d bytes", len(data)), fmt.Sprintf("at most %d", most), ErrPrivate)
}
