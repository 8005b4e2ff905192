package cm

import (
	"container/list"
	"fmt"
	"strings"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/wire"
)

// state is a state of IBTA 12.9.7. IDLE, LISTEN and the states in which the
// specification waits for a QP transition that is none of ours do not occur.
type state uint8

const (
	unknown     state = iota // no connection of ours
	reqSent                  // REQ Sent
	mraReqRcvd               // REP Wait: MRA(REQ) received
	reqRcvd                  // REQ Rcvd
	mraReqSent               // MRA(REQ) Sent
	repSent                  // REP Sent
	mraRepRcvd               // RTU Wait: MRA(REP) received
	repRcvd                  // REP Rcvd
	mraRepSent               // MRA(REP) Sent
	established              // Established
	dreqSent                 // DREQ Sent
	timewait                 // Timewait
	sidrReqSent              // SIDR REQ Sent
	sidrReqRcvd              // SIDR REQ Rcvd
	numStates
)

func (s state) String() string { return stateText[s] }

var stateText = [numStates]string{
	"unknown", "REQ SENT", "MRA(REQ) RCVD", "REQ RCVD", "MRA(REQ) SENT", "REP SENT", "MRA(REP) RCVD", "REP RCVD",
	"MRA(REP) SENT", "ESTABLISHED", "DREQ SENT", "TIMEWAIT", "SIDR REQ SENT", "SIDR REQ RCVD",
}

// stateSet is a set of states.
type stateSet uint16

func (s stateSet) has(st state) bool { return s>>st&1 != 0 }

func (s stateSet) String() string {
	var names []string
	for st := range numStates {
		if s.has(st) {
			names = append(names, st.String())
		}
	}
	return strings.Join(names, ", ")
}

// Groups of states.
const (
	datagramStates stateSet = 1<<sidrReqSent | 1<<sidrReqRcvd
	// peerUnknown: the peer's communication ID has not come yet.
	peerUnknown stateSet = 1<<reqSent | 1<<mraReqRcvd | 1<<sidrReqSent
	// halfOpen: a request of the peer takes memory here, and the peer has not
	// shown yet that it receives what we send to its address.
	halfOpen stateSet = 1<<reqRcvd | 1<<mraReqSent | 1<<repSent | 1<<mraRepRcvd | 1<<sidrReqRcvd
)

// conn is a connection, a resolution or a request.
type conn struct {
	id       ID
	state    state
	released bool // the consumer wants to hear no more
	listener ListenID
	path     Path
	service  uint64     // of a SIDR_REQ, which the SIDR_REP names
	tid      uint64     // of the REQ or SIDR_REQ, which the answers to it echo
	giveUp   ib.Instant // when tries of the last message end, whatever their number

	localQPN ib.QPN
	params   ConnParams
	remote   remoteKey // set when the peer's communication ID is known
	qp       qpKey     // set when the peer's QP is known

	last     [wire.MADLen]byte // the message of ours that may be sent again
	lastAttr wire.CMAttr
	sent     int // how often it was

	at    ib.Instant // see timers
	index int

	inHalf, inSource, inTimewait *list.Element // see limits.go
}

// remoteKey names a connection in its peer's terms. The GID is not in Linux's key
// (cm_insert_remote_id); here nobody takes another host's GUID for its own.
type remoteKey struct {
	id       uint32
	guid     uint64 // 0 with SIDR, which has none
	gid      ib.GID
	datagram bool
}

// qpKey names a QP of a peer (Linux's cm_insert_remote_qpn; the GID as above).
type qpKey struct {
	qpn  ib.QPN
	guid uint64
	gid  ib.GID
}

// add makes a connection with an ID of its own; it is in no state yet.
func (m *Manager) add(path Path) *conn {
	c := &conn{id: m.newID(), path: path, giveUp: ib.Never, at: ib.Never, index: -1}
	m.conns[c.id] = c
	return c
}

// newID draws an ID that is not in use. Who can guess IDs can end connections of others.
func (m *Manager) newID() ID {
	for {
		if id := ID(m.rng.Uint32()); id != 0 && m.conns[id] == nil {
			return id
		}
	}
}

// enter changes the state; at is when onExpired is due.
func (m *Manager) enter(c *conn, s state, at ib.Instant) {
	c.state = s
	if halfOpen.has(s) != (c.inHalf != nil) {
		m.half.move(c)
	}
	m.timers.set(c, at)
}

// knows notes who the peer of a connection is.
func (m *Manager) knows(c *conn, r remoteKey, q qpKey) {
	c.remote, c.qp = r, q
	m.byRemote[r], m.byQP[q] = c, c
}

// forget ends c without a trace.
func (m *Manager) forget(c *conn) {
	m.enter(c, unknown, ib.Never)
	m.forgetQP(c)
	if c.inTimewait != nil {
		m.waiting.Remove(c.inTimewait)
	}
	delete(m.byRemote, c.remote)
	delete(m.conns, c.id)
}

// forgetQP frees the number of the peer's QP, unless another connection has it by
// now.
func (m *Manager) forgetQP(c *conn) {
	if m.byQP[c.qp] == c {
		delete(m.byQP, c.qp)
	}
}

// fail raises the last event of c and forgets it.
func (m *Manager) fail(c *conn, e Event) {
	m.raise(c, e)
	m.forget(c)
}

// get returns the connection that an input is about.
func (m *Manager) get(op string, id ID, may stateSet) (*conn, error) {
	c := m.conns[id]
	if c == nil || c.released {
		return nil, fmt.Errorf("%s connection %#x: %w", op, uint32(id), ErrUnknownID)
	}
	if !may.has(c.state) {
		return nil, ib.Refuse(op, fmt.Sprintf("connection %#x", uint32(id)), c.state, may.String(), ErrState)
	}
	return c, nil
}
