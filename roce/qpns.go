package roce

import "github.com/goroce/goroce/ib"

// qpnTable maps QP numbers to QPs. A number is an index in the low 16 bits and,
// above, a generation that changes each time the index is used again, so that
// packets of a dead connection do not reach its successor.
type qpnTable struct {
	slots []*QP
	gens  []uint8
	free  []uint16 // oldest first
	first uint8    // generation of fresh indices
}

// The first 16 numbers stay free, as with rdma_rxe: 0 and 1 are special.
const (
	firstQPN  = 16
	qpnIndex  = 1<<16 - 1
	growQPNs  = 64
	qpnGenBit = 16
)

func newQPNTable(gen uint8) *qpnTable {
	t := &qpnTable{first: gen}
	t.grow(firstQPN + growQPNs)
	t.free = t.free[firstQPN:]
	return t
}

// grow adds indices up to n.
func (t *qpnTable) grow(n int) {
	for i := len(t.slots); i < min(n, maxQPs+firstQPN); i++ {
		t.slots = append(t.slots, nil)
		t.gens = append(t.gens, t.first)
		t.free = append(t.free, uint16(i))
	}
}

// add gives q a number. The caller keeps to maxQPs.
func (t *qpnTable) add(q *QP) ib.QPN {
	if len(t.free) == 0 {
		t.grow(2 * len(t.slots))
	}
	i := t.free[0]
	t.free = t.free[1:]
	t.slots[i] = q
	return ib.QPN(t.gens[i])<<qpnGenBit | ib.QPN(i)
}

// addGSI gives q the number of the general services QP. The caller makes sure
// that there is no other.
func (t *qpnTable) addGSI(q *QP) ib.QPN {
	t.slots[ib.QPNGSI] = q
	return ib.QPNGSI
}

// hasGSI reports whether the port has its general services QP.
func (s *shard) hasGSI() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.qpns.get(ib.QPNGSI) != nil
}

func (t *qpnTable) remove(n ib.QPN) {
	i := uint16(n & qpnIndex)
	t.slots[i] = nil
	if n == ib.QPNGSI {
		return
	}
	t.gens[i]++
	t.free = append(t.free, i)
}

// get returns the QP with number n, nil if there is none.
func (t *qpnTable) get(n ib.QPN) *QP {
	i := int(n & qpnIndex)
	if i >= len(t.slots) {
		return nil
	}
	q := t.slots[i]
	if q == nil || q.num != n {
		return nil
	}
	return q
}
