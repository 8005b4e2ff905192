//go:build rnic && cgo

package rnic

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"unsafe"

	"github.com/goroce/goroce/ib"
)

// probe finds out by trial what no verb tells: how much payload may be inline, which of the newer
// operations the provider can post, and whether Rereg can move a region to other memory.
//
// newDevice calls it before anybody else has the device, so it needs no lock. What it creates is not tracked as an
// object, and is destroyed before it returns. A failure means that the device lacks the feature, and is no error: if
// not even a PD or a CQ can be made, the program's own verbs will say why.
func (d *device) probe() {
	pd := C.ibv_alloc_pd(d.ctx)
	if pd == nil {
		return
	}
	defer C.ibv_dealloc_pd(pd)
	cq := C.ibv_create_cq(d.ctx, 1, nil, nil, 0)
	if cq == nil {
		return
	}
	defer C.ibv_destroy_cq(cq)

	// Start with rdma_rxe's maximum and go down: each refusal logs a line in the kernel. What the provider has granted
	// counts, which may be more than it was asked for. Less than 32 bytes are not tried: MaxInline is 0 then.
	for inline := C.uint32_t(512); inline >= 32; inline /= 2 {
		if got, ok := d.tryQP(pd, cq, inline, 0); ok {
			d.attr.MaxInline = got
			break
		}
	}
	for _, op := range []struct {
		caps ib.DeviceCaps
		flag C.uint64_t
	}{
		{ib.CapAtomicWrite, C.IBV_QP_EX_WITH_ATOMIC_WRITE},
		{ib.CapFlushGlobal | ib.CapFlushPersistent, C.RNIC_QP_EX_WITH_FLUSH},
	} {
		// The provider must have the operation too. The capability stays set without that, since it also says what the
		// device answers to peers, and which access rights regions may have.
		if d.attr.Caps&op.caps == 0 {
			continue
		}
		// Together with those that were found before: CreateQP asks for all at once.
		if _, ok := d.tryQP(pd, cq, 0, d.sendOps|op.flag); ok {
			d.sendOps |= op.flag
		}
	}
	if canRereg(pd) {
		d.attr.Caps |= ib.CapRereg
	}
}

// tryQP reports whether an RC QP can be created with that much inline payload and those
// IBV_QP_EX_WITH operations, and how much inline payload it got.
func (d *device) tryQP(pd *C.struct_ibv_pd, cq *C.struct_ibv_cq, inline C.uint32_t, ops C.uint64_t) (got int, ok bool) {
	init := C.struct_ibv_qp_init_attr{send_cq: cq, recv_cq: cq, qp_type: C.IBV_QPT_RC}
	init.cap = C.struct_ibv_qp_cap{max_send_wr: 1, max_recv_wr: 1, max_send_sge: 1, max_recv_sge: 1,
		max_inline_data: inline}
	var ex *C.struct_ibv_qp_ex
	qp := C.rnic_create_qp(d.ctx, pd, nil, &init, ops, &ex)
	if qp == nil {
		return 0, false
	}
	C.ibv_destroy_qp(qp)
	// ex is nil if the versions of library and provider do not match.
	return int(init.cap.max_inline_data), ops == 0 || ex != nil
}

// canRereg reports whether a region can be moved to other memory. The memory is of C, so that it need not be pinned,
// and has two pages: the region moves from the first to the second, with the rights and the PD that it has.
func canRereg(pd *C.struct_ibv_pd) bool {
	const page = 4096
	memory := C.calloc(2, page)
	defer C.free(memory)
	mr := C.rnic_reg_mr(pd, C.uintptr_t(uintptr(memory)), page, C.uint64_t(uintptr(memory)), C.IBV_ACCESS_LOCAL_WRITE)
	if mr == nil {
		return false
	}
	defer C.ibv_dereg_mr(mr)
	next := uintptr(unsafe.Add(memory, page))
	return C.rnic_rereg_mr(mr, C.IBV_REREG_MR_CHANGE_TRANSLATION, nil, C.uintptr_t(next), page, 0) == 0
}
