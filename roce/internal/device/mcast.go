package device

import (
	"fmt"
	"slices"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/qp"
	"github.com/goroce/goroce/roce/internal/engine"
)

// AttachMulticast adds the QP to a group. A second time it does nothing. The limits are the device's, for all its
// applications; package server divides them among users.
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
	// Only the first link joins: with a join on each, a datagram would arrive once for each shard. The shard that
	// gets it hands it to those with members.
	if members == nil {
		if err := d.shard(0).Link().Join(group); err != nil {
			return fmt.Errorf("%s %v: %w", op, group.Addr(), err)
		}
	}
	d.setGroup(group, append(members, q))
	return nil
}

// DetachMulticast takes the QP out of a group. If the link cannot leave the group the QP is out of it all the same.
func (q *QP) DetachMulticast(group ib.GID) error {
	op := fmt.Sprintf("detach QP %#x from multicast group", uint32(q.num))
	if err := q.checkGroup(op, group); err != nil {
		return err
	}
	d := q.pd.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.Contains(d.groups[group], q) {
		return driver.Refuse(op, "group", group.Addr(), "a group that the QP is attached to", ib.ErrInvalid)
	}
	return d.detach(q, group)
}

func (q *QP) checkGroup(op string, group ib.GID) error {
	if err := q.err(op); err != nil {
		return err
	}
	if !qp.Datagram(q.typ) {
		return driver.Refuse(op, "Type", q.typ, "UD", ib.ErrInvalid)
	}
	if !group.Addr().IsMulticast() {
		return driver.Refuse(op, "group", group.Addr(), "a multicast IP address in GID form", ib.ErrInvalid)
	}
	return nil
}

// detach removes q from a group. If q was the last member, the first link leaves the group. The
// caller holds mu.
func (d *Device) detach(q *QP, group ib.GID) error {
	members := slices.DeleteFunc(d.groups[group], func(m *QP) bool { return m == q })
	d.setGroup(group, members)
	if len(members) > 0 {
		return nil
	}
	return d.shard(0).Link().Leave(group)
}

// setGroup sets the members of a group, here and on the shards. The caller holds mu. Each shard's list is replaced as
// a whole, under its lock, so a datagram goes to the members before or after.
func (d *Device) setGroup(gid ib.GID, members []*QP) {
	if len(members) == 0 {
		delete(d.groups, gid)
	} else {
		d.groups[gid] = members
	}
	parts := make([]*engine.QP, len(members))
	for i, q := range members {
		parts[i] = q.part
	}
	d.engine.SetGroup(gid, parts)
}
