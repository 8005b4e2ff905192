//go:build rnic && cgo

package rnic

// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// Modify changes state and attributes. The kernel decides. checkAttr comes before it for values that it would not see
// as they are, and explain after it, to name the attribute that an errno does not name.
func (q *queuePair) Modify(attr ib.QPAttr, mask ib.QPAttrMask) error {
	op := q.op("modify")
	if err := q.lock(op); err != nil {
		return err
	}
	defer q.dev.mu.Unlock()
	// Before the conversion: C fields are shorter, and a value that is cut would be taken for another one.
	if err := q.dev.checkAttr(op, &attr, mask); err != nil {
		return err
	}
	c := cAttr(&attr)
	if ret := C.ibv_modify_qp(q.c, &c, C.int(mask)); ret != 0 {
		return q.explain(op, &attr, mask, syscall.Errno(max(ret, -ret)))
	}
	if mask&ib.AttrState != 0 {
		// The kernel moves a QP to ERR by itself, too: only Query shows that.
		q.state.Store(uint32(attr.State))
	}
	if mask&ib.AttrQKey != 0 {
		q.qkey.Store(attr.QKey)
	}
	if mask&ib.AttrRateLimit != 0 {
		q.rateLimit = attr.RateLimit
	}
	return nil
}

// attrCheck has the bounds of one attribute. They are checked if the mask has its bit.
type attrCheck struct {
	bit     ib.QPAttrMask
	value   func(a *ib.QPAttr) int
	min     int
	max     func(d *ib.DeviceAttr) int
	meaning string
}

func upTo(n int) func(*ib.DeviceAttr) int { return func(*ib.DeviceAttr) int { return n } }

// attrChecks holds the attributes that are integers, in the order in which they
// are reported.
var attrChecks = []attrCheck{
	{ib.AttrPort, func(a *ib.QPAttr) int { return a.Port }, 1, func(d *ib.DeviceAttr) int { return d.Ports },
		"the ports of the device"},
	{ib.AttrPKeyIndex, func(a *ib.QPAttr) int { return a.PKeyIndex }, 0, upTo(0), "the default partition"},
	{ib.AttrDestQPN, func(a *ib.QPAttr) int { return int(a.DestQPN) }, 2, upTo(int(ib.QPNMulticast) - 1),
		"the peer's QP number"},
	{ib.AttrRQPSN, func(a *ib.QPAttr) int { return int(a.RQPSN) }, 0, upTo(int(ib.PSNMask)), "24 bits"},
	{ib.AttrSQPSN, func(a *ib.QPAttr) int { return int(a.SQPSN) }, 0, upTo(int(ib.PSNMask)), "24 bits"},
	{ib.AttrMaxDestRdAtomic, func(a *ib.QPAttr) int { return a.MaxDestRdAtomic }, 0,
		func(d *ib.DeviceAttr) int { return min(d.MaxQPRdAtomic, 255) }, "MaxQPRdAtomic"},
	{ib.AttrMaxRdAtomic, func(a *ib.QPAttr) int { return a.MaxRdAtomic }, 0,
		func(d *ib.DeviceAttr) int { return min(d.MaxQPInitRdAtom, 255) },
		"MaxQPInitRdAtom, at most the peer's MaxDestRdAtomic"},
	{ib.AttrMinRNRTimer, func(a *ib.QPAttr) int { return int(a.MinRNRTimer) }, 0, upTo(31), "a 5-bit code"},
	{ib.AttrTimeout, func(a *ib.QPAttr) int { return int(a.Timeout) }, 0, upTo(31), "14 is 67 ms, 0 waits for ever"},
	{ib.AttrRetryCnt, func(a *ib.QPAttr) int { return int(a.RetryCnt) }, 0, upTo(7), "tries"},
	{ib.AttrRNRRetry, func(a *ib.QPAttr) int { return int(a.RNRRetry) }, 0, upTo(7), "7 retries for ever"},
	{ib.AttrState, func(a *ib.QPAttr) int { return int(a.State) }, 0, upTo(int(ib.StateErr)),
		"RESET, INIT, RTR, RTS, SQD or ERR"},
}

// checkAttr refuses values that the C form would truncate, or that no device accepts.
func (d *device) checkAttr(op string, a *ib.QPAttr, mask ib.QPAttrMask) error {
	if other := mask & (ib.AttrAltPath | ib.AttrPathMigState); other != 0 {
		return driver.Refuse(op, "attribute mask", mask, fmt.Sprintf("no %v: paths do not migrate over RoCE", other),
			ib.ErrNotSupported)
	}
	for i := range attrChecks {
		c := &attrChecks[i]
		if v, most := c.value(a), c.max(&d.attr); mask&c.bit != 0 && (v < c.min || v > most) {
			return driver.Refuse(op, c.bit.String(), v, fmt.Sprintf("%d to %d, %s", c.min, most, c.meaning),
				ib.ErrInvalid)
		}
	}
	if mask&ib.AttrAccess != 0 && a.Access&^(ib.QPAccessMask|ib.LocalWrite) != 0 {
		return driver.Refuse(op, "Access", fmt.Sprintf("%#x", uint32(a.Access)),
			fmt.Sprintf("bits of %#x", uint32(ib.QPAccessMask|ib.LocalWrite)), ib.ErrInvalid)
	}
	if mask&ib.AttrAV != 0 {
		if err := d.checkAH(op, &a.AH); err != nil {
			return err
		}
	}
	if mask&ib.AttrPathMTU != 0 {
		return d.checkMTU(op, a)
	}
	return nil
}

