//go:build rnic && cgo

package rnic

// #include "cmshim.h"
import "C"

import (
	"net/netip"
	"slices"
	"syscall"
	"unsafe"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// This file handles events of librdmacm. When an event gets here rnic_cm_next has copied and acknowledged it, in the
// same hold of cmPort.mu. Pointers in the copy only serve to find the Go value of an ID, except in a request: its ID is
// new, and this package's to destroy.
//
// The ID is updated when its event is read from the kernel, which may be before the application reads it from
// NextEvent. So a method may succeed or fail by a state that the application has not heard of.

// handle updates the event's ID and queues the event on the ID's channel. The caller holds p.mu.
func (p *cmPort) handle(c *C.struct_rnic_cm_event) {
	ev := ib.CMEvent{Type: ib.CMEventType(c._type), Status: int(c.status)}
	if ev.Type == ib.CMConnectRequest {
		p.request(c, &ev)
		return
	}
	id := p.ids[c.id]
	if id == nil {
		return
	}
	if f := cmHandlers[ev.Type]; f != nil {
		f(id, c, &ev)
	}
	id.ch.put(id, ev)
}

// cmHandlers are the functions that update an ID for each type of event. They may change the event before it is queued.
// CMTimewaitExit changes nothing, as its ID is over already.
var cmHandlers = map[ib.CMEventType]func(*cmID, *C.struct_rnic_cm_event, *ib.CMEvent){
	ib.CMAddrResolved:    (*cmID).addrResolved,
	ib.CMAddrError:       (*cmID).addrFailed,
	ib.CMRouteResolved:   (*cmID).routeResolved,
	ib.CMRouteError:      (*cmID).routeFailed,
	ib.CMConnectResponse: (*cmID).responded,
	ib.CMConnectError:    (*cmID).over,
	ib.CMUnreachable:     (*cmID).over,
	ib.CMRejected:        (*cmID).over,
	ib.CMEstablished:     (*cmID).established,
	ib.CMDisconnected:    (*cmID).disconnected,
	ib.CMDeviceRemoval:   (*cmID).over,
	ib.CMMulticastJoin:   (*cmID).joined,
	ib.CMMulticastError:  (*cmID).joined,
	ib.CMAddrChange:      (*cmID).addrChanged,
}

// request creates an ID for a peer's request, or rejects the request by destroying the kernel's ID. The ID belongs to
// the listener until NextEvent returns the event (wasRead): if the listener is closed before, it is closed too.
func (p *cmPort) request(c *C.struct_rnic_cm_event, ev *ib.CMEvent) {
	l := p.ids[c.listener]
	if l == nil || len(l.waiting) >= maxBacklog {
		C.rdma_destroy_id(c.id)
		return
	}
	id := l.ch.adopt(c.id, l.init)
	id.state, id.agreed, id.peer = cmConnecting, true, paramOf(c)
	if err := id.refresh("take a request"); err != nil { // the request arrived by another device
		id.close()
		return
	}
	id.listener = l
	l.waiting[id] = struct{}{}
	ev.Listener, ev.Param = l, id.peer
	// In the event only, so that the ID does not keep it. The same holds for the other events.
	ev.Param.PrivateData = privateOf(c)
	if id.init.Type == ib.UD {
		ev.AH = id.addressVector()
	}
	id.ch.put(id, *ev)
}

// paramOf returns the peer's parameters in an event, without its private data.
func paramOf(c *C.struct_rnic_cm_event) ib.CMConnParam {
	p := &c.param
	return ib.CMConnParam{QPN: ib.QPN(p.qpn), QKey: uint32(p.qkey), SRQ: p.srq != 0,
		ResponderResources: uint8(p.responder_resources), InitiatorDepth: uint8(p.initiator_depth),
		RetryCount: uint8(p.retry_count), RNRRetry: uint8(p.rnr_retry)}
}

// privateOf returns a copy of the private data, which the application owns.
func privateOf(c *C.struct_rnic_cm_event) []byte {
	return C.GoBytes(unsafe.Pointer(&c.param.private_data), C.int(c.param.private_len))
}

// addrResolved stores the addresses that the kernel has chosen. If the route leads through another device the event
// becomes an error. The kernel's ID stays with that device, so there is no use in another attempt with this ID.
func (id *cmID) addrResolved(_ *C.struct_rnic_cm_event, ev *ib.CMEvent) {
	id.state = cmAddrResolved
	if id.refresh("resolve address") != nil { // the kernel has chosen another device
		id.state = cmBound
		ev.Type, ev.Status = ib.CMAddrError, -int(syscall.ENODEV)
	}
}

func (id *cmID) addrFailed(_ *C.struct_rnic_cm_event, _ *ib.CMEvent) { id.state = cmBound }

func (id *cmID) routeResolved(_ *C.struct_rnic_cm_event, _ *ib.CMEvent) {
	id.state = cmRouteResolved
	_ = id.refresh("resolve route") // no error: the device is the one that addrResolved has checked
}

func (id *cmID) routeFailed(_ *C.struct_rnic_cm_event, _ *ib.CMEvent) { id.state = cmAddrResolved }

// responded handles the peer's REP. The state remains cmConnecting until Establish sends the RTU.
func (id *cmID) responded(c *C.struct_rnic_cm_event, ev *ib.CMEvent) {
	id.stopTimer()
	id.peer, id.agreed = paramOf(c), true
	ev.Param = id.peer
	ev.Param.PrivateData = privateOf(c)
}

// established handles the RTU, or the answer of a datagram service. An RTU has no parameters, so the event has those of
// the peer's REQ. The active end of a connection has no such event: Establish sets its state.
func (id *cmID) established(c *C.struct_rnic_cm_event, ev *ib.CMEvent) {
	id.stopTimer()
	id.state = cmConnected
	if id.init.Type == ib.UD {
		id.peer, ev.AH = paramOf(c), goAH(&c.ah)
	}
	ev.Param = id.peer
	ev.Param.PrivateData = privateOf(c)
}

// over handles the end of a connection or of a request. The kernel's ID stays until Close, for the events that follow.
func (id *cmID) over(c *C.struct_rnic_cm_event, ev *ib.CMEvent) {
	id.stopTimer()
	id.state = cmOver
	ev.Param.PrivateData = privateOf(c)
}

// disconnected answers the peer's DREQ, which the kernel does not do by itself. If this end sent
// the DREQ, the call has no effect.
func (id *cmID) disconnected(c *C.struct_rnic_cm_event, ev *ib.CMEvent) {
	id.over(c, ev)
	// The kernel's is ETIMEDOUT if no DREP has come (cma_ib_handler), but the connection has ended all the same.
	ev.Status = 0
	C.rdma_disconnect(id.c)
}

// stopTimer ends the timeout of Connect. If expire has begun already it waits for cmPort.mu, and then sees by state and
// agreed that it has nothing to do.
func (id *cmID) stopTimer() {
	if id.timer != nil {
		id.timer.Stop()
	}
}

// joined handles the result of a join. It finds the group by the number of the join, which librdmacm carries as the
// join's context. A number is not used again, so the event of an earlier join of the group does not match. A join that
// has failed stays in joins until it is left, as it does in librdmacm.
func (id *cmID) joined(c *C.struct_rnic_cm_event, ev *ib.CMEvent) {
	for i := range id.joins {
		if j := &id.joins[i]; j.number == uintptr(c.group) {
			ev.Group, j.raised = j.group, true
		}
	}
	if ev.Type == ib.CMMulticastJoin {
		ev.AH, ev.Param = goAH(&c.ah), ib.CMConnParam{QPN: ib.QPN(c.param.qpn), QKey: uint32(c.param.qkey)}
	}
}

// addrChanged drops an older unread CMAddrChange, so that frequent changes do not queue up.
func (id *cmID) addrChanged(_ *C.struct_rnic_cm_event, _ *ib.CMEvent) {
	id.ch.drop(func(ev *ib.CMEvent) bool { return ev.ID == ib.CMID(id) && ev.Type == ib.CMAddrChange })
}

// JoinMulticast joins a multicast group. With RoCE no subnet manager takes part: the kernel joins the IP group on the
// network interface, so that IGMP reports go out (cma_igmp_send).
func (id *cmID) JoinMulticast(group netip.Addr) error {
	const op = "join"
	if err := id.lock(op, cmBound, cmAddrResolved); err != nil {
		return err
	}
	defer id.port.mu.Unlock()
	group = driver.PlainAddr(group)
	local := id.local.Addr()
	bad := func(allowed string, err error) error { return driver.Refuse(op, "group", group, allowed, err) }
	switch {
	case id.init.Type != ib.UD:
		return driver.Refuse(op, "Type", id.init.Type, "UD", ib.ErrInvalid)
	case !group.IsMulticast():
		return bad("a multicast address: 224.0.0.0/4 or ff00::/8", ib.ErrInvalid)
	case local.IsUnspecified():
		return bad("after Bind to an address, or ResolveAddr", ib.ErrState)
	case local.Is4() != group.Is4():
		return bad("a group of the family of the local address, "+local.String(), ib.ErrInvalid)
	}
	p := id.port
	p.joins++
	to := p.cAddr(netip.AddrPortFrom(group, 0))
	if err := cmCheck(op, C.rnic_cm_join(id.c, &to, C.uintptr_t(p.joins))); err != nil {
		return err
	}
	id.joins = append(id.joins, cmJoin{group: group, number: p.joins})
	return nil
}

// LeaveMulticast undoes the latest join of a multicast group: librdmacm and the kernel both find that one by the bytes
// of the address, so cAddr must give the same ones as for the join. librdmacm waits for the acks of the join's events,
// which is none with cmPort.mu held.
func (id *cmID) LeaveMulticast(group netip.Addr) error {
	const op = "leave"
	if err := id.lock(op); err != nil {
		return err
	}
	defer id.port.mu.Unlock()
	group = driver.PlainAddr(group)
	latest := len(id.joins) - 1
	for latest >= 0 && id.joins[latest].group != group {
		latest--
	}
	if latest < 0 || id.c == nil {
		return driver.Refuse(op, "group", group, "a group that the ID has joined", ib.ErrInvalid)
	}
	to := id.port.cAddr(netip.AddrPortFrom(group, 0))
	if err := cmCheck(op, C.rnic_cm_leave(id.c, &to)); err != nil {
		return err
	}
	// The kernel has dropped the join's event if it still had that. Otherwise it is the group's last unread one, or all
	// were read: events come in the order of the joins.
	if id.joins[latest].raised {
		id.ch.dropLast(func(ev *ib.CMEvent) bool { return ev.ID == ib.CMID(id) && ev.Group == group })
	}
	id.joins = slices.Delete(id.joins, latest, latest+1)
	return nil
}
