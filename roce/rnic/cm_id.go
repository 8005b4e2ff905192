//go:build rnic && cgo

package rnic

// #include "cmshim.h"
import "C"

import (
	"cmp"
	"fmt"
	"net/netip"
	"time"
	"unsafe"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// This file has the ID itself: its state, options, attributes for QPs, and its end. An ID lasts as long as the program
// keeps it. The kernel's ID behind it may end earlier: with the device, or with a Connect that timed out.

// cmState is the state of an ID, as in the kernel's rdma_cm (enum rdma_cm_state). Methods and events change it.
type cmState uint8

const (
	cmIdle cmState = iota
	cmBound
	cmAddrQuery
	cmAddrResolved
	cmRouteQuery
	cmRouteResolved
	cmListening
	cmConnecting // has sent or received a request; not connected yet
	cmConnected
	cmOver // the connection or request has ended; only Close is useful
	cmClosed
	numCMStates
)

// String returns the state's name.
func (s cmState) String() string { return cmStateText[s] }

var cmStateText = [numCMStates]string{"idle", "bound", "resolving the address", "address resolved",
	"resolving the route", "route resolved", "listening", "connecting", "connected", "over", "closed"}

// cmID is an ID of the connection manager. It owns c, which only release destroys. c's channel in librdmacm is that of
// ch: moveTo changes both together.
type cmID struct {
	driver.Implementation

	port *cmPort

	// Guarded by cmPort.mu.
	c      *C.struct_rdma_cm_id // nil after release
	ch     *cmChannel           // where its events go
	init   ib.CMIDInit
	state  cmState
	local  netip.AddrPort
	remote netip.AddrPort
	path   ib.AHAttr // TrafficClass, HopLimit, FlowLabel
	mtu    ib.MTU    // of the path; before ResolveRoute CMOptionPathMTU, or 0 for the port's

	reuse, afOnly bool
	tos           uint8
	ackTimeout    int // -1 leaves it to the kernel

	// For a connection, a resolution or a request.
	active   bool           // this end has called Connect
	agreed   bool           // the peer's parameters are known, so the QP may go to RTR
	answered bool           // Accept was called
	peer     ib.CMConnParam // the peer's parameters, without private data
	timer    *time.Timer    // timeout of Connect

	// For a request whose event is unread.
	listener *cmID

	// For a listener.
	waiting map[*cmID]struct{} // requests whose event is unread

	joins []cmJoin // of multicast groups, the latest last
}

// cmJoin is a join of a multicast group.
type cmJoin struct {
	group  netip.Addr
	number uintptr // the join's context in librdmacm
	raised bool    // its event has been queued
}

var _ ib.CMID = (*cmID)(nil)

// completeCMID checks the parameters of a new ID, and fills in defaults. rdma_create_id derives the type from the port
// space, so a type is accepted only if it is that one.
func completeCMID(op string, init *ib.CMIDInit) error {
	if init.Space == 0 {
		init.Space = ib.PortSpaceTCP
		if init.Type == ib.UD {
			init.Space = ib.PortSpaceUDP
		}
	}
	typ, known := map[ib.PortSpace]ib.QPType{ib.PortSpaceTCP: ib.RC, ib.PortSpaceIB: ib.RC, ib.PortSpaceUDP: ib.UD,
		ib.PortSpaceIPoIB: ib.UD}[init.Space]
	if init.Type == 0 {
		init.Type = typ
	}
	switch {
	case !known:
		return driver.Refuse(op, "Space", init.Space, "TCP, UDP, IB, IPoIB", ib.ErrInvalid)
	case init.Type != typ: // Linux's ucma_get_qp_type; librdmacm names no type
		return driver.Refuse(op, "Type", init.Type,
			fmt.Sprintf("%v, the only one that librdmacm has in port space %v", typ,
				init.Space), ib.ErrNotSupported)
	case init.ServiceID != 0:
		return driver.Refuse(op, "ServiceID", fmt.Sprintf("%#x", init.ServiceID),
			"0: over RoCE librdmacm knows the ports of a Space only", ib.ErrNotSupported)
	}
	return nil
}

// lock locks cmPort.mu for a call that is allowed in the given states, or in all states if none
// is given. The caller unlocks it, unless lock returns an error.
func (id *cmID) lock(op string, states ...cmState) error {
	if err := id.port.lock(op); err != nil {
		return err
	}
	err := id.check(op, states...)
	if err != nil {
		id.port.mu.Unlock()
	}
	return err
}

// check is the part of lock that looks at the state. The caller holds cmPort.mu.
func (id *cmID) check(op string, states ...cmState) error {
	if id.state == cmClosed {
		return fmt.Errorf("%s: CM ID: %w", op, ib.ErrClosed)
	}
	for _, s := range states {
		if id.state == s {
			return nil
		}
	}
	if len(states) == 0 {
		return nil
	}
	return driver.Refuse(op, "CM ID", id.state, fmt.Sprint(states), ib.ErrState)
}

// refresh takes addresses and path from librdmacm. It returns an error if the kernel has assigned
// the ID to another device with the same address.
//
// librdmacm has queried them from the kernel in the call, or with the event, before. Names of devices are compared
// since librdmacm has another context of the same device. An ID has no device as long as it is not bound, or bound to
// an unspecified address.
func (id *cmID) refresh(op string) error {
	var info C.struct_rnic_cm_info
	C.rnic_cm_query(id.c, &info)
	if info.device != nil && C.GoString(info.device) != id.port.dev.name {
		return driver.Refuse(op, "address", goAddr(&info.local).Addr(), fmt.Sprintf(
			"one that the kernel reaches by %s; this it reaches by %s. Bind to an address of the device",
			id.port.dev.name,
			C.GoString(info.device)), ib.ErrNoAddr)
	}
	// Copies, so that Query works when the kernel's ID is gone.
	id.local, id.remote = goAddr(&info.local), goAddr(&info.remote)
	if info.mtu != 0 {
		id.mtu = ib.MTUFromCode(int(info.mtu))
		id.path = ib.AHAttr{TrafficClass: uint8(info.traffic_class), HopLimit: uint8(info.hop_limit),
			FlowLabel: uint32(info.flow_label)}
	}
	return nil
}

// addressVector returns the ID's path in the form for QPs and address handles. If the local address has left the GID
// table meanwhile, the SGID index is 0, which may be that of another address.
func (id *cmID) addressVector() ib.AHAttr {
	ah := id.path
	row, _, _ := id.port.row(id.local.Addr())
	ah.DGID, ah.SGIDIndex, ah.Port = ib.GIDFromAddr(id.remote.Addr()), row.Index, max(row.port, 1)
	return ah
}

// Query describes the ID. It asks librdmacm nothing, so it works also when the kernel's ID has ended.
func (id *cmID) Query() (ib.CMIDAttr, error) {
	if err := id.lock("query CM ID"); err != nil {
		return ib.CMIDAttr{}, err
	}
	defer id.port.mu.Unlock()
	a := ib.CMIDAttr{Space: id.init.Space, Type: id.init.Type, Local: id.local, Remote: id.remote, PathMTU: id.mtu}
	if a.PathMTU == 0 {
		port, err := id.port.dev.QueryPort(1)
		if err != nil {
			return ib.CMIDAttr{}, err
		}
		a.PathMTU = port.ActiveMTU
	}
	if id.remote.IsValid() && !id.local.Addr().IsUnspecified() {
		a.AH = id.addressVector()
	}
	return a, nil
}

// SetOption sets an option.
func (id *cmID) SetOption(o ib.CMOption, value int) error {
	const op = "set CM option"
	if err := id.lock(op); err != nil {
		return err
	}
	defer id.port.mu.Unlock()
	// librdmacm has no option for the path MTU, which ResolveRoute uses.
	if err := id.checkOption(op, o, value); err != nil || o == ib.CMOptionPathMTU {
		return err
	}
	if id.c == nil {
		return driver.Refuse(op, "CM ID", id.state, "before the end", ib.ErrState)
	}
	if err := cmCheck(op, C.rnic_cm_set_option(id.c, C.int(o), C.int(value))); err != nil {
		return err
	}
	switch o {
	case ib.CMOptionTOS:
		id.tos = uint8(value)
	case ib.CMOptionReuseAddr:
		id.reuse = value != 0
	case ib.CMOptionAFOnly:
		id.afOnly = value != 0
	case ib.CMOptionAckTimeout:
		id.ackTimeout = value
	}
	return nil
}

// checkOption refuses a value that is out of range, and options that are set too late. It stores
// the path MTU for ResolveRoute. CMOptionTOS and CMOptionAckTimeout are accepted at any time, but the path gets them
// in ResolveRoute.
func (id *cmID) checkOption(op string, o ib.CMOption, value int) error {
	bad := func(allowed string) error {
		return driver.Refuse(op, fmt.Sprintf("option %d", o), value, allowed, ib.ErrInvalid)
	}
	switch o {
	case ib.CMOptionTOS:
		if value < 0 || value > 255 {
			return bad("0 to 255")
		}
	case ib.CMOptionReuseAddr, ib.CMOptionAFOnly:
		return id.check(op, cmIdle)
	case ib.CMOptionAckTimeout:
		if value < 0 || value > 31 {
			return bad("a 5-bit code, 0 to 31")
		}
	case ib.CMOptionPathMTU:
		port, err := id.port.dev.QueryPort(1)
		if err != nil {
			return err
		}
		if mtu := ib.MTU(value); !mtu.Valid() || mtu > port.ActiveMTU {
			return bad(fmt.Sprintf("256, 512, 1024, 2048 or 4096, at most the port's %d", port.ActiveMTU))
		}
		if err := id.check(op, cmIdle, cmBound, cmAddrQuery, cmAddrResolved); err != nil {
			return err
		}
		id.mtu = ib.MTU(value)
	default:
		return driver.Refuse(op, "option", int(o), "one of ib.CMOption", ib.ErrNotSupported)
	}
	return nil
}

// InitQPAttr returns the attributes with which Modify takes the QP to a state. Those for INIT are known without a peer.
// Those for RTR and RTS come from the REQ and the REP, so the kernel has them once both ends' parameters are known
// (agreed), and until its ID ends.
func (id *cmID) InitQPAttr(to ib.QPState) (attr ib.QPAttr, mask ib.QPAttrMask, err error) {
	const op = "init QP attributes"
	if err := id.lock(op); err != nil {
		return attr, 0, err
	}
	defer id.port.mu.Unlock()
	switch {
	case to != ib.StateInit && to != ib.StateRTR && to != ib.StateRTS:
		return attr, 0, driver.Refuse(op, "State", to, "INIT, RTR, RTS", ib.ErrInvalid)
	case id.init.Type == ib.UD:
		attr, mask = datagramAttr(to)
		return attr, mask, nil
	case to == ib.StateInit && !id.agreed:
		return ib.QPAttr{State: to, Port: 1}, ib.AttrState | ib.AttrPKeyIndex | ib.AttrPort | ib.AttrAccess, nil
	case !id.agreed || id.c == nil:
		return attr, 0, driver.Refuse(op, "CM ID", id.state, "after CMConnectRequest or CMConnectResponse", ib.ErrState)
	}
	if to == ib.StateInit {
		return id.kernelAttr(op, to)
	}
	// The kernel fills in only the attributes in a state's mask; this returns those of RTR and RTS.
	attr, mask, err = id.kernelAttr(op, ib.StateRTR)
	rts, rtsMask, rtsErr := id.kernelAttr(op, ib.StateRTS)
	if err := cmp.Or(err, rtsErr); err != nil {
		return ib.QPAttr{}, 0, err
	}
	attr.State, attr.SQPSN, attr.MaxRdAtomic = to, rts.SQPSN, rts.MaxRdAtomic
	attr.Timeout, attr.RetryCnt, attr.RNRRetry = rts.Timeout, rts.RetryCnt, rts.RNRRetry
	if to == ib.StateRTS {
		mask = rtsMask
	}
	return attr, mask, nil
}

// kernelAttr asks the kernel for the QP's attributes. It fails with ib.ErrState if the peer has ended its request
// meanwhile (takenBack).
func (id *cmID) kernelAttr(op string, to ib.QPState) (ib.QPAttr, ib.QPAttrMask, error) {
	var c C.struct_ibv_qp_attr
	var mask C.int
	if err := takenBack(op, C.rnic_cm_init_qp_attr(id.c, C.int(to), &c, &mask)); err != nil {
		return ib.QPAttr{}, 0, err
	}
	return goAttr(&c), ib.QPAttrMask(mask) & cmAttrMask, nil
}

// cmAttrMask has the attributes that a connection manager returns: no alternate path, and no
// kernel-internal bits (IB_QP_SMAC and others).
const cmAttrMask = ib.AttrState | ib.AttrPKeyIndex | ib.AttrPort | ib.AttrAccess | ib.AttrAV | ib.AttrPathMTU |
	ib.AttrDestQPN | ib.AttrRQPSN | ib.AttrSQPSN | ib.AttrMaxDestRdAtomic | ib.AttrMinRNRTimer | ib.AttrMaxRdAtomic |
	ib.AttrTimeout | ib.AttrRetryCnt | ib.AttrRNRRetry

// datagramAttr returns the attributes that librdmacm sets for UD QPs (ucma_init_ud_qp). They do not depend on the ID,
// as nothing is negotiated with a peer.
func datagramAttr(to ib.QPState) (ib.QPAttr, ib.QPAttrMask) {
	switch to {
	case ib.StateInit:
		return ib.QPAttr{State: to, Port: 1, QKey: ib.DefaultCMQKey},
			ib.AttrState | ib.AttrPKeyIndex | ib.AttrPort | ib.AttrQKey
	case ib.StateRTS:
		return ib.QPAttr{State: to}, ib.AttrState | ib.AttrSQPSN
	}
	return ib.QPAttr{State: to}, ib.AttrState
}

// Migrate moves the ID, with its unread requests, to another channel of the device. Requests that come meanwhile, which
// moveTo reads, are on the new channel already.
func (id *cmID) Migrate(to ib.CM) error {
	const op = "migrate CM ID"
	if err := id.lock(op); err != nil {
		return err
	}
	defer id.port.mu.Unlock()
	ch, ok := to.(*cmChannel)
	if !ok || ch.port != id.port {
		return driver.Refuse(op, "channel", fmt.Sprintf("%T", to), "a channel of this device", ib.ErrForeign)
	}
	if ch.closed {
		return fmt.Errorf("%s: event channel: %w", op, ib.ErrClosed)
	}
	if err := id.moveTo(op, ch); err != nil {
		return err
	}
	for child := range id.waiting {
		if err := child.moveTo(op, ch); err != nil {
			return err
		}
	}
	return nil
}

// moveTo moves the ID and its unread events to a channel. The kernel moves the events that it
// still has, but does not wake a reader of the new channel (Linux's ucma_migrate_id), so moveTo
// drains that. Those that were read before are moved first, so the order of the ID's events stays. The caller holds
// cmPort.mu.
func (id *cmID) moveTo(op string, ch *cmChannel) error {
	from := id.ch
	if from == ch {
		return nil
	}
	if id.c != nil {
		// It waits until the ID's events are acknowledged, which they always are when mu is free.
		if ret, err := C.rdma_migrate_id(id.c, ch.c); ret != 0 {
			return cmResult(op, ret, err)
		}
	}
	delete(from.ids, id)
	ch.ids[id] = struct{}{}
	id.ch = ch
	from.drop(func(ev *ib.CMEvent) bool {
		if ev.ID != ib.CMID(id) {
			return false
		}
		ch.unread = append(ch.unread, *ev)
		return true
	})
	ch.wake()
	return ch.drain()
}

// Close ends the ID. It does not look at whether the device is closed: an ID of a closed device is still to be taken
// off its channel, with its unread events.
func (id *cmID) Close() error {
	id.port.mu.Lock()
	defer id.port.mu.Unlock()
	id.close()
	return nil
}

// close ends the ID, and removes it from its channel. The caller holds cmPort.mu, and may range over the channel's ids
// or the listener's waiting, from which it deletes the ID.
func (id *cmID) close() {
	if id.state == cmClosed {
		return
	}
	// First, so that the kernel raises no events of an ID that nobody finds.
	id.release()
	id.ch.drop(func(ev *ib.CMEvent) bool { return ev.ID == ib.CMID(id) })
	if id.listener != nil {
		delete(id.listener.waiting, id)
		id.listener = nil
	}
	delete(id.ch.ids, id)
	id.state = cmClosed
}

// release destroys the kernel's ID. The kernel then notifies the peer: it disconnects a
// connection, rejects the peer's request, or withdraws our own (Linux's cm_destroy_id).
// The events that the kernel still has of it are dropped. Those in ch.unread stay. The caller holds cmPort.mu.
func (id *cmID) release() {
	// For expire too, which may wait for mu on the timer's goroutine.
	id.state = cmOver
	// Requests that the application has not seen have no owner but the listener. Closing them rejects them.
	for child := range id.waiting {
		child.close()
	}
	if id.timer != nil {
		id.timer.Stop()
	}
	if id.c == nil {
		return
	}
	// Before its memory is freed, which the library may use for the next ID.
	delete(id.port.ids, id.c)
	C.rdma_destroy_id(id.c)
	id.c = nil
}

// wasRead detaches a request from its listener, since NextEvent has returned it: closing the
// listener does not close it any more.
func (id *cmID) wasRead() {
	if id.listener != nil {
		delete(id.listener.waiting, id)
		id.listener = nil
	}
}

// privateBytes copies private data to its C form, which has room for it: 255 bytes, as the length has 8 bits. Callers
// have checked it against the less that the message takes (checkPrivate).
func privateBytes(p *C.struct_rnic_cm_param, data []byte) {
	p.private_len = C.uint8_t(copy((*[255]byte)(unsafe.Pointer(&p.private_data))[:], data))
}
