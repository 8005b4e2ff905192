package cma

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// maxGroups is the maximum number of groups of which an ID is a member.
const maxGroups = 64

// JoinMulticast joins a group. It sends no query: the group's GID is its IP address (Linux's cma_iboe_set_mgid), and
// the link joins the group only when a QP is attached.
func (id *ID) JoinMulticast(group netip.Addr) error {
	const op = "join"
	if err := id.lock(op, stateBound, stateAddrResolved, stateRouteResolved); err != nil {
		return err
	}
	defer id.home.mu.Unlock()
	bad := func(allowed string, err error) error {
		return driver.Refuse(op, "group", group, allowed, err)
	}
	group = driver.PlainAddr(group)
	local := id.local.Addr()
	switch {
	case id.init.Type != ib.UD:
		return driver.Refuse(op, "Type", id.init.Type, "UD", ib.ErrInvalid)
	case !group.IsMulticast():
		return bad("a multicast address: 224.0.0.0/4 or ff00::/8", ib.ErrInvalid)
	case local.IsUnspecified():
		return bad("after Bind to an address, or ResolveAddr", ib.ErrState)
	case local.Is4() != group.Is4():
		return bad(fmt.Sprintf("a group of the family of the local address, %v", local), ib.ErrInvalid)
	case len(id.groups) == maxGroups:
		return overLimit(op, "groups of an ID", maxGroups)
	}
	if err := id.ch.owner.takeGroup(); err != nil {
		return err
	}
	id.groups = append(id.groups, group)
	ah := ib.AHAttr{DGID: ib.GIDFromAddr(group), SGIDIndex: max(id.port.host.GIDIndex(ib.GIDFromAddr(local), true),
		0), Port: 1, TrafficClass: id.tos}
	id.ch.put(id, ib.CMEvent{Type: ib.CMMulticastJoin, Group: group, AH: ah,
		Param: ib.CMConnParam{QPN: ib.QPNMulticast, QKey: ib.DefaultCMQKey}})
	return nil
}

// LeaveMulticast undoes a join of a group.
func (id *ID) LeaveMulticast(group netip.Addr) error {
	const op = "leave"
	if err := id.lock(op); err != nil {
		return err
	}
	defer id.home.mu.Unlock()
	group = driver.PlainAddr(group)
	i := slices.Index(id.groups, group)
	if i < 0 {
		return driver.Refuse(op, "group", group, "a group that the ID has joined", ib.ErrInvalid)
	}
	id.groups = slices.Delete(id.groups, i, i+1)
	id.ch.owner.giveGroups(1)
	joins := 0 // that are left
	for _, g := range id.groups {
		if g == group {
			joins++
		}
	}
	unread := 0
	id.ch.drop(id, func(ev *ib.CMEvent) bool {
		if ev.Group == group {
			unread++
		}
		return ev.Group == group && unread > joins
	})
	return nil
}
