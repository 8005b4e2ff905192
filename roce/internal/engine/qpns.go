package engine

import (
	"math/bits"

	"github.com/goroce/goroce/ib"
)

// qpnTable maps the QP numbers of a shard to its QPs. A number is an index in the
// low 16 bits and, above, a generation that changes each time the index is used
// again, so that packets of a dead connection do not reach its successor. The
// lowest bits of the index are the shard's (link.ShardOf); the rest is the place in
// slots.
type qpnTable struct {
	slots []*QP
	gens  []uint8
	free  []uint16 // places, oldest first
	first uint8    // generation of fresh indices
	shard ib.QPN
	shift int // bits of the shard
}

// The first 16 numbers stay free, as with rdma_rxe: 0 and 1 are special.
const (
	firstQPN  = 16
	maxQPs    = 1<<16 - 32
	qpnIndex  = 1<<16 - 1
	growQPNs  = 64
	qpnGenBit = 16
)

// newQPNTable returns the table of one of so many shards.
func newQPNTable(gen uint8, shard, shards int) *qpnTable {
	t := &qpnTable{first: gen, shard: ib.QPN(shard), shift: bits.Len(uint(shards - 1))}
	t.grow((firstQPN + growQPNs) >> t.shift)
	t.free = t.free[firstQPN>>t.shift:]
	return t
}

// grow adds places up to n.
func (t *qpnTable) grow(n int) {
	for i := len(t.slots); i < min(n, (maxQPs+firstQPN)>>t.shift); i++ {
		t.slots = append(t.slots, nil)
		t.gens = append(t.gens, t.first)
		t.free = append(t.free, uint16(i))
	}
}

// room reports whether there is a number left.
func (t *qpnTable) room() bool {
	if len(t.free) == 0 {
		t.grow(2 * len(t.slots))
	}
	return len(t.free) > 0
}

// add gives q a number; there is room.
func (t *qpnTable) add(q *QP) ib.QPN {
	i := t.free[0]
	t.free = t.free[1:]
	t.slots[i] = q
	return ib.QPN(t.gens[i])<<qpnGenBit | ib.QPN(i)<<t.shift | t.shard
}

func (t *qpnTable) place(n ib.QPN) int { return int(n&qpnIndex) >> t.shift }

func (t *qpnTable) remove(n ib.QPN) {
	i := t.place(n)
	t.slots[i] = nil
	t.gens[i]++
	t.free = append(t.free, uint16(i))
}

// get returns the QP with number n, nil if there is none.
func (t *qpnTable) get(n ib.QPN) *QP {
	i := t.place(n)
	if i >= len(t.slots) {
		return nil
	}
	q := t.slots[i]
	if q == nil || q.num != n {
		return nil
	}
	return q
}
