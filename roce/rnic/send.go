//go:build rnic && cgo

package rnic

// #include "shim.h"
import "C"

import (
	"fmt"
	"sync"
	"unsafe"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// This file posts send requests. Go checks a request and fills in a flat struct in C memory; shim.c makes the library's
// request of it. So no Go pointer goes to C, and a batch takes one call.
//
// What can be checked is checked here, since a provider returns only an errno, and some check little. Whether keys and
// remote memory are valid is up to the device, which tells by the completion.

// sendQueue is the send queue of a QP. Its mutex keeps the requests of a post together, and guards the C memory.
type sendQueue struct {
	mu sync.Mutex
	c  *C.struct_rnic_send // nil when it is closed; guarded by mu
}

// opRule says what a send opcode allows and needs.
type opRule struct {
	services uint16 // bits of ib.QPType
	inline   bool   // the payload may be inline
	minLen   uint64 // least total length of SGL
	noSGL    bool   // moves no data of its own
	aligned  bool   // RemoteAddr is a multiple of 8 (IBTA 9.4.5)
	// ops, if not 0, is the IBV_QP_EX_WITH flag of an opcode that is posted by ibv_wr functions. The QP must have been
	// created with it.
	ops C.uint64_t
}

const (
	onReliable  = 1<<ib.RC | 1<<ib.XRCINI
	onConnected = onReliable | 1<<ib.UC
	onAll       = onConnected | 1<<ib.UD
)

// opRules is indexed by ib.WROpcode (IBTA 10.8.3 table 95; ibv_wr_post(3)). ibv_post_send does
// not support opcodes with ops set.
var opRules = [...]opRule{
	ib.WRWrite:       {services: onConnected, inline: true},
	ib.WRWriteImm:    {services: onConnected, inline: true},
	ib.WRSend:        {services: onAll, inline: true},
	ib.WRSendImm:     {services: onAll, inline: true},
	ib.WRSendInv:     {services: onReliable, inline: true},
	ib.WRRead:        {services: onReliable},
	ib.WRCompareSwap: {services: onReliable, minLen: 8, aligned: true},
	ib.WRFetchAdd:    {services: onReliable, minLen: 8, aligned: true},
	ib.WRLocalInv:    {services: onConnected, noSGL: true},
	ib.WRBindMW:      {services: onConnected, noSGL: true},
	ib.WRFlush:       {services: onReliable, noSGL: true, ops: C.RNIC_QP_EX_WITH_FLUSH},
	ib.WRAtomicWrite: {services: onReliable, inline: true, aligned: true, ops: C.IBV_QP_EX_WITH_ATOMIC_WRITE},
}

const sendFlags = ib.SendFence | ib.SendSignaled | ib.SendSolicited | ib.SendInline

// PostSend posts send requests. It holds refs until the library has taken all of them: requests have pointers to the C
// forms of address handles, windows and regions, which must not be freed before. Later the device needs keys only, and
// for address handles see maxOldAHs.
func (q *queuePair) PostSend(wrs []ib.SendWR) (n int, err error) {
	q.send.mu.Lock()
	defer q.send.mu.Unlock()
	if err := q.canSend("post send on"); err != nil {
		return 0, err
	}
	// Known before locking, as a read lock cannot be turned into a write lock.
	binds := false
	for i := range wrs {
		binds = binds || wrs[i].Opcode == ib.WRBindMW
	}
	if r := &q.dev.refs; binds {
		r.Lock()
		defer r.Unlock()
	} else {
		r.RLock()
		defer r.RUnlock()
	}
	// A batch at a time, as the queue has C memory for RNIC_BATCH requests.
	for n < len(wrs) && err == nil {
		var posted int
		posted, err = q.postBatch(wrs[n:min(n+C.RNIC_BATCH, len(wrs))])
		n += posted
	}
	return n, err
}

// canSend reports whether the QP takes send requests. The caller holds send.mu.
func (q *queuePair) canSend(verb string) error {
	if q.send.c == nil {
		return fmt.Errorf("%s: it is %w", q.op(verb), ib.ErrClosed)
	}
	// The state as this side knows it. The kernel may have moved the QP to ERR meanwhile, where posting is legal.
	if s := q.lastState(); s == ib.StateReset || s == ib.StateInit || s == ib.StateRTR { // IBTA 10.8.3.2
		return driver.Refuse(q.op(verb), "QP state", s, "RTS (also SQD, SQE and ERR)", ib.ErrState)
	}
	if q.cap.MaxSendWR == 0 {
		return fmt.Errorf("%s: created with MaxSendWR 0: %w", q.op(verb), ib.ErrQueueFull)
	}
	return nil
}

// postBatch posts requests up to the first that is refused, here or by the
// library. The caller holds send.mu and refs. It returns an error together with all requests posted if librxe has put
// them into the queue but could not ring the doorbell (shim.c, post_chain).
func (q *queuePair) postBatch(wrs []ib.SendWR) (int, error) {
	var err error
	built := 0
	for built < len(wrs) && err == nil {
		if err = q.put(&q.send.c.wr[built], &wrs[built]); err == nil {
			built++
		}
	}
	// Requests before a bad one are posted, as by ibv_post_send, and n says how many.
	if built == 0 {
		return 0, err
	}
	if postErr := postError(C.rnic_post_send(q.send.c, C.int(built))); postErr != nil {
		err = fmt.Errorf("%s: %w", q.op("post send on"), postErr)
	}
	// Only these windows have other keys now: the other binds have not reached the queue.
	posted := int(q.send.c.posted)
	for i := range wrs[:posted] {
		if wr := &wrs[i]; wr.Opcode == ib.WRBindMW {
			q.dev.refs.mws[wr.RKey&^0xFF].bound(q, wr.RKey)
		}
	}
	return posted, err
}

// bad returns the error for a request that is refused here and not passed to the library.
func (q *queuePair) bad(attr string, value any, allowed string, err error) error {
	return driver.Refuse(q.op("post send on"), attr, value, allowed, err)
}

// put fills in a request. to is a slot of the queue's C memory. The caller holds send.mu and refs, for writing if wr is
// a bind.
func (q *queuePair) put(to *C.struct_rnic_wr, wr *ib.SendWR) error {
	err := q.checkRule(wr)
	if err != nil {
		return err
	}
	// The C memory of the slot stays with it; all else is of an earlier request.
	sge, bytes := to.sge, to.payload
	*to = C.struct_rnic_wr{
		sge: sge, payload: bytes,
		id: C.uint64_t(wr.ID), opcode: C.uint32_t(wr.Opcode), flags: C.uint32_t(wr.Flags),
		remote_addr: C.uint64_t(wr.RemoteAddr), rkey: C.uint32_t(wr.RKey),
		remote_srqn: C.uint32_t(wr.RemoteSRQ),
	}
	switch wr.Opcode {
	case ib.WRSendImm, ib.WRWriteImm:
		to.imm = C.uint32_t(wr.Imm)
	case ib.WRSendInv, ib.WRLocalInv:
		to.imm = C.uint32_t(wr.InvalidateKey)
	case ib.WRCompareSwap:
		to.compare_add, to.swap = C.uint64_t(wr.Compare), C.uint64_t(wr.Swap)
	case ib.WRFetchAdd:
		to.compare_add = C.uint64_t(wr.Swap)
	case ib.WRBindMW:
		err = q.putBind(to, wr)
	case ib.WRFlush:
		to.flush_length = C.uint32_t(wr.Flush.Length)
		to.flush_extent, to.flush_level = C.uint8_t(wr.Flush.Extent), C.uint8_t(wr.Flush.Level)
		return nil
	}
	if q.typ == ib.UD && err == nil {
		err = q.putAddress(to, wr)
	}
	if err != nil {
		return err
	}
	if wr.Opcode == ib.WRAtomicWrite {
		return q.putEight(to, wr)
	}
	return q.putPayload(to, wr)
}

// checkRule refuses a request that violates its opcode's rule, or has numbers that no packet
// could carry.
func (q *queuePair) checkRule(wr *ib.SendWR) error {
	if int(wr.Opcode) >= len(opRules) || opRules[wr.Opcode].services == 0 {
		return q.bad("Opcode", wr.Opcode, "the WR constants of package ib", ib.ErrInvalid)
	}
	r := &opRules[wr.Opcode]
	switch {
	case r.services&(1<<q.typ) == 0:
		return q.bad("Opcode", wr.Opcode, fmt.Sprintf("what a QP of type %v sends", q.typ), ib.ErrNotSupported)
	case r.ops != 0 && (q.send.c.ex == nil || q.dev.sendOps&r.ops == 0):
		return q.bad("Opcode", wr.Opcode, "what device and provider can do on an RC QP: ATOMIC WRITE from rdma-core "+
			"44 on, FLUSH later (56 has it)", ib.ErrNotSupported)
	case wr.Flags&^sendFlags != 0:
		return q.bad("Flags", fmt.Sprintf("%#x", uint8(wr.Flags)), "the Send flags of package ib", ib.ErrInvalid)
	case wr.Flags&ib.SendInline != 0 && !r.inline:
		return q.bad("Flags", "SendInline", fmt.Sprintf("no inline payload for %v", wr.Opcode), ib.ErrInvalid)
	case r.noSGL && len(wr.SGL) > 0:
		return q.bad("SGL", fmt.Sprintf("%d entries", len(wr.SGL)), fmt.Sprintf("none for %v", wr.Opcode),
			ib.ErrInvalid)
	case r.minLen > 0 && total(wr.SGL) < r.minLen:
		return q.bad("length", total(wr.SGL), fmt.Sprintf("at least %d bytes for %v", r.minLen, wr.Opcode),
			ib.ErrInvalid)
	case r.aligned && wr.RemoteAddr%8 != 0:
		return q.bad("RemoteAddr", fmt.Sprintf("%#x", wr.RemoteAddr), "multiples of 8 for atomic operations",
			ib.ErrInvalid)
	case wr.RemoteQPN > ib.QPNMask:
		return q.bad("RemoteQPN", fmt.Sprintf("%#x", uint32(wr.RemoteQPN)), "24 bits", ib.ErrInvalid)
	case wr.RemoteSRQ >= 1<<24:
		return q.bad("RemoteSRQ", fmt.Sprintf("%#x", wr.RemoteSRQ), "24 bits", ib.ErrInvalid)
	case wr.Opcode != ib.WRFlush:
		return nil
	case wr.Flush.Level == 0 || wr.Flush.Level&^(ib.FlushGlobally|ib.FlushPersistently) != 0:
		return q.bad("Flush.Level", uint8(wr.Flush.Level), "FlushGlobally, FlushPersistently or both", ib.ErrInvalid)
	case wr.Flush.Extent > ib.FlushRegion:
		return q.bad("Flush.Extent", uint8(wr.Flush.Extent), "FlushRange or FlushRegion", ib.ErrInvalid)
	}
	return nil
}

// total returns the total length of a scatter-gather list. The sum may exceed the 32 bits that each length has.
func total(sgl []ib.SGE) (n uint64) {
	for i := range sgl {
		n += uint64(sgl[i].Length)
	}
	return n
}

// putPayload fills in the scatter-gather list of a request, or copies its inline payload. The slot has room for
// MaxSendSGE entries and MaxInline bytes, so more is refused.
func (q *queuePair) putPayload(to *C.struct_rnic_wr, wr *ib.SendWR) error {
	if wr.Flags&ib.SendInline == 0 {
		if len(wr.SGL) > q.cap.MaxSendSGE {
			return q.bad("SGL", fmt.Sprintf("%d entries", len(wr.SGL)),
				fmt.Sprintf("at most %d (QPCap.MaxSendSGE)", q.cap.MaxSendSGE), ib.ErrInvalid)
		}
		to.num_sge = C.uint32_t(len(wr.SGL))
		putSGL(to.sge, wr.SGL)
		return nil
	}
	if len(wr.SGL) > 0 {
		return q.bad("SGL", fmt.Sprintf("%d entries", len(wr.SGL)), "none with SendInline: the payload is in Inline",
			ib.ErrInvalid)
	}
	if len(wr.Inline) > q.cap.MaxInline {
		return q.bad("Inline", fmt.Sprintf("%d bytes", len(wr.Inline)),
			fmt.Sprintf("at most %d (QPCap.MaxInline)", q.cap.MaxInline), ib.ErrInvalid)
	}
	// To C memory, since the request holds a pointer to it. The library copies it again before the call returns, and
	// so the slot is free then.
	copy(unsafe.Slice((*byte)(to.payload), len(wr.Inline)), wr.Inline)
	to.num_sge = 1
	*to.sge = C.struct_ibv_sge{addr: C.uint64_t(uintptr(unsafe.Pointer(to.payload))),
		length: C.uint32_t(len(wr.Inline))}
	return nil
}

// putEight copies the 8 bytes of an ATOMIC WRITE, which ibv_wr_atomic_write takes by value: from
// Inline, or from the regions of SGL. So here the check of a local key is this package's, and not the device's: a bad
// one is an error of the post. The caller holds refs, which keeps a region's fields as they are.
func (q *queuePair) putEight(to *C.struct_rnic_wr, wr *ib.SendWR) error {
	value := make([]byte, 0, 8)
	if wr.Flags&ib.SendInline != 0 {
		value = append(value, wr.Inline...)
	}
	for _, sge := range wr.SGL {
		m := q.dev.refs.mrs[sge.LKey]
		if m == nil || m.pd != q.pd || sge.Addr < m.addr || sge.Addr-m.addr > uint64(len(m.buf)) ||
			uint64(sge.Length) > uint64(len(m.buf))-(sge.Addr-m.addr) {
			return q.bad("SGL", fmt.Sprintf("%#x, %d bytes, key %#x", sge.Addr, sge.Length, uint32(sge.LKey)),
				"memory of an open region in the QP's protection domain", ib.ErrInvalid)
		}
		value = append(value, m.buf[sge.Addr-m.addr:][:min(sge.Length, 9)]...) // 9 suffice to see that it is too long
	}
	if len(value) != 8 {
		return q.bad("length", len(value), "8 bytes for ATOMIC WRITE", ib.ErrInvalid)
	}
	copy(unsafe.Slice((*byte)(to.payload), 8), value)
	return nil
}

// putAddress fills in the destination of a datagram. The PDs are compared since rdma_rxe looks at them only when it
// sends (rxe_get_av).
func (q *queuePair) putAddress(to *C.struct_rnic_wr, wr *ib.SendWR) error {
	a := q.dev.refs.ah(wr.AH)
	if a == nil {
		return q.bad("AH", fmt.Sprintf("%#x", uint32(wr.AH)), "the Num of an open address handle of this device",
			ib.ErrInvalid)
	}
	if a.pd != q.pd {
		return q.bad("AH", fmt.Sprintf("%#x", uint32(wr.AH)), "an address handle of the QP's protection domain",
			ib.ErrForeign)
	}
	to.ah, to.remote_qpn, to.remote_qkey = a.c, C.uint32_t(wr.RemoteQPN), C.uint32_t(wr.RemoteQKey)
	if wr.RemoteQKey>>31 != 0 { // IBTA 10.2.5; rdma_rxe would send it
		to.remote_qkey = C.uint32_t(q.qkey.Load())
	}
	return nil
}

// putBind fills in the window and the region of a bind. wr.RKey is the window's new key: its upper 24 bits find the
// window, the lower 8 are the caller's choice. shim.c stores the key in the ibv_mw when the bind is in the queue.
func (q *queuePair) putBind(to *C.struct_rnic_wr, wr *ib.SendWR) error {
	w := q.dev.refs.mws[wr.RKey&^0xFF]
	if w == nil || w.typ != ib.MWType2 {
		return q.bad("RKey", fmt.Sprintf("%#x", uint32(wr.RKey)),
			"a key of an open window of type 2 (NextKey of its RKey)", ib.ErrInvalid)
	}
	if w.pd != q.pd {
		return q.bad("RKey", fmt.Sprintf("%#x", uint32(wr.RKey)), "that of a window in the QP's protection domain",
			ib.ErrForeign)
	}
	m, err := w.regionOf(&wr.Bind)
	if err != nil {
		return err
	}
	to.mw, to.mr = w.c, m.c
	to.bind_addr, to.bind_length, to.bind_access = C.uint64_t(wr.Bind.Addr), C.uint64_t(wr.Bind.Length),
		C.uint32_t(wr.Bind.Access)
	return nil
}
