package cm

import (
	"container/list"
	"fmt"
	"strings"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/roce/internal/crowd"
	"github.com/goroce/goroce/wire"
)

// state is a state of the CM state machine (IBTA 12.9.7). IDLE, LISTEN and the states in which the specification waits
// for a QP transition do not occur: a connection is created by its first message, and QP transitions are the
// consumer's.
type state uint8

const (
	unknown     state = iota // no such connection
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
	// peerUnknown: the states in which the peer's communication ID is not known yet.
	peerUnknown stateSet = 1<<reqSent | 1<<mraReqRcvd | 1<<sidrReqSent
	// halfOpen: a request of the peer takes memory here, and the peer has not shown yet that it receives what is sent
	// to its address.
	halfOpen stateSet = 1<<reqRcvd | 1<<mraReqSent | 1<<repSent | 1<<mraRepRcvd | 1<<sidrReqRcvd
)

// conn is a connection, a resolution (SIDR, asking end) or a request that is not answered yet.
type conn struct {
	id       ID
	state    state
	released bool      // the consumer wants no further events
	listener *listener // of a request that is neither answered nor taken
	path     Path
	service  uint64     // of a SIDR_REQ; the SIDR_REP repeats it
	tid      uint64     // of the REQ or SIDR_REQ; answers to it repeat it
	giveUp   ib.Instant // deadline of all retransmissions, whatever their number

	localQPN ib.QPN
	fixedMTU bool // Connect.FixedMTU
	params   ConnParams
	remote   remoteKey // set when the peer's communication ID is known
	qp       qpKey     // set when the peer's QP is known

	last     [wire.MADLen]byte // the last message that may have to be retransmitted
	lastAttr wire.CMAttr
	sent     int // how often the last message was sent

	at    ib.Instant // deadline; see timers
	index int

	inHalf     *crowd.Entry[*conn] // in Manager.half
	inTimewait *list.Element       // in Manager.waiting
	inListener *list.Element       // in listener.waiting
}

// remoteKey identifies a connection by what its peer calls it. Linux's key (cm_insert_remote_id) has no GID; here the
// GID is a part, so that a host that claims another's GUID does not reach the other's connections.
type remoteKey struct {
	id       uint32
	guid     uint64 // 0 for SIDR, whose messages carry none
	gid      ib.GID
	datagram bool
}

// qpKey identifies a QP of a peer (Linux's cm_insert_remote_qpn; with the GID for the reason above).
type qpKey struct {
	qpn  ib.QPN
	guid uint64
	gid  ib.GID
}

// add creates a connection with a new ID, in state unknown.
func (m *Manager) add(path Path) *conn {
	c := &conn{id: m.newID(), path: path, giveUp: driver.Never, at: driver.Never, index: -1}
	m.conns[c.id] = c
	return c
}

// newID draws a random ID that is not in use. IDs must not be guessable: who knows one can end the connection.
func (m *Manager) newID() ID {
	for {
		if id := ID(m.rng.Uint32()); id != 0 && m.conns[id] == nil {
			return id
		}
	}
}

// setState changes the state of c. at is its new deadline, at which the step onExpired runs.
func (m *Manager) setState(c *conn, s state, at ib.Instant) {
	c.state = s
	if !(mayAccept | mayAnswer).has(s) {
		c.detach()
	}
	if half := halfOpen.has(s); half && c.inHalf == nil {
		c.inHalf = m.half.Add(c.path.Remote, c)
	} else if !half && c.inHalf != nil {
		m.half.Remove(c.inHalf)
		c.inHalf = nil
	}
	m.timers.set(c, at)
}

// setPeer records the peer's communication ID and QP.
func (m *Manager) setPeer(c *conn, r remoteKey, q qpKey) {
	c.remote, c.qp = r, q
	m.byRemote[r], m.byQP[q] = c, c
}

// forget removes c from all indexes.
func (m *Manager) forget(c *conn) {
	m.setState(c, unknown, driver.Never)
	m.forgetQP(c)
	if c.inTimewait != nil {
		m.waiting.Remove(c.inTimewait)
	}
	delete(m.byRemote, c.remote)
	delete(m.conns, c.id)
	if c.released {
		m.events.put(Event{Kind: Forgotten, ID: c.id})
	}
}

// forgetQP removes the peer's QP from the index, unless another connection has taken the entry over.
func (m *Manager) forgetQP(c *conn) {
	if m.byQP[c.qp] == c {
		delete(m.byQP, c.qp)
	}
}

// fail raises the last event of c and forgets c.
func (m *Manager) fail(c *conn, e Event) {
	m.raise(c, e)
	m.forget(c)
}

// get returns the connection that a consumer's call names, or an error if its state is not among may.
func (m *Manager) get(op string, id ID, may stateSet) (*conn, error) {
	c := m.conns[id]
	if c == nil || c.released {
		return nil, fmt.Errorf("%s connection %#x: %w", op, uint32(id), ErrUnknownID)
	}
	if !may.has(c.state) {
		return nil, driver.Refuse(op, fmt.Sprintf("connection %#x", uint32(id)), c.state, may.String(), ErrState)
	}
	return c, nil
}
