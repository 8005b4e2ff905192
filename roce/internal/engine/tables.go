package engine

import (
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/qp"
)

// table holds objects of one kind by number, from 1 on. Each shard has one of its own, all
// with the same objects, so that looking one up takes no lock but the shard's.
type table[T any] struct{ items []*T }

// get returns the object with number n, nil if there is none.
func (t *table[T]) get(n uint32) *T {
	if n == 0 || n > uint32(len(t.items)) {
		return nil
	}
	return t.items[n-1]
}

// set makes v, which may be nil, the object with number n.
func (t *table[T]) set(n uint32, v *T) {
	for uint32(len(t.items)) < n {
		t.items = append(t.items, nil)
	}
	t.items[n-1] = v
}

// ahTable holds the address handles (qp.AHs).
type ahTable struct{ *table[qp.AH] }

// AH finds the handle that a request names.
func (t ahTable) AH(n ib.AHNum) *qp.AH { return t.get(uint32(n)) }

// srqTable holds the XRC SRQs (qp.SRQs).
type srqTable struct{ *table[qp.SRQ] }

// SRQ finds the SRQ that a request names.
func (t srqTable) SRQ(n uint32) *qp.SRQ { return t.get(n) }

// SetAH makes an address handle, nil for none, what requests find under a number. Its Owner
// is the *link.Run with the addressing of what goes there.
func (e *Engine) SetAH(n ib.AHNum, ah *qp.AH) { e.Each(func(s *Shard) { s.ahs.set(uint32(n), ah) }) }

// SetSRQ makes an XRC SRQ, nil for none, what requests find under a number.
func (s *Shard) SetSRQ(n uint32, srq *qp.SRQ) { s.srqs.set(n, srq) }

// group is what a shard knows of a multicast group.
type group struct {
	members []*QP  // the QPs of this shard that are attached
	shards  uint32 // a bit for each shard that has any
}

// SetGroup makes the members of a multicast group known to the shards.
func (e *Engine) SetGroup(gid ib.GID, members []*QP) {
	lists := make([][]*QP, len(e.shards))
	shards := uint32(0)
	for _, q := range members {
		lists[q.shard.id] = append(lists[q.shard.id], q)
		shards |= 1 << q.shard.id
	}
	e.Each(func(s *Shard) {
		if len(members) == 0 {
			delete(s.groups, gid)
		} else {
			s.groups[gid] = group{lists[s.id], shards}
		}
	})
}

// SetGIDs tells the shards how many rows the port's GID table has, SetMTU its active MTU.
func (e *Engine) SetGIDs(rows int) { e.Each(func(s *Shard) { s.limits.GIDs = rows }) }

// SetMTU is what no path MTU may exceed from now on.
func (e *Engine) SetMTU(mtu ib.MTU) { e.Each(func(s *Shard) { s.limits.MTU = mtu }) }
