package cm

import (
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/wire"
)

// sendDREQ sends a DREQ and waits for the DREP (IBTA 12.6.10).
func (m *Manager) sendDREQ(c *conn, now ib.Instant, private []byte) {
	c.giveUp = driver.Never
	c.compose(wire.AttrDREQ, m.rng.Uint64(), &wire.DREQ{LocalID: uint32(c.id), RemoteID: c.remote.id,
		RemoteQPN: c.params.RemoteQPN, PrivateData: private})
	m.await(c, dreqSent, now)
}

// disconnectStale sends a DREQ for a stale connection: the peer has forgotten it, but answers a DREQ all the same (IBTA
// 12.9.8.3.1, Linux's cm_match_req).
func disconnectStale(m *Manager, c *conn, in *input) { m.sendDREQ(c, in.now, nil) }

// releaseEstablished disconnects an established connection that its consumer has released.
func releaseEstablished(m *Manager, c *conn, in *input) {
	c.released = true
	m.sendDREQ(c, in.now, nil)
}

// markReleased lets a disconnect that is under way finish without further events.
func markReleased(m *Manager, c *conn, _ *input) { c.released = true }

// drop forgets a connection without telling the peer, which holds nothing for it.
func drop(m *Manager, c *conn, _ *input) { m.forget(c) }

// handleDisconnect handles a DREQ, also one that crosses ours, and the DREP to our DREQ.
func handleDisconnect(m *Manager, c *conn, in *input) {
	private := in.drep.PrivateData
	if in.hdr.Attr == wire.AttrDREQ {
		m.sendDREP(in)
		private = in.dreq.PrivateData
	}
	m.enterTimewait(c, in.now, private)
}

// disconnectBeforeRTU handles the DREQ of a peer whose RTU was lost. The connection was established on the peer's side,
// and its data may have arrived here, so Established comes before Disconnected.
func disconnectBeforeRTU(m *Manager, c *conn, in *input) {
	m.raise(c, Event{Kind: Established, Conn: c.params})
	handleDisconnect(m, c, in)
}

// repeatDREP answers a repeated DREQ.
func repeatDREP(m *Manager, _ *conn, in *input) {
	m.stats.Duplicates++
	m.sendDREP(in)
}

// orphanDREQ answers a DREQ for a connection that does not exist here with a DREP, as Linux does, so that its sender
// can leave DREQ SENT.
func orphanDREQ(m *Manager, _ *conn, in *input) {
	m.stats.UnknownID++
	m.sendDREP(in)
}

func (m *Manager) sendDREP(in *input) {
	m.reply(in, wire.AttrDREP, &wire.DREP{LocalID: in.dreq.RemoteID, RemoteID: in.dreq.LocalID})
}

// rejectedEstablished handles a REJ for an established connection: the peer does not know the connection.
func rejectedEstablished(m *Manager, c *conn, in *input) {
	m.enterTimewait(c, in.now, in.rej.PrivateData)
}

// noDREP ends a connection whose DREQs got no answer: the peer is gone.
func noDREP(m *Manager, c *conn, in *input) { m.enterTimewait(c, in.now, nil) }

// enterTimewait keeps the ID until no packet of the connection can be in the network any more: twice the packet
// lifetime, and the ACK delay (IBTA 12.9.8.4). The local ACK timeout, which contains both, stands for them.
func (m *Manager) enterTimewait(c *conn, now ib.Instant, private []byte) {
	m.raise(c, Event{Kind: Disconnected, PrivateData: clone(private)})
	m.forgetQP(c)
	if m.waiting.Len() >= m.opts.MaxTimewait {
		m.evictTimewait()
	}
	c.inTimewait = m.waiting.PushBack(c)
	m.setState(c, timewait, now+min(max(2*timeoutOf(c.params.AckTimeout), minTimewait), maxTimewait))
}

// exitTimewait releases the connection at the end of timewait.
func exitTimewait(m *Manager, c *conn, _ *input) { m.fail(c, Event{Kind: TimewaitExit}) }
