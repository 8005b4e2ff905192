//go:build rnic && cgo

package rnic

// #include "cmshim.h"
import "C"

import (
	"errors"
	"fmt"
	"net/netip"
	"syscall"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// This file has the methods of an ID that make and end connections. Each checks what it can, makes one call of
// librdmacm, and then sets the state in which the next method is allowed. cm_event.go has the other half: what events
// do to the state. The kernel has a state of its own for the ID, and refuses with EINVAL what does not fit that.
//
// All hold cmPort.mu from the check of the state to the change. The ID's c is not nil in the states before the end:
// release, which makes it nil, sets cmOver.

// resolveTimeout is used for a timeout of 0, with which the kernel would not wait at all.
const resolveTimeout = 10 * time.Second

// maxBacklog is how many requests a listener may leave unread; more are rejected. It is rdma_ucm's default
// (sysctl net.rdma_ucm.max_backlog).
const maxBacklog = 1024

// Bind binds the ID to a local address. The kernel reserves the port in the ID's port space, which all processes of the
// network namespace share. Query returns the port that it has chosen for 0.
func (id *cmID) Bind(local netip.AddrPort) error {
	const op = "bind"
	if err := id.lock(op, cmIdle); err != nil {
		return err
	}
	defer id.port.mu.Unlock()
	return id.bind(op, local)
}

// bind is the part of Bind under cmPort.mu. If the kernel has bound the ID to another device, bind fails although the
// ID is bound: an ID cannot be bound again, and is to be closed.
func (id *cmID) bind(op string, local netip.AddrPort) (err error) {
	if err := id.port.checkZone(op, local.Addr(), ib.ErrNoAddr); err != nil {
		return err
	}
	a := driver.PlainAddr(local.Addr())
	switch {
	case !a.IsValid():
		// As of sockets: both families, unless CMOptionAFOnly says otherwise.
		a = netip.IPv6Unspecified()
	case !a.IsUnspecified():
		if a, err = id.port.localAddr(op, a); err != nil {
			return err
		}
	}
	at := id.port.cAddr(netip.AddrPortFrom(a, local.Port()))
	if err := id.inUse(op, local.Port(), C.rnic_cm_bind(id.c, &at)); err != nil {
		return err
	}
	id.state = cmBound
	return id.refresh(op)
}

// inUse is cmCheck for calls that bind a port. It names the port in the error if it is in use.
func (id *cmID) inUse(op string, port uint16, ret C.int) error {
	err := cmCheck(op, ret)
	if errors.Is(err, ib.ErrAddrInUse) {
		allowed := fmt.Sprintf("one that no other ID has reserved at that address in port space %v; 0 for a free one",
			id.init.Space)
		return driver.Refuse(op, "port", port, allowed, err)
	}
	return err
}

// Listen starts accepting connection requests for the ID's port. At an unspecified address the kernel listens on all
// devices of the machine, and this package rejects what arrives by another (cmPort.request).
func (id *cmID) Listen(backlog int) error {
	const op = "listen"
	if err := id.lock(op, cmIdle, cmBound); err != nil {
		return err
	}
	defer id.port.mu.Unlock()
	if backlog < 0 {
		return driver.Refuse(op, "backlog", backlog, "at least 1; 0 for the most", ib.ErrInvalid)
	}
	if id.state == cmIdle {
		if err := id.bind(op, netip.AddrPort{}); err != nil {
			return err
		}
	}
	// The reader takes all requests from the kernel at once. So those beyond the backlog wait here, up to maxBacklog,
	// where their senders would otherwise repeat them.
	if ret, err := C.rdma_listen(id.c, maxBacklog); ret != 0 {
		return cmResult(op, ret, err)
	}
	id.state, id.waiting = cmListening, map[*cmID]struct{}{}
	return id.refresh(op)
}

// ResolveAddr finds the local address from which dst is reached. Left alone the kernel would choose the source by the
// routes of the machine, and with it the device. So an ID that is not bound gets its source from this device's GIDs. If
// none fits, or the ID is bound to an unspecified address, the kernel chooses, and addrResolved checks the outcome.
func (id *cmID) ResolveAddr(local, dst netip.AddrPort, timeout time.Duration) (err error) {
	const op = "resolve address"
	if err := id.lock(op, cmIdle, cmBound); err != nil {
		return err
	}
	defer id.port.mu.Unlock()
	p, to, from := id.port, driver.PlainAddr(dst.Addr()), driver.PlainAddr(local.Addr())
	switch {
	case !to.IsValid(), to.IsMulticast() && id.init.Type != ib.UD:
		return driver.Refuse(op, "destination", dst.Addr(), "the peer's own address, with UD a group's", ib.ErrInvalid)
	case to.IsUnspecified() || to.IsLoopback(): // this device, as in Linux's cma_bind_loopback
		if own, err := p.ownAddr(op, to); err == nil {
			to = own
		}
	}
	if err := p.checkZone(op, dst.Addr(), ib.ErrNoRoute); err != nil {
		return err
	}
	switch {
	case id.state == cmBound:
		from = id.local.Addr()
		local = id.local
	case !from.IsValid():
		from = unspecifiedOf(to)
	default:
		if err := p.checkZone(op, local.Addr(), ib.ErrNoAddr); err != nil {
			return err
		}
	}
	if from.Is4() != to.Is4() {
		return driver.Refuse(op, "destination", to, fmt.Sprintf("an address of the family of the local one, %v", from),
			ib.ErrInvalid)
	}
	if from.IsUnspecified() { // the kernel's routes may lead through another device
		gids, err := p.dev.GIDs(1)
		if err != nil {
			return err
		}
		if e, ok := ib.SourceGID(gids, to); ok {
			from = e.GID.Addr()
		}
	} else if from, err = p.localAddr(op, from); err != nil {
		return err
	}
	var src C.struct_rnic_addr
	// A bound ID has its source address already.
	if id.state == cmIdle {
		src = p.cAddr(netip.AddrPortFrom(from, local.Port()))
	}
	there := p.cAddr(netip.AddrPortFrom(to, dst.Port()))
	if err := id.inUse(op, local.Port(), C.rnic_cm_resolve_addr(id.c, &src, &there,
		milliseconds(timeout))); err != nil {
		return err
	}
	id.state = cmAddrQuery
	return nil
}

// milliseconds converts a timeout for librdmacm. It rounds up, so that a short one does not become 0, and bounds it to
// what an int holds.
func milliseconds(d time.Duration) C.int {
	if d <= 0 {
		d = resolveTimeout
	}
	return C.int(min((d+time.Millisecond-1)/time.Millisecond, 1<<30))
}

// ResolveRoute finds the route to the resolved address. If the path MTU is set below the port's,
// it sets a path record of its own, as the kernel would use the MTU of the interface. The kernel raises
// CMRouteResolved for that too (ucma_set_ib_path), so the application sees no difference.
func (id *cmID) ResolveRoute(timeout time.Duration) error {
	const op = "resolve route"
	if err := id.lock(op, cmAddrResolved); err != nil {
		return err
	}
	defer id.port.mu.Unlock()
	port, err := id.port.dev.QueryPort(1)
	if err != nil {
		return err
	}
	if id.mtu != 0 && id.mtu < port.ActiveMTU {
		path := id.cPath()
		err = cmCheck(op, C.rnic_cm_set_path(id.c, &path))
	} else if ret, errno := C.rdma_resolve_route(id.c, milliseconds(timeout)); ret != 0 {
		err = cmResult(op, ret, errno)
	}
	if err == nil {
		id.state = cmRouteQuery
	}
	return err
}

// cPath returns the path record that Linux's cma_resolve_iboe_route would make, except for the MTU.
func (id *cmID) cPath() C.struct_rnic_cm_path {
	const lifeTime = 16 // CMA_IBOE_PACKET_LIFETIME; half of the ACK timeout, if that is known
	path := C.struct_rnic_cm_path{
		local: cBytes(ib.GIDFromAddr(id.local.Addr())), remote: cBytes(ib.GIDFromAddr(id.remote.Addr())),
		mtu: C.uint8_t(id.mtu.Code()), traffic_class: C.uint8_t(id.tos), hop_limit: defaultHopLimit,
		packet_life_time: lifeTime,
		flow_label:       C.uint32_t((uint32(id.local.Port())*31 + uint32(id.remote.Port())) & 0xFFFFF),
	}
	if id.ackTimeout > 0 {
		path.packet_life_time = C.uint8_t(id.ackTimeout - 1)
	}
	return path
}

func cBytes(g ib.GID) (c [16]C.uint8_t) {
	for i, b := range g {
		c[i] = C.uint8_t(b)
	}
	return c
}

// The most private data of each message, less the header of rdma_cm if the message has one. Only requests have it, 36
// bytes with both IP addresses: a REQ has room for 92, and a SIDR_REQ for 216.
const (
	connectPrivate, connectUDPrivate = 56, 180
	acceptPrivate, acceptUDPrivate   = 196, 136
	rejectPrivate, rejectUDPrivate   = 148, 136
)

// checkPrivate refuses private data that is too long for the message.
func (id *cmID) checkPrivate(op string, data []byte, connected, datagram int) error {
	most := connected
	if id.init.Type == ib.UD {
		most = datagram
	}
	if len(data) > most {
		return driver.Refuse(op, "private data", fmt.Sprintf("%d bytes", len(data)), fmt.Sprintf("at most %d", most),
			ib.ErrPrivateData)
	}
	return nil
}

// checkQP refuses a QP that is not of this device, or of another type than the ID. The kernel takes any number, as it
// does not know which QP of which process it is. The QP is not kept open by the connection.
func (id *cmID) checkQP(op string, num ib.QPN) error {
	d := id.port.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	if q := d.qps[num]; q != nil && q.typ == id.init.Type {
		return nil
	}
	return driver.Refuse(op, "QPN", fmt.Sprintf("%#x", uint32(num)),
		fmt.Sprintf("an open QP of this device of type %v", id.init.Type), ib.ErrInvalid)
}

// checkParam refuses parameters that a connection cannot have.
func (id *cmID) checkParam(op string, p *ib.CMConnParam) error {
	d := &id.port.dev.attr
	for _, f := range []struct {
		attr  string
		value uint8
		most  int
	}{
		{"ResponderResources", p.ResponderResources, d.MaxQPRdAtomic},
		{"InitiatorDepth", p.InitiatorDepth, d.MaxQPInitRdAtom},
	} {
		// librdmacm takes 255 to mean the maximum (RDMA_MAX_RESP_RES).
		if most := min(f.most, 254); int(f.value) > most {
			return driver.Refuse(op, f.attr, f.value, fmt.Sprintf("0 to %d", most), ib.ErrInvalid)
		}
	}
	return id.checkQP(op, p.QPN)
}

// cParam returns the C form of parameters that have been checked. The private data is copied into the struct, so that C
// gets no pointer to Go memory within it. The Q_Key is left out, as rdma_ucm does not pass it on.
func cParam(p *ib.CMConnParam) (c C.struct_rnic_cm_param) {
	c.qpn, c.responder_resources, c.initiator_depth = C.uint32_t(p.QPN), C.uint8_t(p.ResponderResources),
		C.uint8_t(p.InitiatorDepth)
	c.retry_count, c.rnr_retry = C.uint8_t(min(p.RetryCount, 7)), C.uint8_t(min(p.RNRRetry, 7))
	if p.SRQ {
		c.srq = 1
	}
	privateBytes(&c, p.PrivateData)
	return c
}

// Connect requests a connection, or for UD a datagram service. For UD only the private data counts, since the question
// names no QP. Timeout is this package's: rdma_ucm has none, so a timer of Go ends the attempt (expire).
func (id *cmID) Connect(p ib.CMConnParam) error {
	const op = "connect"
	if err := id.lock(op, cmRouteResolved); err != nil {
		return err
	}
	defer id.port.mu.Unlock()
	if err := id.checkPrivate(op, p.PrivateData, connectPrivate, connectUDPrivate); err != nil {
		return err
	}
	if id.init.Type != ib.UD {
		if err := id.checkParam(op, &p); err != nil {
			return err
		}
	}
	c := cParam(&p)
	if err := cmCheck(op, C.rnic_cm_connect(id.c, &c)); err != nil {
		return err
	}
	id.state, id.active = cmConnecting, true
	if p.Timeout > 0 {
		id.timer = time.AfterFunc(p.Timeout, id.expire)
	}
	return nil
}

// expire ends a Connect that has timed out. It destroys the kernel's ID, which withdraws the
// request by a REJ with reason 4. The timer calls it on a goroutine of its own, maybe after the answer or the end of
// the ID: state and agreed tell.
func (id *cmID) expire() {
	id.port.mu.Lock()
	defer id.port.mu.Unlock()
	if id.state == cmConnecting && !id.agreed {
		id.release()
		id.ch.put(id, ib.CMEvent{Type: ib.CMUnreachable, Status: -int(syscall.ETIMEDOUT)})
	}
}

// Accept answers a request. For a connection the state remains cmConnecting until the RTU comes (established). A
// datagram service has no RTU, and is complete with the answer.
func (id *cmID) Accept(p ib.CMConnParam) error {
	const op = "accept"
	if err := id.lock(op, cmConnecting); err != nil {
		return err
	}
	defer id.port.mu.Unlock()
	if err := id.answerable(op, !id.active && !id.answered); err != nil {
		return err
	}
	if err := id.checkPrivate(op, p.PrivateData, acceptPrivate, acceptUDPrivate); err != nil {
		return err
	}
	if id.init.Type != ib.UD {
		if err := id.checkParam(op, &p); err != nil {
			return err
		}
	} else if err := id.checkService(op, &p); err != nil {
		return err
	}
	c := cParam(&p)
	if err := takenBack(op, C.rnic_cm_accept(id.c, &c)); err != nil {
		return err
	}
	id.answered = true
	if id.init.Type == ib.UD {
		id.state = cmConnected
	}
	return nil
}

// checkService refuses a datagram service whose Q_Key the kernel would not send to the peer.
func (id *cmID) checkService(op string, p *ib.CMConnParam) error {
	if p.QKey != 0 && p.QKey != ib.DefaultCMQKey { // Linux's ucma_copy_conn_param drops it
		return driver.Refuse(op, "QKey", fmt.Sprintf("%#x", p.QKey),
			fmt.Sprintf("0 or %#x: rdma_ucm sends no other", ib.DefaultCMQKey), ib.ErrNotSupported)
	}
	return id.checkQP(op, p.QPN)
}

// takenBack is cmCheck for Accept and the calls that prepare it. The kernel reports no event if the peer's request
// ends before it is accepted (Linux's ucma_event_handler), but then refuses the answer with EINVAL.
func takenBack(op string, ret C.int) error {
	if syscall.Errno(ret) == syscall.EINVAL {
		return driver.Refuse(op, "CM ID", "over",
			"one whose peer still waits: it has taken its request back, or given up",
			ib.ErrState)
	}
	return cmCheck(op, ret)
}

// answerable returns an error if may is false, as only the other end may answer or the answer was
// already given, or if the kernel's ID has ended.
func (id *cmID) answerable(op string, may bool) error {
	if may && id.c != nil {
		return nil
	}
	return driver.Refuse(op, "CM ID", "without a request to answer",
		"Accept after CMConnectRequest, Establish after CMConnectResponse", ib.ErrState)
}

// Establish answers CMConnectResponse. It sends the RTU, after which the peer may send on the connection. librdmacm
// permits it only to IDs without a QP of their own, as all are here.
func (id *cmID) Establish() error {
	const op = "establish"
	if err := id.lock(op, cmConnecting); err != nil {
		return err
	}
	defer id.port.mu.Unlock()
	if err := id.answerable(op, id.active && id.agreed); err != nil {
		return err
	}
	ret, errno := C.rdma_establish(id.c)
	if err := takenBack(op, cmErrno(ret, errno)); err != nil {
		return err
	}
	id.state = cmConnected
	return nil
}

// Reject answers CMConnectRequest or CMConnectResponse. No event follows at this end. The kernel's ID stays until
// Close.
func (id *cmID) Reject(r ib.CMReject) error {
	const op = "reject"
	if err := id.lock(op, cmConnecting); err != nil {
		return err
	}
	defer id.port.mu.Unlock()
	if err := id.answerable(op, id.agreed && !id.answered); err != nil {
		return err
	}
	if err := id.checkPrivate(op, r.PrivateData, rejectPrivate, rejectUDPrivate); err != nil {
		return err
	}
	switch {
	case r.Reason != 0 && r.Reason != ib.RejectConsumer && r.Reason != ib.RejectVendorOption:
		return driver.Refuse(op, "Reason", uint16(r.Reason), "28 or 35: rdma_ucm sends no other", ib.ErrNotSupported)
	case len(r.Info) > 0:
		return driver.Refuse(op, "Info", fmt.Sprintf("%d bytes", len(r.Info)), "none: rdma_ucm sends none",
			ib.ErrNotSupported)
	}
	var c C.struct_rnic_cm_param
	privateBytes(&c, r.PrivateData)
	if err := takenBack(op, C.rnic_cm_reject(id.c, cInt(r.Reason == ib.RejectVendorOption), &c)); err != nil {
		return err
	}
	id.state = cmOver
	return nil
}

// Delay fails: the kernel sends a MRA for every request by itself (Linux's cma_ib_req_handler).
func (id *cmID) Delay(time.Duration) error {
	const op = "delay"
	if err := id.lock(op, cmConnecting); err != nil {
		return err
	}
	id.port.mu.Unlock()
	return fmt.Errorf("%s: the kernel does so by itself: %w", op, ib.ErrNotSupported)
}

// Disconnect ends a connection. A listener at an address of the device has none, which is no error.
// It sends a DREQ. The state changes with the event that follows, which is CMDisconnected also without an answer.
func (id *cmID) Disconnect() error {
	const op = "disconnect"
	if err := id.lock(op, cmListening, cmConnecting, cmConnected, cmOver); err != nil {
		return err
	}
	defer id.port.mu.Unlock()
	if id.state == cmListening && id.local.Addr().IsUnspecified() { // librdmacm crashes without a device
		return id.check(op, cmConnecting, cmConnected, cmOver)
	}
	if id.c == nil || id.state == cmOver || id.init.Type == ib.UD {
		return nil
	}
	ret, err := C.rdma_disconnect(id.c)
	if errors.Is(err, syscall.EINVAL) { // there is no connection, or it has ended
		return nil
	}
	return cmResult(op, ret, err)
}

// Notify reports an event of the QP to the kernel. The kernel does not hear of it by itself, since events of a QP go to
// the process that owns the QP. With EventCommEst the kernel takes the connection as established before the RTU, which
// may be lost, and raises CMEstablished.
func (id *cmID) Notify(t ib.EventType) error {
	const op = "notify"
	if err := id.lock(op); err != nil {
		return err
	}
	defer id.port.mu.Unlock()
	if t != ib.EventCommEst || id.c == nil {
		return nil
	}
	ret, err := C.rdma_notify(id.c, C.IBV_EVENT_COMM_EST)
	if errors.Is(err, syscall.EISCONN) || errors.Is(err, syscall.EINVAL) { // already established, or no connection
		return nil
	}
	return cmResult(op, ret, err)
}
