package cm

// A column of the table: something that may happen to a connection. The first
// nine are messages, in the order of their attributes.
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
	onStale      // a REQ or REP for something else names the peer's QP: the peer forgot this
	onExpired    // the deadline is over
	onUnanswered // it was the last try
	onRelease    // the consumer lets go
	numColumns
)

// step is what is done. c is nil in the row unknown.
type step func(m *Manager, c *conn, in *input)

// table is the protocol: what a connection does, by its state, with what happens
// to it (IBTA 12.9.7, and Linux's cm.c where that is silent). A REQ belongs to the
// connection that its sender, GUID and communication ID name, a message that has
// both IDs to the one that has both; REP, REJ and SIDR_REP may come before the
// peer's ID is known. What belongs to no connection is in the first row.
//
// Where there is nothing, the state does not take the message: it is ignored and
// counted. Steps that repeat something do no more, for that was what got lost.
var table [numStates][numColumns]step

func init() { // the steps use the table in their turn
	table = [numStates][numColumns]step{
		unknown: {onREQ: request, onMRA: orphan, onREJ: orphan, onREP: orphanREP, onRTU: orphan, onDREQ: orphanDREQ, onDREP: orphan,
			onSIDRREQ: resolve, onSIDRREP: orphan},

		// Active side.
		reqSent: {onMRA: longer, onREJ: rejected, onREP: replied,
			onExpired: tryAgain, onUnanswered: noREP, onRelease: abandon},
		mraReqRcvd: {onMRA: duplicate, onREJ: rejected, onREP: replied,
			onExpired: tryAgain, onUnanswered: noREP, onRelease: abandon},
		repRcvd: {onREJ: rejected, onREP: duplicate,
			onStale: replaced, onRelease: decline},
		mraRepSent: {onREJ: rejected, onREP: repeat,
			onStale: replaced, onRelease: decline},

		// Passive side.
		reqRcvd: {onREQ: duplicate, onREJ: withdrawn,
			onStale: superseded, onExpired: lapsed, onRelease: decline},
		mraReqSent: {onREQ: repeat, onREJ: withdrawn,
			onStale: superseded, onExpired: lapsed, onRelease: decline},
		repSent: {onREQ: repeat, onMRA: longer, onREJ: rejected, onRTU: ready, onDREQ: readyAndGone,
			onStale: replaced, onExpired: tryAgain, onUnanswered: noRTU, onRelease: decline},
		mraRepRcvd: {onREQ: duplicate, onMRA: duplicate, onREJ: rejected, onRTU: ready, onDREQ: readyAndGone,
			onStale: replaced, onExpired: tryAgain, onUnanswered: noRTU, onRelease: decline},

		// Either.
		established: {onREQ: duplicate, onREJ: lost, onREP: repeatRTU, onRTU: duplicate, onDREQ: disconnected,
			onStale: end, onRelease: depart},
		dreqSent: {onREQ: duplicate, onREJ: lost, onRTU: duplicate, onDREQ: disconnected, onDREP: disconnected,
			onExpired: tryAgain, onUnanswered: noDREP, onRelease: letGo},
		timewait: {onREQ: refuseStale, onRTU: duplicate, onDREQ: repeatDREP, onDREP: duplicate,
			onExpired: exit, onRelease: letGo},

		// Datagram services.
		sidrReqSent: {onSIDRREP: resolved,
			onExpired: tryAgain, onUnanswered: noSIDRREP, onRelease: drop},
		sidrReqRcvd: {onSIDRREQ: duplicate,
			onExpired: lapsed, onRelease: decline},
	}
}

// Where the consumer may call what. It may Release anywhere.
const (
	mayAccept      stateSet = 1<<reqRcvd | 1<<mraReqSent
	mayConfirm     stateSet = 1<<repRcvd | 1<<mraRepSent
	mayAnswer      stateSet = 1 << sidrReqRcvd
	mayReject               = mayAccept | mayConfirm | mayAnswer
	mayDelay                = mayAccept | mayConfirm
	mayDisconnect  stateSet = 1<<established | 1<<dreqSent
	mayDataArrived stateSet = 1<<repSent | 1<<mraRepRcvd
)

// do looks up and does.
func (m *Manager) do(c *conn, col column, in *input) {
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

// repeat answers the copy of a message as the message was answered.
func repeat(m *Manager, c *conn, _ *input) {
	m.stats.Duplicates++
	m.transmit(c)
}
