package qp

import (
	"encoding/binary"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/mr"
)

// lateOwner says what waits for a placement: a send request, or an entry of the
// responder's commit queue.
type lateOwner struct {
	requester bool
	used      bool
	packets   uint16 // whose payload the placement writes
	slot      uint32
}

// lateTable holds the placements that the QP's owner carries out: writes to memory that
// is not direct. ACK, NAK and completion wait for Placed.
type lateTable struct {
	list   []mr.Placement // made, not yet taken by Effects
	owners []lateOwner    // by placement ID
	limit  int            // of list, of owners, and of n
	n      int            // packets whose placements are unfinished
	next   int            // index in owners from which adopt looks for a free one
	epoch  uint64         // upper half of IDs: Placed ignores IDs from before a reset
	taken  bool           // list was handed out; start afresh
}

// leastLate is how many placements a QP with little staging memory may have under way: more than one packet may need.
const leastLate = 64

// mostLate returns how many placements the QP may have under way, as Limits.Stage has answered.
func (q *QP) mostLate() int {
	if !q.stageAsked {
		q.stageAsked = true
		if l := q.cfg.Limits; l != nil && l.Stage != nil && !l.Stage(q) {
			q.late.limit = min(leastLate, q.cfg.MaxLate)
		}
	}
	return q.late.limit
}

// staged reports whether the QP has all the staging memory that it can use.
func (q *QP) staged() bool { return q.mostLate() == q.cfg.MaxLate }

// make allocates the table on its first call, unless limit is 0, and reports whether it
// did.
func (t *lateTable) make(q *QP) bool {
	if t.limit == len(t.owners) {
		return false
	}
	q.mostLate()
	t.list = make([]mr.Placement, 0, t.limit)
	t.owners = make([]lateOwner, t.limit)
	return true
}

// reset forgets all owners. Results of placements that are under way will be ignored.
func (t *lateTable) reset() {
	clear(t.owners)
	t.list, t.n = t.list[:0], 0
	t.epoch += 1 << 32
}

func (t *lateTable) pending() int { return t.n }

// room returns how many packets may still be placed.
func (t *lateTable) room() int {
	t.fresh()
	return min(t.limit-t.n, t.limit-len(t.list))
}

// scatter writes data to an SGL, from off on: direct memory at once, the rest by
// placements, whose number it returns.
func (t *lateTable) scatter(q *QP, sgl mr.SGL, off uint64, data []byte, who lateOwner) (int, error) {
	t.fresh()
	before := len(t.list)
	room := min(cap(t.list), before+len(t.owners)-t.n)
	list, err := mr.Scatter(sgl, off, data, t.list[:before:room])
	if err == mr.ErrNoRoom && t.make(q) {
		return t.scatter(q, sgl, off, data, who)
	}
	if err != nil {
		return 0, err
	}
	t.adopt(len(list), who)
	return len(list) - before, nil
}

// add adds a single placement: of an atomic operation, or of a train of WRITEs.
func (t *lateTable) add(q *QP, p mr.Placement, who lateOwner) error {
	t.make(q)
	t.fresh()
	if t.n+p.Packets() > t.limit || len(t.list) == cap(t.list) {
		return mr.ErrNoRoom
	}
	t.adopt(len(append(t.list, p)), who)
	return nil
}

// fresh empties the list if it was handed out.
func (t *lateTable) fresh() {
	if t.taken {
		t.list, t.taken = t.list[:0], false
	}
}

// adopt extends list to length n, over placements that were appended to it, and gives
// them owners and IDs.
func (t *lateTable) adopt(n int, who lateOwner) {
	who.used = true
	for i := len(t.list); i < n; i++ {
		for t.owners[t.next].used {
			t.next = (t.next + 1) % t.limit
		}
		p := &t.list[:n][i]
		p.ID = t.epoch | uint64(t.next)
		who.packets = uint16(p.Packets())
		t.owners[t.next] = who
		t.n += int(who.packets)
	}
	t.list = t.list[:n]
}

// done ends placement id and returns its owner.
func (t *lateTable) done(id uint64) (who lateOwner, ok bool) {
	slot := id - t.epoch
	if slot >= uint64(len(t.owners)) || !t.owners[slot].used {
		return who, false
	}
	who = t.owners[slot]
	t.owners[slot] = lateOwner{}
	t.n -= int(who.packets)
	return who, true
}

// take returns the list, but not a second time.
func (t *lateTable) take() []mr.Placement {
	if t.taken {
		return nil
	}
	t.taken = true
	return t.list
}

// Placed reports that a placement has ended: done, or failed with err. result is what Do
// returned: for an atomic, the value that memory held before.
func (q *QP) Placed(now ib.Instant, id uint64, result uint64, err error) {
	q.now = now
	who, ok := q.late.done(id)
	switch {
	case !ok:
		return
	case who.requester:
		q.req.placed(who.slot, err)
	default:
		q.resp.placed(now, who.slot, result, err)
	}
	q.resp.drain(now)
	if q.state == ib.StateErr {
		q.flush()
	}
	q.settle()
}

// placed handles the end of a placement in the memory of the request in slot i.
func (r *requester) placed(i uint32, err error) {
	s := r.slot(i)
	s.late--
	r.placing--
	if err != nil && r.q.state != ib.StateErr {
		r.failMemory(i)
		return
	}
	if err != nil && (!r.failed.set || i-r.oldest < r.failed.slot-r.oldest) {
		r.failed = failure{set: true, slot: i, status: ib.WCLocProtErr}
	}
	r.complete()
	r.checkDrained()
}

// putNative stores an atomic's 64-bit value in memory in host byte order.
func putNative(b []byte, v uint64) { binary.NativeEndian.PutUint64(b, v) }
