package qp

import (
	"encoding/binary"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/mr"
)

// lateOwner says who waits for a placement: a send request, or an entry of the
// responder's commit queue.
type lateOwner struct {
	requester bool
	used      bool
	packets   uint16 // that are placed
	slot      uint32
}

// lateTable holds the placements that somebody else carries out: writes to
// memory that needs a system call. ACK, NAK and completion wait for Placed.
type lateTable struct {
	list   []mr.Placement // made, not yet taken by Effects
	owners []lateOwner    // by placement ID
	limit  int            // of both, and of the packets whose data waits
	n      int            // packets
	next   int            // where a free owner is likely
	epoch  uint64         // upper half of IDs: answers from before a reset fit nobody
	taken  bool           // list was handed out; start afresh
}

// make makes the table if it may have any placement, and reports whether it has not
// been there before.
func (t *lateTable) make() bool {
	if t.limit == len(t.owners) {
		return false
	}
	t.list = make([]mr.Placement, 0, t.limit)
	t.owners = make([]lateOwner, t.limit)
	return true
}

// reset forgets who waits. Placements that are under way answer to nobody.
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
func (t *lateTable) scatter(sgl mr.SGL, off uint64, data []byte, who lateOwner) (int, error) {
	t.fresh()
	before := len(t.list)
	room := min(cap(t.list), before+len(t.owners)-t.n)
	list, err := mr.Scatter(sgl, off, data, t.list[:before:room])
	if err == mr.ErrNoRoom && t.make() {
		return t.scatter(sgl, off, data, who)
	}
	if err != nil {
		return 0, err
	}
	t.adopt(len(list), who)
	return len(list) - before, nil
}

// add makes a single placement: of an atomic operation, or of a train of WRITEs.
func (t *lateTable) add(p mr.Placement, who lateOwner) error {
	t.make()
	t.fresh()
	if t.n+p.Packets() > t.limit || len(t.list) == cap(t.list) {
		return mr.ErrNoRoom
	}
	t.adopt(len(append(t.list, p)), who)
	return nil
}

// fresh drops a list that was taken.
func (t *lateTable) fresh() {
	if t.taken {
		t.list, t.taken = t.list[:0], false
	}
}

// adopt takes over placements that were appended to list, up to length n, and
// gives them IDs.
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

// take hands the list out, once.
func (t *lateTable) take() []mr.Placement {
	if t.taken {
		return nil
	}
	t.taken = true
	return t.list
}

// Placed answers a placement: done, or failed with err. result is what Do has returned:
// for an atomic, the value that memory held before.
func (q *QP) Placed(now ib.Instant, id uint64, result uint64, err error) {
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
	if q.state == ib.Err {
		q.flush()
	}
	q.settle()
}

// placed books a write into the memory of the request in slot i.
func (r *requester) placed(i uint32, err error) {
	s := r.slot(i)
	s.late--
	r.placing--
	if err != nil && r.q.state != ib.Err {
		r.fail(i, ib.WCLocProtErr)
		return
	}
	if err != nil && (!r.failed || i-r.oldest < r.failSlot-r.oldest) {
		r.failed, r.failSlot, r.failStatus = true, i, ib.WCLocProtErr
	}
	r.complete()
	r.checkDrained()
}

// putNative stores an atomic's 64-bit value as the hosts of a RoCE wire see it:
// a number in host byte order.
func putNative(b []byte, v uint64) { binary.NativeEndian.PutUint64(b, v) }
