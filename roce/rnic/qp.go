//go:build rnic && cgo

package rnic

// #include "shim.h"
import "C"

import (
	"fmt"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// This file creates and destroys QPs, posts receives and attaches multicast groups; modify.go has states and
// attributes, send.go posts send requests. Each of a QP's two queues has its own lock, so that those who send and those
// who receive do not wait for each other, nor for verbs.

// queuePair is a queue pair. c, pd, typ, num, srq and cap do not change. c is used with the device's mutex held, by
// verbs; posting has a pointer of its own in the C memory of its queue, which is gone once the QP is closed.
type queuePair struct {
	driver.Implementation

	object
	c    *C.struct_ibv_qp
	pd   *pd
	typ  ib.QPType
	num  ib.QPN
	srq  bool     // the QP takes receive requests from an SRQ
	cap  ib.QPCap // what the provider has granted, at least what was asked for
	send sendQueue
	recv recvQueue

	// Written with the device's mutex held, and read by posts without it.
	state atomic.Uint32 // the last that Modify or Query saw
	qkey  atomic.Uint32 // set by Modify; UD requests may ask for it (putAddress)

	windows map[*mw]struct{} // of type 2, bound by this QP; guarded by refs

	rateLimit uint32              // this and the following are guarded by the device's mutex
	groups    map[ib.GID]struct{} // multicast groups that it is attached to
}

// CreateQP creates a QP. An RC QP is made with all extended operations that probe has found (sendOps): they must be
// asked for when it is created. Other types have none here, and are posted to by ibv_post_send only.
func (p *pd) CreateQP(init ib.QPInit) (ib.QP, error) {
	const op = "create QP"
	d := p.dev
	if err := d.checkQP(op, &init); err != nil {
		return nil, err
	}
	if err := p.lock(op); err != nil {
		return nil, err
	}
	defer d.mu.Unlock()
	attr := C.struct_ibv_qp_init_attr{qp_type: uint32(init.Type), cap: cCap(&init.Cap), sq_sig_all: cInt(init.SigAll)}
	uses, domain, err := p.bringTogether(op, &init, &attr)
	if err != nil {
		return nil, err
	}
	var ops C.uint64_t
	if init.Type == ib.RC {
		ops = d.sendOps
	}
	var ex *C.struct_ibv_qp_ex
	c, err := C.rnic_create_qp(d.ctx, p.c, domain, &attr, ops, &ex)
	if c == nil {
		return nil, verbError(op+" of type "+init.Type.String(), err)
	}
	q := &queuePair{c: c, pd: p, typ: init.Type, num: ib.QPN(c.qp_num), srq: init.SRQ != nil, cap: goCap(&attr.cap),
		windows: map[*mw]struct{}{}, groups: map[ib.GID]struct{}{}}
	if err := q.open(op, ex); err != nil {
		C.ibv_destroy_qp(c)
		return nil, err
	}
	d.adopt(&q.object, kindQP, q.free, uses...)
	d.names.add(q.address(), q)
	// By number, which is all that the connection manager knows of a QP.
	d.qps[q.num] = q
	return q, nil
}

// bringTogether finds the objects that the QP uses and puts them into attr. The caller holds the
// device's mutex.
//
// An XRC target has no CQ, since its receives complete on the CQ of the SRQ that the request names. An XRC initiator
// receives nothing, and has a send CQ only (IBTA A14). For a target the result has the domain, which takes the place of
// the PD when it is created.
func (p *pd) bringTogether(op string, init *ib.QPInit, attr *C.struct_ibv_qp_init_attr) (uses []*object,
	domain *C.struct_ibv_xrcd, err error) {
	d := p.dev
	uses = []*object{&p.object}
	if init.Type == ib.XRCTGT {
		x, err := find[*xrcd](d, op, "XRCD", init.XRCD)
		if err != nil {
			return nil, nil, err
		}
		return append(uses, &x.object), x.c, nil
	}
	send, err := find[*cq](d, op, "SendCQ", init.SendCQ)
	if err != nil {
		return nil, nil, err
	}
	uses, attr.send_cq = append(uses, &send.object), send.c.cq
	if init.Type == ib.XRCINI {
		return uses, nil, nil
	}
	recv, err := find[*cq](d, op, "RecvCQ", init.RecvCQ)
	if err != nil {
		return nil, nil, err
	}
	uses, attr.recv_cq = append(uses, &recv.object), recv.c.cq
	if init.SRQ != nil {
		s, err := find[*srq](d, op, "SRQ", init.SRQ)
		if err != nil {
			return nil, nil, err
		}
		uses, attr.srq = append(uses, &s.object), s.c
	}
	return uses, nil, nil
}

// checkQP refuses QPs that no device could create, and sizes beyond this device's. Its errors name the field, which an
// errno of the kernel does not.
func (d *device) checkQP(op string, init *ib.QPInit) error {
	switch init.Type {
	case ib.RC, ib.UC, ib.UD, ib.XRCINI, ib.XRCTGT:
	default:
		return driver.Refuse(op, "Type", init.Type, "RC, UC, UD, XRCINI or XRCTGT", ib.ErrNotSupported)
	}
	for _, c := range []struct {
		attr       string
		value, max int
	}{
		{"Cap.MaxSendWR", init.Cap.MaxSendWR, d.attr.MaxQPWR},
		{"Cap.MaxRecvWR", init.Cap.MaxRecvWR, d.attr.MaxQPWR},
		{"Cap.MaxSendSGE", init.Cap.MaxSendSGE, d.attr.MaxSGE},
		{"Cap.MaxRecvSGE", init.Cap.MaxRecvSGE, d.attr.MaxSGE},
		{"Cap.MaxInline", init.Cap.MaxInline, d.attr.MaxInline},
	} {
		if c.value < 0 || c.value > c.max {
			return driver.Refuse(op, c.attr, c.value, fmt.Sprintf("0 to %d", c.max), ib.ErrInvalid)
		}
	}
	return nil
}

func cCap(c *ib.QPCap) C.struct_ibv_qp_cap {
	return C.struct_ibv_qp_cap{
		max_send_wr: C.uint32_t(c.MaxSendWR), max_recv_wr: C.uint32_t(c.MaxRecvWR),
		max_send_sge: C.uint32_t(c.MaxSendSGE), max_recv_sge: C.uint32_t(c.MaxRecvSGE),
		max_inline_data: C.uint32_t(c.MaxInline),
	}
}

func goCap(c *C.struct_ibv_qp_cap) ib.QPCap {
	return ib.QPCap{
		MaxSendWR: int(c.max_send_wr), MaxRecvWR: int(c.max_recv_wr),
		MaxSendSGE: int(c.max_send_sge), MaxRecvSGE: int(c.max_recv_sge),
		MaxInline: int(c.max_inline_data),
	}
}

// open creates the send and receive queues of the QP, for the sizes that were granted. They are C memory that free
// releases. ex is kept in the send queue, and belongs to the QP. A QP on an SRQ, or of XRC, gets a receive queue too,
// which nothing is posted to.
func (q *queuePair) open(op string, ex *C.struct_ibv_qp_ex) error {
	q.send.c = C.rnic_new_send(q.c, ex, C.uint32_t(q.cap.MaxSendSGE), C.uint32_t(q.cap.MaxInline))
	q.recv.c = C.rnic_new_recv(q.c, nil, C.uint32_t(q.cap.MaxRecvSGE))
	q.recv.maxSGE = q.cap.MaxRecvSGE
	if q.send.c == nil || q.recv.c == nil {
		// free(NULL) does nothing.
		C.rnic_free_send(q.send.c)
		C.rnic_free_recv(q.recv.c)
		return verbError(op, syscall.ENOMEM)
	}
	return nil
}

// address returns the address by which events identify the QP.
func (q *queuePair) address() uintptr { return uintptr(unsafe.Pointer(q.c)) }

// Num returns the QP number.
func (q *queuePair) Num() ib.QPN { return q.num }

// Type returns the transport service.
func (q *queuePair) Type() ib.QPType { return q.typ }

// PostRecv posts receive requests. It looks at the state itself: librxe posts without the kernel, in any state.
func (q *queuePair) PostRecv(wrs []ib.RecvWR) (int, error) {
	const verb = "post receive on"
	q.recv.mu.Lock()
	defer q.recv.mu.Unlock()
	switch {
	case q.recv.c == nil:
		return 0, fmt.Errorf("%s: it is %w", q.op(verb), ib.ErrClosed)
	case q.srq || q.typ == ib.XRCINI || q.typ == ib.XRCTGT:
		return 0, driver.Refuse(q.op(verb), "QP", q.typ,
			"a QP with a receive queue of its own; this one has none, or an SRQ", ib.ErrInvalid)
	case q.lastState() == ib.StateReset:
		return 0, driver.Refuse(q.op(verb), "QP state", ib.StateReset, "INIT and later", ib.ErrState)
	case q.cap.MaxRecvWR == 0:
		return 0, fmt.Errorf("%s: created with MaxRecvWR 0: %w", q.op(verb), ib.ErrQueueFull)
	}
	n, err := q.recv.post(wrs)
	if err != nil {
		err = fmt.Errorf("%s: %w", q.op(verb), err)
	}
	return n, err
}

// op returns the name of a verb on the QP for errors.
func (q *queuePair) op(verb string) string { return fmt.Sprintf("%s QP %#x", verb, uint32(q.num)) }

func (q *queuePair) lastState() ib.QPState { return ib.QPState(q.state.Load()) }

// AttachMulticast adds the QP to a multicast group. It concerns the device only: that the network delivers the group's
// packets to the port takes a join (CMID.JoinMulticast). The 0 is the LID of InfiniBand, which RoCE does not have.
func (q *queuePair) AttachMulticast(group ib.GID) error {
	op := q.op("attach multicast to")
	switch {
	case q.typ != ib.UD:
		return driver.Refuse(op, "Type", q.typ, "UD", ib.ErrInvalid)
	case !group.Addr().IsMulticast():
		return driver.Refuse(op, "group", group.Addr(), "a multicast address in GID form", ib.ErrInvalid)
	}
	if err := q.lock(op); err != nil {
		return err
	}
	defer q.dev.mu.Unlock()
	if _, found := q.groups[group]; found {
		return nil
	}
	c := cGID(group)
	if err := check(op, C.ibv_attach_mcast(q.c, &c, 0)); err != nil {
		return err
	}
	q.groups[group] = struct{}{}
	return nil
}

// DetachMulticast removes the QP from a multicast group.
func (q *queuePair) DetachMulticast(group ib.GID) error {
	op := q.op("detach multicast from")
	if err := q.lock(op); err != nil {
		return err
	}
	defer q.dev.mu.Unlock()
	if _, found := q.groups[group]; !found {
		return driver.Refuse(op, "group", group.Addr(), "one that the QP is attached to", ib.ErrInvalid)
	}
	return q.detach(op, group)
}

// detach is DetachMulticast for a group that the QP is attached to. The caller holds the device's mutex.
func (q *queuePair) detach(op string, group ib.GID) error {
	c := cGID(group)
	if err := check(op, C.ibv_detach_mcast(q.c, &c, 0)); err != nil {
		return err
	}
	delete(q.groups, group)
	return nil
}

// free destroys the QP. It first detaches the multicast groups and windows that would prevent it: the kernel returns
// EBUSY for a QP that is attached to a group (uverbs_free_qp). If it fails later, they stay detached.
//
// The library waits until the QP's events that NextEvent has read are acknowledged. NextEvent needs no lock for that
// which is held here.
func (q *queuePair) free() error {
	op := q.op("close")
	for group := range q.groups {
		if err := q.detach(op, group); err != nil {
			return err
		}
	}
	q.send.mu.Lock()
	defer q.send.mu.Unlock()
	q.recv.mu.Lock()
	defer q.recv.mu.Unlock()
	// With the send queue locked: no post binds another window meanwhile.
	if err := q.releaseWindows(op); err != nil {
		return err
	}
	if err := check(op, C.ibv_destroy_qp(q.c)); err != nil {
		return err
	}
	q.dev.names.remove(q.address())
	delete(q.dev.qps, q.num)
	C.rnic_free_send(q.send.c)
	C.rnic_free_recv(q.recv.c)
	// Under the queues' locks: a post that waits for one finds the queue closed, and touches no freed memory.
	q.send.c, q.recv.c = nil, nil
	return nil
}

// releaseWindows unbinds the windows of type 2 that the QP has bound, by replacing them. The caller holds the device's
// mutex and that of the send queue. Deleting from windows while it is ranged over, as renew does, is legal.
func (q *queuePair) releaseWindows(op string) error {
	r := &q.dev.refs
	r.Lock()
	defer r.Unlock()
	for w := range q.windows {
		if err := w.renew(op); err != nil {
			return err
		}
	}
	return nil
}
