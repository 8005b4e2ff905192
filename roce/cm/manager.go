package cm

import (
	"container/list"
	"fmt"
	"math/rand/v2"
	"net/netip"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/wire"
)

// Manager is the communication manager of a port. It is not safe for concurrent
// use.
type Manager struct {
	opts      Options
	rng       *rand.Rand
	nextList  ListenID
	listeners map[listenKey]ListenID

	conns    map[ID]*conn
	byRemote map[remoteKey]*conn
	byQP     map[qpKey]*conn // without those in timewait
	timers   timers
	half     halfOpenList
	waiting  *list.List // in timewait, the oldest first

	in       input // what is being handled
	messages queue[Message]
	events   queue[Event]
	stats    Stats
}

// listenKey is what a listener takes.
type listenKey struct {
	service  uint64
	local    netip.Addr
	datagram bool
}

// New returns a manager without connections.
func New(o Options) *Manager {
	return &Manager{
		opts: o.withDefaults(), rng: rand.New(rand.NewChaCha8(o.Seed)), listeners: map[listenKey]ListenID{},
		conns: map[ID]*conn{}, byRemote: map[remoteKey]*conn{}, byQP: map[qpKey]*conn{},
		half: newHalfOpenList(), waiting: list.New(),
	}
}

// Listen takes requests for a service ID that are sent to one local address, to any of a
// family if local is unspecified, or to any if local is zero; the narrower listener goes
// first. Requests for connections and for datagram services are apart: one service ID may
// have listeners of both kinds.
func (m *Manager) Listen(service uint64, local netip.Addr, datagram bool) (ListenID, error) {
	key := listenKey{service, local, datagram}
	if l, ok := m.listeners[key]; ok {
		return 0, ib.Refuse("listen", "service ID", fmt.Sprintf("%#x of listener %d", service, l),
			"one listener for a service ID and address; Unlisten the other", ErrInUse)
	}
	m.nextList++
	m.listeners[key] = m.nextList
	return m.nextList, nil
}

// listener finds who takes a request.
func (m *Manager) listener(service uint64, local ib.GID, datagram bool) (ListenID, bool) {
	family := netip.IPv6Unspecified()
	if local.Is4() {
		family = netip.IPv4Unspecified()
	}
	for _, at := range [...]netip.Addr{local.Addr(), family, {}} {
		if l, ok := m.listeners[listenKey{service, at, datagram}]; ok {
			return l, true
		}
	}
	return 0, false
}

// Take makes a Request independent of its listener: Unlisten leaves it alone.
func (m *Manager) Take(id ID) {
	if c := m.conns[id]; c != nil {
		c.listener = 0
	}
}

// Unlisten ends a listener and rejects what is waiting for an answer and was not taken
// (Take), each with an event Dropped.
func (m *Manager) Unlisten(now ib.Instant, l ListenID) {
	for key, id := range m.listeners {
		if id == l {
			delete(m.listeners, key)
		}
	}
	for e := m.half.all.Front(); e != nil; {
		c := e.Value.(*conn)
		e = e.Next()
		if c.listener == l && (mayAccept | mayAnswer).has(c.state) {
			m.refuse(c, wire.RejectInvalidServiceID, nil, nil)
			m.fail(c, Event{Kind: Dropped})
		}
	}
}

// Reject answers a Request, or Replied, with a REJ; a Request of a datagram
// service with a SIDR_REP of status SIDRReject, which has no room for the reason.
// info may have 72 bytes, private 148 (SIDR: 136).
func (m *Manager) Reject(now ib.Instant, id ID, reason wire.RejectReason, info, private []byte) error {
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
	m.refuse(c, reason, info, private)
	m.forget(c)
	return nil
}

// Delay answers a Request, or Replied, with a MRA: the real answer will come
// within d. It may be called again. The code for the time goes up to 2.4 hours;
// Linux waits as long as it stands for, a Manager asks again after 5 s at most and
// gets the MRA again.
func (m *Manager) Delay(now ib.Instant, id ID, d ib.Instant) error {
	c, err := m.get("delay", id, mayDelay)
	if err != nil {
		return err
	}
	mra := wire.MRA{LocalID: uint32(c.id), RemoteID: c.remote.id, ServiceTimeout: timeoutCode(d)}
	s, at := mraReqSent, now+timeoutOf(mra.ServiceTimeout)+m.opts.RequestLife
	if mayConfirm.has(c.state) {
		mra.Message, s, at = wire.MessageREP, mraRepSent, ib.Never
	}
	c.compose(wire.AttrMRA, c.tid, &mra)
	m.transmit(c)
	m.enter(c, s, at)
	return nil
}

// Disconnect sends a DREQ. private may have 220 bytes. If one is under way already,
// for the peer turned out to have forgotten the connection, nothing more is done.
func (m *Manager) Disconnect(now ib.Instant, id ID, private []byte) error {
	c, err := m.get("disconnect", id, mayDisconnect)
	if err != nil {
		return err
	}
	if err := checkLen("disconnect", "private data", private, wire.DREQPrivateLen); err != nil {
		return err
	}
	if c.state == established {
		m.hangUp(c, now, private)
	}
	return nil
}

// Release ends whatever is under way with this ID, with the message that tells
// the peer. No event will come of it any more.
func (m *Manager) Release(now ib.Instant, id ID) {
	if c := m.conns[id]; c != nil {
		m.in = input{now: now}
		m.do(c, onRelease, &m.in)
	}
}

// checkLen checks data that go into a field of a message.
func checkLen(op, what string, data []byte, most int) error {
	if len(data) <= most {
		return nil
	}
	return ib.Refuse(op, what, fmt.Sprintf("%d bytes", len(data)), fmt.Sprintf("at most %d", most), ErrPrivate)
}