// checkMTU refuses a path MTU above the port's. rdma_rxe accepts any, and then loses the packets.
// It queries the port since the active MTU follows the interface's.
func (d *device) checkMTU(op string, a *ib.QPAttr) error {
	var port C.struct_ibv_port_attr
	if err := check(op, C.rnic_query_port(d.ctx, C.int(max(a.AH.Port, 1)), &port)); err != nil {
		return err
	}
	active := ib.MTUFromCode(int(port.active_mtu))
	if !a.PathMTU.Valid() || a.PathMTU > active {
		return driver.Refuse(op, "PathMTU", int(a.PathMTU),
			fmt.Sprintf("256, 512, 1024, 2048 or 4096, at most the port's active MTU of %d; both ends need the same",
				active), ib.ErrInvalid)
	}
	return nil
}

// follows holds, for each state, the bits of those that may follow it, besides
// RESET and ERR (IBTA 10.3.1).
var follows = [ib.NumQPStates]uint8{
	ib.StateReset: 1 << ib.StateInit,
	ib.StateInit:  1<<ib.StateInit | 1<<ib.StateRTR,
	ib.StateRTR:   1 << ib.StateRTS,
	ib.StateRTS:   1<<ib.StateRTS | 1<<ib.StateSQD,
	ib.StateSQD:   1<<ib.StateRTS | 1<<ib.StateSQD,
	ib.StateSQE:   1 << ib.StateRTS,
}

// required returns the attributes that a change of state must carry (IBTA
// 11.2.5.2 table 91).
func required(typ ib.QPType, from, to ib.QPState) ib.QPAttrMask {
	const (
		peer  = ib.AttrAV | ib.AttrPathMTU | ib.AttrDestQPN | ib.AttrRQPSN
		reply = ib.AttrMaxDestRdAtomic | ib.AttrMinRNRTimer
		retry = ib.AttrTimeout | ib.AttrRetryCnt | ib.AttrRNRRetry | ib.AttrMaxRdAtomic
	)
	switch [2]ib.QPState{from, to} {
	case [2]ib.QPState{ib.StateReset, ib.StateInit}:
		if typ == ib.UD {
			return ib.AttrPKeyIndex | ib.AttrPort | ib.AttrQKey
		}
		return ib.AttrPKeyIndex | ib.AttrPort | ib.AttrAccess
	case [2]ib.QPState{ib.StateInit, ib.StateRTR}:
		return map[ib.QPType]ib.QPAttrMask{ib.RC: peer | reply, ib.UC: peer, ib.XRCINI: peer,
			ib.XRCTGT: peer | reply}[typ]
	case [2]ib.QPState{ib.StateRTR, ib.StateRTS}:
		return ib.AttrSQPSN | map[ib.QPType]ib.QPAttrMask{ib.RC: retry, ib.XRCINI: retry,
			ib.XRCTGT: ib.AttrTimeout}[typ]
	}
	return 0
}

// explain returns an error that names the likely reason for which the kernel, which returns only
// an errno, has refused the attributes. It looks for a wrong state first, then for attributes that are missing, then
// for a bad address vector. The tables follows and required serve only this: they refuse nothing that the kernel
// accepts.
func (q *queuePair) explain(op string, a *ib.QPAttr, mask ib.QPAttrMask, errno syscall.Errno) error {
	reason := why(errno, ib.ErrLimit)
	// After the failure: most probably it is the state by which the kernel has judged.
	now, err := q.query(op)
	if err != nil || !errors.Is(reason, ib.ErrInvalid) {
		return fmt.Errorf("%s: %v: %w", op, mask, reason)
	}
	from, to := now.State, now.State
	if mask&ib.AttrState != 0 {
		to = a.State
	}
	op = fmt.Sprintf("%s %v to %v", op, from, to)
	missing := required(q.typ, from, to) &^ mask
	switch {
	case mask&ib.AttrCurState != 0 && a.CurState != from:
		return driver.Refuse(op, "CurState", a.CurState, fmt.Sprintf("%v, the state that the QP is in", from),
			ib.ErrState)
	case to != ib.StateReset && to != ib.StateErr && follows[from]&(1<<to) == 0:
		return driver.Refuse(op, "State", to, "RESET, ERR, or the next of INIT, RTR, RTS, SQD", ib.ErrState)
	case missing != 0:
		return driver.Refuse(op, "attribute mask", mask, fmt.Sprintf("must also have %v", missing), reason)
	}
	if mask&ib.AttrAV != 0 {
		if err := q.dev.explainAH(op, &a.AH, errno); err != nil {
			return err
		}
	}
	return driver.Refuse(op, "attribute mask", mask, "what this change of state permits (IBTA 11.2.5.2 table 91)",
		reason)
}

