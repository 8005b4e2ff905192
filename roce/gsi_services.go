package roce

import (
	"fmt"

	"github.com/goroce/goroce/ib"
)

// Masks of Serve: one service ID, or all 16-bit ports of a port space.
const (
	maskID    = ^uint64(0)
	maskSpace = ^uint64(0xFFFF)
)

// maxServices is how much one QP may announce.
const maxServices = 1 << 14

// serviceTable is the service IDs that QPs have announced.
type serviceTable struct {
	spaces map[uint64]*serviceSpace // by the ID without its lower 16 bits
	counts map[*QP]int              // announcements of each QP
}

// serviceSpace is the IDs that differ in the lower 16 bits only.
type serviceSpace struct {
	whole service            // who serves all of them
	ids   map[uint64]service // who serves one
	users map[*QP]int        // how many of ids each has
}

// service is a QP, and how often it has announced the same.
type service struct {
	qp    *QP
	times int
}

func (t *serviceTable) init() {
	t.spaces, t.counts = map[uint64]*serviceSpace{}, map[*QP]int{}
}

// find returns the QP that serves an ID, nil if none does.
func (t *serviceTable) find(id uint64) *QP {
	sp := t.spaces[id&maskSpace]
	if sp == nil {
		return nil
	}
	if one := sp.ids[id]; one.qp != nil {
		return one.qp
	}
	return sp.whole.qp
}

// add announces.
func (t *serviceTable) add(q *QP, id, mask uint64) error {
	refuse := func(allowed string, err error) error {
		return &ib.AttrError{Op: "serve", Attr: "service ID", Value: fmt.Sprintf("%#x", id&mask), Allowed: allowed, Err: err}
	}
	if t.counts[q] == maxServices {
		return refuse(fmt.Sprintf("at most %d services of one QP; close listeners first", maxServices), ib.ErrLimit)
	}
	sp := t.spaces[id&maskSpace]
	if sp != nil && sp.taken(q, id, mask) {
		return refuse("an ID that no other general services QP of this port serves; choose another, or end the listener of the other process", ib.ErrBusy)
	}
	if sp == nil {
		sp = &serviceSpace{ids: map[uint64]service{}, users: map[*QP]int{}}
		t.spaces[id&maskSpace] = sp
	}
	t.counts[q]++
	if mask == maskSpace {
		sp.whole = service{q, sp.whole.times + 1}
		return nil
	}
	one := sp.ids[id]
	if one.times == 0 {
		sp.users[q]++
	}
	sp.ids[id] = service{q, one.times + 1}
	return nil
}

// taken reports whether another QP serves the same or part of it.
func (sp *serviceSpace) taken(q *QP, id, mask uint64) bool {
	if sp.whole.qp != nil && sp.whole.qp != q {
		return true
	}
	if mask == maskID {
		one := sp.ids[id]
		return one.qp != nil && one.qp != q
	}
	return len(sp.users) > 1 || len(sp.users) == 1 && sp.users[q] == 0
}

// take takes an announcement back; false means that q has not made it.
func (t *serviceTable) take(q *QP, id, mask uint64) bool {
	sp := t.spaces[id&maskSpace]
	if sp == nil {
		return false
	}
	s := sp.whole
	if mask == maskID {
		s = sp.ids[id]
	}
	if s.qp != q {
		return false
	}
	if t.counts[q]--; t.counts[q] == 0 {
		delete(t.counts, q)
	}
	if s.times--; s.times == 0 {
		s.qp = nil
	}
	switch {
	case mask == maskSpace:
		sp.whole = s
	case s.qp != nil:
		sp.ids[id] = s
	default:
		delete(sp.ids, id)
		if sp.users[q]--; sp.users[q] == 0 {
			delete(sp.users, q)
		}
	}
	if sp.whole.qp == nil && len(sp.ids) == 0 {
		delete(t.spaces, id&maskSpace)
	}
	return true
}

// drop takes back all that q has announced.
func (t *serviceTable) drop(q *QP) {
	if t.counts[q] == 0 {
		return
	}
	delete(t.counts, q)
	for space, sp := range t.spaces {
		if sp.whole.qp == q {
			sp.whole = service{}
		}
		if sp.users[q] > 0 {
			delete(sp.users, q)
			for id, one := range sp.ids {
				if one.qp == q {
					delete(sp.ids, id)
				}
			}
		}
		if sp.whole.qp == nil && len(sp.ids) == 0 {
			delete(t.spaces, space)
		}
	}
}
