package engine

import (
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/qp"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/wire"
)

// gsiQKey is the Q_Key of all general services QPs (IBTA 10.2.5).
const gsiQKey = 0x80010000

// GSI is the connection manager: it reads and writes the datagrams of QP 1, the general services
// QP of the port (IBTA 13.5). The first shard calls it, with its lock held, for each
// datagram and once a turn.
type GSI interface {
	// Receive handles a datagram that arrived in a run; it must not keep the payload. It
	// reports false if the datagram is to an address that the port does not have.
	Receive(now ib.Instant, from *link.Run, payload []byte) bool
	// Deadline returns when Next must be called: 0 for at once. It takes no lock.
	Deadline() ib.Instant
	// Next runs timers that are due, and stores the next datagram to send: its destination
	// in to (addresses, traffic class, hop limit and flow label), its payload in mad. It
	// reports false if there is none.
	Next(now ib.Instant, to *link.Run, mad *[wire.MADLen]byte) bool
}

// SetGSI makes g read and write the datagrams of QP 1. It is called before Start.
func (e *Engine) SetGSI(g GSI) { e.shards[0].qp1.gsi = g }

// WakeGSI wakes the first shard to send datagrams of QP 1.
func (e *Engine) WakeGSI() { e.shards[0].wake() }

// FlushGSI sends the pending datagrams of QP 1 at once; the process may end afterwards.
func (e *Engine) FlushGSI() {
	s := e.shards[0]
	s.holdSleep()
	defer s.releaseSleep()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.clock()
	for s.qp1.send(&s.tx) && s.tx.flush() {
	}
}

// gsiQP is QP 1: a UD QP without rings, as its only user is in the same process and handles
// each datagram when it arrives. Applications cannot create a QP 1, so that only the connection
// manager sends MADs. The gsiQPs of shards other than the first have no user.
type gsiQP struct {
	gsi   GSI
	peers *peerTable
	psn   ib.PSN
	to    link.Run // destination of the current datagram
	mad   [wire.MADLen]byte
}

// deadline returns when send must be called next.
func (g *gsiQP) deadline() ib.Instant {
	if g.gsi == nil {
		return driver.Never
	}
	return min(g.gsi.Deadline(), ib.Instant(g.peers.due.Load()))
}

// receive checks a datagram for QP 1 as a UD QP does, and hands it to the GSI.
func (g *gsiQP) receive(s *Shard, run *link.Run, p *wire.Packet) {
	st := &s.stats
	switch {
	case g.gsi == nil:
		st.DropNoQP++
	case p.DETH.QKey != gsiQKey:
		st.DropQKey++
	case g.peers.receive(s.now, run, p.Payload):
		st.RcvdPkts++
	case !g.gsi.Receive(s.now, run, p.Payload):
		st.DropAddress++
	default:
		st.RcvdPkts++
		st.RDMARecvs++
	}
}

// send gives datagrams of QP 1 to the transmitter, up to TurnDatagrams. It reports whether there
// were any.
func (g *gsiQP) send(t *transmitter) (sent bool) {
	now := t.s.now
	for range TurnDatagrams {
		if g.deadline() > now || t.n > txRuns-txPackets && !t.flush() || t.blocked {
			return sent
		}
		if !g.peers.next(now, &g.to, &g.mad) && !g.gsi.Next(now, &g.to, &g.mad) {
			continue // only a timer was due
		}
		g.to.SrcPort = t.s.sourcePort(g.to.FlowLabel, ib.QPNGSI, ib.QPNGSI)
		p := wire.Packet{BTH: wire.BTH{Opcode: wire.UDSendOnly, PKey: ib.DefaultPKey, DestQP: ib.QPNGSI, PSN: g.psn},
			DETH: wire.DETH{QKey: gsiQKey, SrcQP: ib.QPNGSI}}
		g.psn = g.psn.Add(1)
		t.addMAD(&g.to, &p, &g.mad)
		sent = true
	}
	return sent
}

// addMAD appends a run with one datagram of QP 1.
func (t *transmitter) addMAD(to *link.Run, p *wire.Packet, mad *[wire.MADLen]byte) {
	size := p.Opcode.HeaderLen() + wire.MADLen + wire.ICRCLen
	t.begin(to, size)
	t.open = false // a faulty segmentation offload must not break connection management
	run := &t.runs[t.n-1]
	run.Buf = run.Buf[:size]
	n := p.PutHeaders(run.Buf)
	copy(run.Buf[n:], mad[:])
	clear(run.Buf[n+wire.MADLen:])
	t.s.stats.SentPkts++
	t.s.stats.RDMASends++
}

// forges reports whether a packet is a datagram to QP 1 by an application in another process. It
// is not sent, because it could end or take over connections of other applications.
func (q *QP) forges(p *qp.TxPacket) bool { return p.DestQP == ib.QPNGSI && q.remote }
