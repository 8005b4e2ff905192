package cm

import (
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/wire"
)

// hangUp sends a DREQ.
func (m *Manager) hangUp(c *conn, now ib.Instant, private []byte) {
	c.giveUp = ib.Never
	c.compose(wire.AttrDREQ, m.rng.Uint64(), &wire.DREQ{LocalID: uint32(c.id), RemoteID: c.remote.id, RemoteQPN: c.params.RemoteQPN, PrivateData: private})
	m.await(c, dreqSent, now)
}

// end is what a stale connection gets: the peer has forgotten it, but answers a
// DREQ all the same (IBTA 12.9.8.3.1, Linux's cm_match_req).
func end(m *Manager, c *conn, in *input) { m.hangUp(c, in.now, nil) }

// depart ends the connection of a consumer that does not wait for the end.
func depart(m *Manager, c *conn, in *input) {
	c.released = true
	m.hangUp(c, in.now, nil)
}

// letGo leaves an end that is under way to itself.
func letGo(m *Manager, c *conn, _ *input) { c.released = true }

// drop ends what no peer holds anything for.
func drop(m *Manager, c *conn, _ *input) { m.forget(c) }

// disconnected takes a DREQ, also while ours is under way, or the DREP.
func disconnected(m *Manager, c *conn, in *input) {
	private := in.drep.PrivateData
	if in.hdr.Attr == wire.AttrDREQ {
		m.sendDREP(in)
		private = in.dreq.PrivateData
	}
	m.leave(c, in.now, private)
}

// readyAndGone takes the DREQ of a peer whose RTU was lost. It was established
// on the peer's side, and what it sent may be here.
func readyAndGone(m *Manager, c *conn, in *input) {
	m.raise(c, Event{Kind: Established, Conn: c.params})
	disconnected(m, c, in)
}

// repeatDREP answers a DREQ that was sent again.
func repeatDREP(m *Manager, _ *conn, in *input) {
	m.stats.Duplicates++
	m.sendDREP(in)
}

// orphanDREQ answers a DREQ for a connection that is not there, as Linux does: its
// sender wants to be rid of it.
func orphanDREQ(m *Manager, _ *conn, in *input) {
	m.stats.UnknownID++
	m.sendDREP(in)
}

func (m *Manager) sendDREP(in *input) {
	m.reply(in, wire.AttrDREP, &wire.DREP{LocalID: in.dreq.RemoteID, RemoteID: in.dreq.LocalID})
}

// lost takes a REJ for an established connection: the peer does not have it.
func lost(m *Manager, c *conn, in *input) { m.leave(c, in.now, in.rej.PrivateData) }

// noDREP gives up: the peer is gone.
func noDREP(m *Manager, c *conn, in *input) { m.leave(c, in.now, nil) }

// leave enters timewait, until packets of the connection are gone from the network:
// twice the packet lifetime and the ACK delay (IBTA 12.9.8.4), for which the local
// ACK timeout stands.
func (m *Manager) leave(c *conn, now ib.Instant, private []byte) {
	m.raise(c, Event{Kind: Disconnected, PrivateData: clone(private)})
	m.forgetQP(c)
	if m.waiting.Len() >= m.opts.MaxTimewait {
		m.leaveEarly()
	}
	c.inTimewait = m.waiting.PushBack(c)
	m.enter(c, timewait, now+min(max(2*timeoutOf(c.params.AckTimeout), minTimewait), maxTimewait))
}

// exit ends timewait.
func exit(m *Manager, c *conn, _ *input) { m.fail(c, Event{Kind: TimewaitExit}) }
