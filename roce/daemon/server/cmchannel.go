package server

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/roce/daemon/abi"
	"github.com/goroce/goroce/roce/internal/device"
)

// cmChannel is an event channel of a client. It ends when the client closes it, or its last descriptor of the
// channel's socket.
type cmChannel struct {
	*device.CM
	box    *outbox // tells the client that events wait
	object *object
	ids    map[*object]struct{} // that are on the channel
	gone   int                  // IDs deleted from ids, for compact
}

// cmID is what the session knows of an ID, or of a membership in a multicast group. The session's goroutine alone
// uses it.
type cmID struct {
	cookie  uint64     // chosen by the client; 0: its events are not counted
	channel *cmChannel // on which it is; cmMigrate changes it
	groups  []*object  // memberships of an ID
	group   netip.Addr // of a membership
}

// Close ends the channel and its IDs. It may be called again.
func (h *cmChannel) Close() error {
	err := h.CM.Close()
	h.box.close()
	return err
}

// waiting returns how many events wait, and how many messages the client has to take off the channel's socket: 1 if a
// message was sent and no event waits any more, else 0.
func (h *cmChannel) waiting() (left, signals uint32) {
	n, quiet := h.Waiting()
	if quiet {
		signals = 1
	}
	return uint32(n), signals
}

// onCM is takes for requests about an ID, whose body begins with the handle. An abi.CMScope may follow the body.
func onCM[T any](f func(*session, *T) (reply, error)) handler {
	return func(c *session, body []byte, fds []int) (reply, error) {
		size := int(unsafe.Sizeof(*new(T)))
		if scope, err := abi.Get[abi.CMScope](body[min(size, len(body)):]); err == nil {
			body = body[:size]
			if err := c.inScope(abi.Handle(binary.NativeEndian.Uint32(body)), &scope); err != nil {
				return noBody(err)
			}
		}
		return takes(f)(c, body, fds)
	}
}

// inScope refuses a handle that is not one of an ID, or of a membership, on a channel.
func (c *session) inScope(h abi.Handle, scope *abi.CMScope) error {
	o := c.objects[h]
	want := abi.KindCMID
	if scope.Membership != 0 {
		want = abi.KindMembership
	}
	switch {
	case o == nil || o.kind != want:
		return driver.Refuse(c.op.String(), "ID", uint32(h), "an ID, or a membership, that is open", ib.ErrClosed)
	case o.cm.channel.object.handle != scope.Channel:
		return driver.Refuse(c.op.String(), "ID", uint32(h), fmt.Sprintf("one on channel %d", scope.Channel),
			ib.ErrInvalid)
	}
	return nil
}

// addCMID assigns a handle to an ID on a channel.
func (c *session) addCMID(h *cmChannel, id ib.CMID, cookie uint64) abi.Handle {
	o := &object{kind: abi.KindCMID, value: id, cm: &cmID{cookie: cookie, channel: h}}
	o.close = func() error {
		c.forgetCMID(o)
		return id.Close()
	}
	h.ids[o] = struct{}{}
	return c.add(o)
}

// forgetCMID takes an ID off its channel, and removes its memberships.
func (c *session) forgetCMID(o *object) {
	o.cm.channel.remove(o)
	for _, g := range o.cm.groups {
		if c.objects[g.handle] == g {
			c.remove(g)
		}
	}
	o.cm.groups = nil
}

// remove takes an ID off the channel.
func (h *cmChannel) remove(id *object) {
	delete(h.ids, id)
	h.ids = compact(h.ids, &h.gone)
}

// membership returns an ID's membership in a group; nil if there is none.
func (id *cmID) membership(group netip.Addr) *object {
	for _, g := range id.groups {
		if g.cm.group == group {
			return g
		}
	}
	return nil
}

// joined returns the membership of which an event tells that the ID has joined a group: the oldest one of which the
// client has not been told.
func (id *cmID) joined(group netip.Addr) *object {
	for _, g := range id.groups {
		if g.cm.group == group && g.events.Load() == 0 {
			return g
		}
	}
	return nil
}

// addMembership assigns a handle to the membership of an ID in a group. To close it is to leave the group.
func (c *session) addMembership(o *object, group netip.Addr, cookie uint64) abi.Handle {
	g := &object{kind: abi.KindMembership, cm: &cmID{cookie: cookie, channel: o.cm.channel, group: group}}
	g.value = g.cm
	g.close = func() error {
		_ = o.value.(*device.CMID).LeaveMulticast(group) // fails only if the ID is closed
		o.cm.drop(g)
		return nil
	}
	o.cm.groups = append(o.cm.groups, g)
	return c.add(g)
}

// removeMembership removes the membership of an ID that has left the group.
func (c *session) removeMembership(o *object, group netip.Addr) {
	if g := o.cm.membership(group); g != nil {
		o.cm.drop(g)
		c.remove(g)
	}
}

// drop takes a membership off the list.
func (id *cmID) drop(g *object) {
	kept := id.groups[:0]
	for _, other := range id.groups {
		if other != g {
			kept = append(kept, other)
		}
	}
	id.groups = kept
}

// objectOf returns the object of a value; nil if the client has closed it.
func (c *session) objectOf(v any) *object {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.handles[v]
}

// handleOr0 returns the handle of an object, 0 for nil.
func (o *object) handleOr0() abi.Handle {
	if o == nil {
		return 0
	}
	return o.handle
}

// watchChannel ends a channel when the client has closed its last descriptor of the channel's socket: peers hear of
// the end of its IDs at once. The session forgets the handles before its next request. It runs on a goroutine of its
// own, which ends with the channel, and must not touch handles: those are the session's.
func (c *session) watchChannel(h *cmChannel) {
	if h.box.file.AwaitRead(func(fd uintptr) bool { return hungUp(int(fd)) }) != nil {
		return // the channel was closed
	}
	if err := h.Close(); err != nil {
		c.srv.log.Debug("cannot close an event channel whose socket the client has closed", "pid", c.who.Pid,
			"err", err)
	}
	c.mu.Lock()
	c.left = append(c.left, h)
	c.mu.Unlock()
}

// hungUp reports whether nobody has the other end of a socket any more.
func hungUp(fd int) bool { return abi.Poll(fd, 0)&unix.POLLHUP != 0 }

// buryChannels removes the channels that watchChannel has ended, and their IDs.
func (c *session) buryChannels() {
	c.mu.Lock()
	left := c.left
	c.left = nil
	c.mu.Unlock()
	for _, h := range left {
		c.buryIDs(h)
		c.bury(h.object)
	}
}

// buryIDs removes the IDs that have ended with their channel.
func (c *session) buryIDs(h *cmChannel) {
	for o := range h.ids {
		c.forgetCMID(o)
		c.bury(o)
	}
}

// bury removes an object that has ended by itself, if the client has not closed it.
func (c *session) bury(o *object) {
	if c.objects[o.handle] == o {
		c.remove(o)
		c.release(o)
	}
}

// Includes reports whether t is a session of the same process (device.Group): a program may connect by one session
// the QPs that it has created by another, as libibverbs and librdmacm have one each. Processes that the kernel does
// not show here all have number 0.
func (c *session) Includes(t device.Tenant) bool {
	o, ok := t.(*session)
	return ok && (o == c || o.who.Pid != 0 && o.who.Pid == c.who.Pid && o.who.Uid == c.who.Uid)
}
