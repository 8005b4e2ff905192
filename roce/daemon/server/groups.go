package server

import (
	"fmt"
	"sync"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/roce/daemon/abi"
	"github.com/goroce/goroce/roce/internal/device"
)

// groups counts the QPs of each user in the multicast groups of a device. The device has few groups, and few places in
// each; of both a user may hold as many as stay free for others, as of other scarce resources.
type groups struct {
	mu     sync.Mutex
	table  scarce // of groups, each counted once for each user that has a QP in it
	places int64  // QPs that may be in a group
	all    map[ib.GID]*group
	users  map[uint32]int64 // groups in which a user has a QP
}

// group is a group with members.
type group struct {
	members scarce
	users   map[uint32]int64 // QPs of a user
}

func newGroups(attr ib.DeviceAttr) groups {
	return groups{table: scarce{most: int64(attr.MaxMcastGroup)}, places: int64(attr.MaxMcastQP),
		all: map[ib.GID]*group{}, users: map[uint32]int64{}}
}

// enter counts one more QP of a user in a group, if the user may have it. The device checks its own limits, too,
// which are for all: it is asked with mu released.
func (t *groups) enter(op string, uid uint32, gid ib.GID) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.all[gid]
	if g == nil {
		g = &group{members: scarce{most: t.places}, users: map[uint32]int64{}}
	}
	full := func(what string, would, most, of int64) error {
		return driver.Refuse(op, what+" of one user", would,
			fmt.Sprintf("%d: of the device's %d, a user may hold as many as stay free for others", most, of),
			ib.ErrLimit)
	}
	// All checks come before all counts: a refusal changes nothing, and a new group is not listed.
	if most, ok := g.members.allows(g.users[uid], 1); !ok {
		return full("QPs in the group", g.users[uid]+1, most, g.members.most)
	}
	if g.users[uid] == 0 {
		if most, ok := t.table.allows(t.users[uid], 1); !ok {
			return full("groups", t.users[uid]+1, most, t.table.most)
		}
		t.table.used++
		t.users[uid]++
	}
	g.members.used++
	g.users[uid]++
	t.all[gid] = g
	return nil
}

// leave undoes enter.
func (t *groups) leave(uid uint32, gid ib.GID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.all[gid]
	g.members.used--
	if g.users[uid]--; g.users[uid] > 0 {
		return
	}
	delete(g.users, uid)
	t.table.used--
	if t.users[uid]--; t.users[uid] == 0 {
		delete(t.users, uid)
	}
	if g.members.used == 0 {
		delete(t.all, gid)
	}
}

// attach adds a QP to a group. The user's place is taken first, so that no group of the device is joined for nothing.
func attach(c *session, r *abi.Group) (reply, error) {
	q, err := lookup[*device.QP](c, abi.OpAttach, "QP", r.QP)
	if err != nil {
		return noBody(err)
	}
	o := c.objects[r.QP]
	// Attaching twice is legal and counts once, as in the kernel.
	if o.groups[r.GID] { // the device knows it, too
		return noBody(q.AttachMulticast(r.GID))
	}
	if err := c.unit.groups.enter(abi.OpAttach.String(), c.who.Uid, r.GID); err != nil {
		return noBody(err)
	}
	if err := q.AttachMulticast(r.GID); err != nil {
		c.unit.groups.leave(c.who.Uid, r.GID)
		return noBody(err)
	}
	if o.groups == nil {
		o.groups = map[ib.GID]bool{}
	}
	o.groups[r.GID] = true
	return noBody(nil)
}

// detach takes a QP out of a group. Its place is given back only if it was in the group.
func detach(c *session, r *abi.Group) (reply, error) {
	q, err := lookup[*device.QP](c, abi.OpDetach, "QP", r.QP)
	if err != nil {
		return noBody(err)
	}
	if err := q.DetachMulticast(r.GID); err != nil {
		return noBody(err)
	}
	if o := c.objects[r.QP]; o.groups[r.GID] {
		delete(o.groups, r.GID)
		c.unit.groups.leave(c.who.Uid, r.GID)
	}
	return noBody(nil)
}

// leaveGroups ends the memberships of a QP that is closed.
func (c *session) leaveGroups(o *object) {
	for gid := range o.groups {
		c.unit.groups.leave(c.who.Uid, gid)
	}
	o.groups = nil
}
