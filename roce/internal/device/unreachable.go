package device

import (
	"sync"
	"time"

	"github.com/goroce/goroce/ib"
)

// lostPeers remembers what ICMP has said about peers lately, so that a QP whose peer does not answer can tell why. A
// request is not ended by it: anybody may send ICMP messages.
type lostPeers struct {
	mu   sync.Mutex
	last [64]lostPeer
	next int
}

type lostPeer struct {
	peer  ib.GID
	errno uint32
	at    ib.Instant
}

// lately is how long a message counts. The longest ACK timeout that programs use is a few seconds, with 7 retries.
const lately = ib.Instant(time.Minute)

// note records a message. One about a peer that has a row replaces that.
func (l *lostPeers) note(peer ib.GID, errno int, now ib.Instant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	row := l.find(peer)
	if row == nil {
		// In turn, so that a flood of forged messages pushes out hints and nothing else.
		row = &l.last[l.next]
		l.next = (l.next + 1) % len(l.last)
	}
	*row = lostPeer{peer: peer, errno: uint32(errno), at: now}
}

// errno returns the error number of the latest message about a peer, 0 if there was none lately.
func (l *lostPeers) errno(peer ib.GID, now ib.Instant) uint32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if row := l.find(peer); row != nil && now-row.at < lately {
		return row.errno
	}
	return 0
}

func (l *lostPeers) find(peer ib.GID) *lostPeer {
	for i := range l.last {
		if r := &l.last[i]; r.errno != 0 && r.peer == peer {
			return r
		}
	}
	return nil
}

// Unreachable tells the device that the network cannot reach a peer, and why, as a Linux error number (see
// cma.Port.Unreachable). Links call it, with the error of an ICMP message.
func (d *Device) Unreachable(peer ib.GID, errno int) {
	d.lost.note(peer, errno, cmHost{d}.Now())
	d.cm.Unreachable(peer, errno)
}
