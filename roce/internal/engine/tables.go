package engine

import (
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/qp"
)

// table holds objects of one kind by number, from 1 on. Each shard has its own copy of the
// table, so that a lookup takes no lock but the shard's.
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

// AH returns the address handle with number n.
func (t ahTable) AH(n ib.AHNum) *qp.AH { return t.get(uint32(n)) }

// srqTable holds the XRC SRQs (qp.SRQs).
type srqTable struct{ *table[qp.SRQ] }

// SRQ returns the XRC SRQ with number n.
func (t srqTable) SRQ(n uint32) *qp.SRQ { return t.get(n) }

// SetAH sets the address handle that requests name by n; nil removes it. Its Owner is the
// *link.Run with the addressing of datagrams to it.
func (e *Engine) SetAH(n ib.AHNum, ah *qp.AH) { e.Each(func(s *Shard) { s.ahs.set(uint32(n), ah) }) }

// SetSRQ sets the XRC SRQ that requests name by n; nil removes it.
func (s *Shard) SetSRQ(n uint32, srq *qp.SRQ) { s.srqs.set(n, srq) }

// group is a shard's state of a multicast group.
type group struct {
	members []*QP  // the QPs of this shard that are attached
	shards  uint32 // a bit for each shard with attached QPs
}

// SetGroup sets the members of a multicast group on all shards.
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

// SetGIDs sets the number of rows of the port's GID table on all shards.
func (e *Engine) SetGIDs(rows int) { e.Each(func(s *Shard) { s.limits.GIDs = rows }) }

// SetMTU sets the port's active MTU, and the most payload that fits a frame, on all shards.
func (e *Engine) SetMTU(mtu ib.MTU, frame int) {
	e.Each(func(s *Shard) { s.limits.MTU, s.limits.Frame = mtu, frame })
}
