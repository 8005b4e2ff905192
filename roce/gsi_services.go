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
	spaces map[uint64]servicePlaces // by the ID without its lower 16 bits
	counts map[*QP]int              // announcements of each QP
}

// servicePlaces is a space at each GID where somebody serves. The zero GID stands for
// all. Two QPs serve the same ID at two GIDs only if neither is zero (Linux,
// cma_check_port), so who serves it at one is unique.
type servicePlaces map[ib.GID]*serviceSpace

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
	t.spaces, t.counts = map[uint64]servicePlaces{}, map[*QP]int{}
}

// find returns the QP that serves an ID at a GID, nil if none does.
func (t *serviceTable) find(id uint64, gid ib.GID) *QP {
	places := t.spaces[id&maskSpace]
	if q := places[gid].find(id); q != nil {
		return q
	}
	return places[ib.GID{}].find(id)
}

// find returns the QP that serves an ID; sp may be nil.
func (sp *serviceSpace) find(id uint64) *QP {
	if sp == nil {
		return nil
	}
	if one := sp.ids[id]; one.qp != nil {
		return one.qp
	}
	return sp.whole.qp
}

// serviceText is a service for people.
func serviceText(id uint64, gid ib.GID) string {
	if gid == (ib.GID{}) {
		return fmt.Sprintf("%#x at all addresses", id)
	}
	return fmt.Sprintf("%#x at %v", id, gid.Addr())
}

// add announces.
func (t *serviceTable) add(q *QP, id, mask uint64, gid ib.GID) error {
	refuse := func(allowed string, err error) error {
		return &ib.AttrError{Op: "serve", Attr: "service ID", Value: serviceText(id&mask, gid), Allowed: allowed, Err: err}
	}
	if t.counts[q] == maxServices {
		return refuse(fmt.Sprintf("at most %d services of one QP; close listeners first", maxServices), ib.ErrLimit)
	}
	places := t.spaces[id&maskSpace]
	if places.taken(q, id, mask, gid) {
		return refuse("an ID that no other general services QP of this port serves there; choose another ID or address, or end the listener of the other process", ib.ErrBusy)
	}
	if places == nil {
		places = servicePlaces{}
		t.spaces[id&maskSpace] = places
	}
	sp := places[gid]
	if sp == nil {
		sp = &serviceSpace{ids: map[uint64]service{}, users: map[*QP]int{}}
		places[gid] = sp
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
func (p servicePlaces) taken(q *QP, id, mask uint64, gid ib.GID) bool {
	for at, sp := range p {
		if (at == gid || at == (ib.GID{}) || gid == (ib.GID{})) && sp.taken(q, id, mask) {
			return true
		}
	}
	return false
}

// taken reports the same of one GID.
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
func (t *serviceTable) take(q *QP, id, mask uint64, gid ib.GID) bool {
	sp := t.spaces[id&maskSpace][gid]
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
	t.tidy(id&maskSpace, gid)
	return true
}

// tidy removes a space where nothing is left.
func (t *serviceTable) tidy(space uint64, gid ib.GID) {
	places := t.spaces[space]
	if sp := places[gid]; sp.whole.qp == nil && len(sp.ids) == 0 {
		delete(places, gid)
	}
	if len(places) == 0 {
		delete(t.spaces, space)
	}
}

// drop takes back all that q has announced.
func (t *serviceTable) drop(q *QP) {
	if t.counts[q] == 0 {
		return
	}
	delete(t.counts, q)
	for space, places := range t.spaces {
		for gid, sp := range places {
			sp.drop(q)
			t.tidy(space, gid)
		}
	}
}

func (sp *serviceSpace) drop(q *QP) {
	if sp.whole.qp == q {
		sp.whole = service{}
	}
	if sp.users[q] == 0 {
		return
	}
	delete(sp.users, q)
	for id, one := range sp.ids {
		if one.qp == q {
			delete(sp.ids, id)
		}
	}
}

// Serve announces a service ID of a general services QP (ib.ServiceQP).
func (q *QP) Serve(serviceID, mask uint64, gid ib.GID) error {
	const op = "serve"
	s, err := q.services(op, serviceID, mask)
	if err != nil {
		return err
	}
	defer s.mu.Unlock()
	if gid != (ib.GID{}) && q.pd.dev.gids.Load().find(gid, true) < 0 {
		return &ib.AttrError{Op: op, Attr: "GID", Value: gid.Addr(), Allowed: "an address of the device (goroced devinfo -v lists them); zero for all of them", Err: ib.ErrInvalid}
	}
	return s.gsi.services.add(q, serviceID, mask, gid)
}

// Unserve takes a Serve back. An ID that q does not serve is ib.ErrInvalid.
func (q *QP) Unserve(serviceID, mask uint64, gid ib.GID) error {
	const op = "unserve"
	s, err := q.services(op, serviceID, mask)
	if err != nil {
		return err
	}
	defer s.mu.Unlock()
	if !s.gsi.services.take(q, serviceID, mask, gid) {
		return &ib.AttrError{Op: op, Attr: "service ID", Value: serviceText(serviceID, gid), Allowed: "one that this QP serves, with the mask and the GID that it was announced with", Err: ib.ErrInvalid}
	}
	return nil
}

// services checks arguments. It returns q's shard, which the caller unlocks.
func (q *QP) services(op string, serviceID, mask uint64) (*shard, error) {
	if q.typ != ib.GSI {
		return nil, &ib.AttrError{Op: op, Attr: "Type", Value: q.typ, Allowed: "GSI", Err: ib.ErrNotSupported}
	}
	if mask != maskID && mask != maskSpace {
		return nil, &ib.AttrError{Op: op, Attr: "mask", Value: fmt.Sprintf("%#x", mask),
			Allowed: fmt.Sprintf("%#x for one service ID, %#x for a port space", uint64(maskID), uint64(maskSpace)), Err: ib.ErrInvalid}
	}
	q.shard.mu.Lock()
	if q.core == nil {
		q.shard.mu.Unlock()
		return nil, fmt.Errorf("%s service ID %#x: %w", op, serviceID, ib.ErrClosed)
	}
	return q.shard, nil
}