// cAttr returns the C form of attributes that checkAttr passed. It sets all fields, as the kernel looks at those of the
// mask only.
func cAttr(a *ib.QPAttr) C.struct_ibv_qp_attr {
	return C.struct_ibv_qp_attr{
		qp_state:            uint32(a.State),
		cur_qp_state:        uint32(a.CurState),
		port_num:            C.uint8_t(a.Port),
		pkey_index:          C.uint16_t(a.PKeyIndex),
		qp_access_flags:     C.uint(a.Access),
		qkey:                C.uint32_t(a.QKey),
		ah_attr:             cAH(&a.AH),
		path_mtu:            uint32(a.PathMTU.Code()),
		dest_qp_num:         C.uint32_t(a.DestQPN),
		rq_psn:              C.uint32_t(a.RQPSN),
		sq_psn:              C.uint32_t(a.SQPSN),
		max_rd_atomic:       C.uint8_t(a.MaxRdAtomic),
		max_dest_rd_atomic:  C.uint8_t(a.MaxDestRdAtomic),
		min_rnr_timer:       C.uint8_t(a.MinRNRTimer),
		timeout:             C.uint8_t(a.Timeout),
		retry_cnt:           C.uint8_t(a.RetryCnt),
		rnr_retry:           C.uint8_t(a.RNRRetry),
		rate_limit:          C.uint32_t(a.RateLimit),
		en_sqd_async_notify: C.uint8_t(cInt(a.SQDNotify)),
		cap:                 cCap(&a.Cap),
	}
}

// goAttr is the inverse of cAttr.
func goAttr(c *C.struct_ibv_qp_attr) ib.QPAttr {
	return ib.QPAttr{
		State:           ib.QPState(c.qp_state),
		CurState:        ib.QPState(c.cur_qp_state),
		Port:            int(c.port_num),
		PKeyIndex:       int(c.pkey_index),
		Access:          ib.Access(c.qp_access_flags),
		QKey:            uint32(c.qkey),
		AH:              goAH(&c.ah_attr),
		PathMTU:         ib.MTUFromCode(int(c.path_mtu)),
		DestQPN:         ib.QPN(c.dest_qp_num),
		RQPSN:           ib.PSN(c.rq_psn) & ib.PSNMask,
		SQPSN:           ib.PSN(c.sq_psn) & ib.PSNMask,
		MaxRdAtomic:     int(c.max_rd_atomic),
		MaxDestRdAtomic: int(c.max_dest_rd_atomic),
		MinRNRTimer:     uint8(c.min_rnr_timer),
		Timeout:         uint8(c.timeout),
		RetryCnt:        uint8(c.retry_cnt),
		RNRRetry:        uint8(c.rnr_retry),
		RateLimit:       uint32(c.rate_limit),
		SQDNotify:       c.en_sqd_async_notify != 0,
		Draining:        c.sq_draining != 0,
		Cap:             goCap(&c.cap),
	}
}

// Query returns the attributes.
func (q *queuePair) Query() (ib.QPAttr, error) {
	op := q.op("query")
	if err := q.lock(op); err != nil {
		return ib.QPAttr{}, err
	}
	defer q.dev.mu.Unlock()
	return q.query(op)
}

// Failure returns nothing: the C verbs do not tell why. WC.VendorErr has a code of the NIC's vendor.
func (q *queuePair) Failure() (failed, refused ib.Failure, err error) {
	if err := q.lock(q.op("query failure of")); err != nil {
		return failed, refused, err
	}
	q.dev.mu.Unlock()
	return failed, refused, nil
}

// queryMask has all attributes of package ib except RateLimit, which most providers refuse to
// query.
const queryMask = ib.AttrState | ib.AttrCurState | ib.AttrSQDNotify | ib.AttrAccess | ib.AttrPKeyIndex | ib.AttrPort |
	ib.AttrQKey |
	ib.AttrAV | ib.AttrPathMTU | ib.AttrTimeout | ib.AttrRetryCnt | ib.AttrRNRRetry | ib.AttrRQPSN |
	ib.AttrMaxRdAtomic |
	ib.AttrMinRNRTimer | ib.AttrSQPSN | ib.AttrMaxDestRdAtomic | ib.AttrCap | ib.AttrDestQPN

// query queries the device. The caller holds the device's mutex. It also stores the state, which posts look at: after a
// Query they know of a change that the kernel has made by itself. The rate limit is what Modify has set, since
// queryMask does not have it.
func (q *queuePair) query(op string) (ib.QPAttr, error) {
	var c C.struct_ibv_qp_attr
	var init C.struct_ibv_qp_init_attr
	if err := check(op, C.ibv_query_qp(q.c, &c, C.int(queryMask), &init)); err != nil {
		return ib.QPAttr{}, err
	}
	a := goAttr(&c)
	a.Cap, a.RateLimit = goCap(&init.cap), q.rateLimit
	q.state.Store(uint32(a.State))
	return a, nil
}
