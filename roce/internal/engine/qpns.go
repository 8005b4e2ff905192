package engine

import (
	"math/bits"
	"math/rand/v2"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/internal/sequence"
)

// qpnTable maps the QP numbers of a shard to its QPs. The lowest bits of a number are the
// shard's (link.ShardOf), the others come from a sequence: outsiders cannot guess them, and
// late packets of a closed connection do not reach a new QP, because numbers are not reused
// for a long time. The lowest bits of the sequence's part are the index into slots, no more than
// half of which are in use.
type qpnTable struct {
	slots []*QP // a power of two
	used  int
	order *sequence.Sequence
	shard ib.QPN
	shift int // number of bits of the shard
}

// The first 16 numbers are not used, as in rdma_rxe: 0 and 1 are special.
const (
	qpnBits  = 24
	firstQPN = 16
	maxQPs   = 1 << 17 // all of the device's may be on one shard
	growQPNs = 64
)

// newQPNTable returns the table of one of the given number of shards. The key of its sequence
// comes from rng.
func newQPNTable(rng *rand.Rand, shard, shards int) *qpnTable {
	shift := bits.Len(uint(shards - 1))
	return &qpnTable{slots: make([]*QP, growQPNs), order: sequence.New(rng, qpnBits-shift), shard: ib.QPN(shard),
		shift: shift}
}

// room reports whether another QP may be added.
func (t *qpnTable) room() bool { return t.used < maxQPs }

// add gives q a number and returns it. The caller has checked room.
func (t *qpnTable) add(q *QP) ib.QPN {
	if t.used++; t.used > len(t.slots)/2 {
		t.grow()
	}
	for {
		n := ib.QPN(t.order.Next())<<t.shift | t.shard
		if at := &t.slots[t.place(n)]; *at == nil && n >= firstQPN && n != ib.QPNMulticast {
			*at = q
			return n
		}
	}
}

// grow doubles the slots. Numbers with different slots still have different slots afterwards.
func (t *qpnTable) grow() {
	old := t.slots
	t.slots = make([]*QP, 2*len(old))
	for _, q := range old {
		if q != nil {
			t.slots[t.place(q.num)] = q
		}
	}
}

func (t *qpnTable) place(n ib.QPN) int { return int(n) >> t.shift & (len(t.slots) - 1) }

func (t *qpnTable) remove(n ib.QPN) {
	t.slots[t.place(n)] = nil
	t.used--
}

// get returns the QP with number n, nil if there is none.
func (t *qpnTable) get(n ib.QPN) *QP {
	q := t.slots[t.place(n)]
	if q == nil || q.num != n {
		return nil
	}
	return q
}
