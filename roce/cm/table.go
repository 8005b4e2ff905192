package cm

// column is a column of the table: something that may happen to a connection. The first nine are messages, in the order
// of their attribute numbers.
type column uint8

const (
	onREQ column = iota
	onMRA
	onREJ
	onREP
	onRTU
	onDREQ
	onDREP
	onSIDRREQ
	onSIDRREP
	onStale      // a REQ or REP of another connection names the peer's QP, so the peer has forgotten this connection
	onExpired    // the deadline has passed
	onUnanswered // the deadline has passed, and the message was sent for the last time
	onLost       // the network says that the peer cannot be reached
	onRelease    // the consumer releases the ID
	numColumns
)

// step handles one cell of the table. c is nil in the row unknown.
type step func(m *Manager, c *conn, in *input)

// table is the state machine: the step for each state of a connection and each thing that may happen to it (IBTA
// 12.9.7, and Linux's cm.c where that says nothing). Messages find their connection like this: a REQ by GUID, GID and
// communication ID of its sender; a message with both communication IDs by both; REP, REJ and SIDR_REP by our ID alone
// if the peer's is not known yet. The row unknown is for messages that belong to no connection.
//
// An empty cell means that the message is not expected in this state: it is counted and ignored. A step that answers a
// repeated message sends the earlier answer again and does nothing else.
var table [numStates][numColumns]step

func init() { // not an initializer: the steps refer to the table
	table = [numStates][numColumns]step{
		unknown: {onREQ: handleREQ, onMRA: orphan, onREJ: orphan, onREP: orphanREP, onRTU: orphan, onDREQ: orphanDREQ,
			onDREP: orphan, onSIDRREQ: handleSIDRREQ, onSIDRREP: orphan},

		// Active end.
		reqSent: {onMRA: handleMRA, onREJ: handleREJ, onREP: handleREP,
			onExpired: resend, onUnanswered: noREP, onLost: lost, onRelease: abandon},
		mraReqRcvd: {onMRA: duplicate, onREJ: handleREJ, onREP: handleREP,
			onExpired: resend, onUnanswered: noREP, onRelease: abandon},
		repRcvd: {onREJ: handleREJ, onREP: duplicate,
			onStale: replaced, onRelease: decline},
		mraRepSent: {onREJ: handleREJ, onREP: repeat,
			onStale: replaced, onRelease: decline},

		// Passive end.
		reqRcvd: {onREQ: duplicate, onREJ: withdrawn,
			onStale: superseded, onExpired: lapsed, onRelease: decline},
		mraReqSent: {onREQ: repeat, onREJ: withdrawn,
			onStale: superseded, onExpired: lapsed, onRelease: decline},
		repSent: {onREQ: repeat, onMRA: handleMRA, onREJ: handleREJ, onRTU: handleRTU, onDREQ: disconnectBeforeRTU,
			onStale: replaced, onExpired: resend, onUnanswered: noRTU, onRelease: decline},
		mraRepRcvd: {onREQ: duplicate, onMRA: duplicate, onREJ: handleREJ, onRTU: handleRTU,
			onDREQ: disconnectBeforeRTU, onStale: replaced, onExpired: resend, onUnanswered: noRTU, onRelease: decline},

		// Either end.
		established: {onREQ: duplicate, onREJ: rejectedEstablished, onREP: repeatRTU, onRTU: duplicate,
			onDREQ: handleDisconnect, onStale: disconnectStale, onRelease: releaseEstablished},
		dreqSent: {onREQ: duplicate, onREJ: rejectedEstablished, onRTU: duplicate, onDREQ: handleDisconnect,
			onDREP: handleDisconnect, onExpired: resend, onUnanswered: noDREP, onRelease: markReleased},
		timewait: {onREQ: refuseStale, onRTU: duplicate, onDREQ: repeatDREP, onDREP: duplicate,
			onExpired: exitTimewait, onRelease: markReleased},

		// Datagram services.
		sidrReqSent: {onSIDRREP: handleSIDRREP,
			onExpired: resend, onUnanswered: noSIDRREP, onLost: noSIDRREP, onRelease: drop},
		sidrReqRcvd: {onSIDRREQ: duplicate,
			onExpired: lapsed, onRelease: decline},
	}
}

// The states in which the consumer may call each method. Release is allowed in all of them.
const (
	mayAccept      stateSet = 1<<reqRcvd | 1<<mraReqSent
	mayConfirm     stateSet = 1<<repRcvd | 1<<mraRepSent
	mayAnswer      stateSet = 1 << sidrReqRcvd
	mayReject               = mayAccept | mayConfirm | mayAnswer
	mayDelay                = mayAccept | mayConfirm
	mayDisconnect  stateSet = 1<<established | 1<<dreqSent
	mayDataArrived stateSet = 1<<repSent | 1<<mraRepRcvd
)

// dispatch runs the step for what has happened to c.
func (m *Manager) dispatch(c *conn, col column, in *input) {
	s := unknown
	if c != nil {
		s = c.state
	}
	if f := table[s][col]; f != nil {
		f(m, c, in)
	} else if col <= onSIDRREP {
		m.stats.Ignored++
	}
}

func duplicate(m *Manager, _ *conn, _ *input) { m.stats.Duplicates++ }
func orphan(m *Manager, _ *conn, _ *input)    { m.stats.UnknownID++ }

// repeat answers a repeated message with the message that answered it the first time.
func repeat(m *Manager, c *conn, _ *input) {
	m.stats.Duplicates++
	m.transmit(c)
}
