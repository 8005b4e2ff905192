package roce

import (
	"fmt"
	"slices"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/qp"
)

// group is what a shard knows of a multicast group; it is guarded by shard.mu.
type group struct {
	members []*QP  // the QPs of this shard that are attached
	shards  uint32 // a bit for each shard that has any
}

// AttachMulticast adds the QP to a group.
func (q *QP) AttachMulticast(group ib.GID) error {
	op := fmt.Sprintf("attach QP %#x to multicast group", uint32(q.num))
	if err := q.checkGroup(op, group); err != nil {
		return err
	}
	d := q.pd.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	members := d.groups[group]
	switch {
	case q.dead.Load():
		return q.err(op)
	case slices.Contains(members, q):
		return nil
	case len(members) == maxMcastQPs:
		return limitError(op, "QPs in the group", maxMcastQPs)
	case members == nil && len(d.groups) == maxMcastGroups:
		return limitError(op, "groups", maxMcastGroups)
	}
	if members == nil {
		if err := d.shards[0].link.Join(group); err != nil {
			return fmt.Errorf("%s %v: %w", op, group.Addr(), err)
		}
	}
	d.setGroup(group, append(members, q))
	return nil
}

// DetachMulticast takes the QP out of a group.
func (q *QP) DetachMulticast(group ib.GID) error {
	op := fmt.Sprintf("detach QP %#x from multicast group", uint32(q.num))
	if err := q.checkGroup(op, group); err != nil {
		return err
	}
	d := q.pd.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.Contains(d.groups[group], q) {
		return &ib.AttrError{Op: op, Attr: "group", Value: group.Addr(), Allowed: "a group that the QP is attached to", Err: ib.ErrInvalid}
	}
	return d.detach(q, group)
}

func (q *QP) checkGroup(op string, group ib.GID) error {
	if err := q.err(op); err != nil {
		return err
	}
	if !qp.Datagram(q.typ) {
		return &ib.AttrError{Op: op, Attr: "Type", Value: q.typ, Allowed: "UD", Err: ib.ErrInvalid}
	}
	if !group.Addr().IsMulticast() {
		return &ib.AttrError{Op: op, Attr: "group", Value: group.Addr(), Allowed: "a multicast IP address in GID form", Err: ib.ErrInvalid}
	}
	return nil
}

// detach takes q out of a group, and the first link with the last member. The caller
// holds mu.
func (d *Device) detach(q *QP, group ib.GID) error {
	members := slices.DeleteFunc(d.groups[group], func(m *QP) bool { return m == q })
	d.setGroup(group, members)
	if len(members) > 0 {
		return nil
	}
	return d.shards[0].link.Leave(group)
}

// setGroup makes the members of a group known to the shards. The caller holds mu.
func (d *Device) setGroup(gid ib.GID, members []*QP) {
	lists := make([][]*QP, len(d.shards))
	shards := uint32(0)
	for _, q := range members {
		lists[q.shard.id] = append(lists[q.shard.id], q)
		shards |= 1 << q.shard.id
	}
	if len(members) == 0 {
		delete(d.groups, gid)
		d.each(func(s *shard) { delete(s.groups, gid) })
		return
	}
	d.groups[gid] = members
	d.each(func(s *shard) { s.groups[gid] = group{lists[s.id], shards} })
}
