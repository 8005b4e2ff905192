package cma

import (
	"container/list"

	"github.com/goroce/goroce/ib"
)

// dials has the active IDs whose peer has not answered yet, by peer.
type dials struct {
	to   map[ib.GID]*dialled
	next uint64   // order of the next ID
	lost []ib.GID // peers of which an ICMP error waits for endLost
}

// dialled is a peer with the IDs that wait for its first answer.
type dialled struct {
	ids *list.List // of *ID, the oldest first

	errno int    // of an ICMP error that waits for endLost; 0 for none
	until uint64 // IDs from this order on have asked after the error
}

// add notes that an ID has sent its request.
func (d *dials) add(id *ID) {
	peer := d.to[id.path.Remote]
	if peer == nil {
		peer = &dialled{ids: list.New()}
		d.to[id.path.Remote] = peer
	}
	id.dialed = d.next
	d.next++
	id.inDials = peer.ids.PushBack(id)
}

// remove notes that the peer has answered, or that the attempt has ended.
func (d *dials) remove(id *ID) {
	if id.inDials == nil {
		return
	}
	peer := d.to[id.path.Remote]
	peer.ids.Remove(id.inDials)
	id.inDials = nil
	if peer.ids.Len() == 0 {
		delete(d.to, id.path.Remote)
	}
}

// Unreachable tells the device that the network cannot reach a peer, and why, as a Linux error number: ECONNREFUSED if
// its port 4791 is closed, EHOSTUNREACH, ENETUNREACH. Requests to the peer that have had no answer end with
// CMUnreachable. Links call it, with the error of an ICMP message. It takes as long for many requests as for one: the
// first shard ends them, some in each turn.
func (p *Port) Unreachable(peer ib.GID, errno int) {
	p.mu.Lock()
	to := p.dials.to[peer]
	if p.closed || to == nil || to.errno != 0 {
		p.mu.Unlock()
		return
	}
	to.errno, to.until = errno, p.dials.next
	p.dials.lost = append(p.dials.lost, peer)
	p.unlock()
}

// endLost ends requests to peers that Unreachable has named, MaxHold at most. A request that has had an answer goes on,
// and no later error concerns it.
func (p *Port) endLost(now ib.Instant) {
	d := &p.dials
	for n := 0; n < MaxHold && len(d.lost) > 0; {
		to := d.to[d.lost[0]]
		if to == nil || to.errno == 0 || to.ids.Front().Value.(*ID).dialed >= to.until {
			if to != nil {
				to.errno = 0
			}
			d.lost = d.lost[1:]
			continue
		}
		id := to.ids.Front().Value.(*ID)
		d.remove(id)
		if p.m.Lost(now, id.conn) {
			id.cause = to.errno
		}
		n++
	}
	if len(d.lost) == 0 {
		d.lost = nil
	}
}
