//go:build rnic && cgo

package rnic

// #include "shim.h"
import "C"

import (
	"fmt"
	"sync"
	"syscall"
	"unsafe"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// recvQueue is the receive queue of a QP, or an SRQ. c has the requests of one batch, with room for maxSGE entries in
// the list of each. They are filled in anew for each post: the library has copied them when the call returns.
type recvQueue struct {
	mu     sync.Mutex
	c      *C.struct_rnic_recv // nil when it is closed; guarded by mu
	maxSGE int
}

// post posts receive requests, in batches. The caller holds mu, and adds the name of the QP or SRQ
// to the error.
//
// If a request is refused, here or by the library, those before it are posted, n counts them, and the error is about
// the next one. If both refuse, it is the library's error, as its request comes first.
func (q *recvQueue) post(wrs []ib.RecvWR) (n int, err error) {
	for n < len(wrs) && err == nil {
		batch := wrs[n:min(n+C.RNIC_BATCH, len(wrs))]
		built := 0
		for built < len(batch) && err == nil {
			if err = q.put(&q.c.wr[built], &batch[built]); err == nil {
				built++
			}
		}
		if built > 0 {
			if postErr := postError(C.rnic_post_recv(q.c, C.int(built))); postErr != nil {
				err = postErr
			}
			n += int(q.c.posted)
		}
	}
	return n, err
}

// put fills in a request.
func (q *recvQueue) put(to *C.struct_ibv_recv_wr, wr *ib.RecvWR) error {
	if len(wr.SGL) > q.maxSGE {
		return driver.Refuse("receive request", "SGL", fmt.Sprintf("%d entries", len(wr.SGL)),
			fmt.Sprintf("at most %d (MaxRecvSGE or MaxSGE)", q.maxSGE), ib.ErrInvalid)
	}
	to.wr_id = C.uint64_t(wr.ID)
	to.num_sge = C.int(len(wr.SGL))
	putSGL(to.sg_list, wr.SGL)
	return nil
}

// putSGL fills in a scatter-gather list. The caller has checked that sgl fits. Addresses are numbers here: they may be
// IOVAs, and only the device looks at the memory. So cgo has no Go pointer to check.
func putSGL(to *C.struct_ibv_sge, sgl []ib.SGE) {
	list := unsafe.Slice(to, len(sgl))
	for i := range sgl {
		list[i] = C.struct_ibv_sge{addr: C.uint64_t(sgl[i].Addr), length: C.uint32_t(sgl[i].Length),
			lkey: C.uint32_t(sgl[i].LKey)}
	}
}

// postError converts the result of a post, 0 or an errno, to an error. ENOMEM means that the queue is full, not that a
// limit is reached as it does when objects are created. The functions of shim.c have made ret positive.
func postError[T ~int32](ret T) error {
	switch errno := syscall.Errno(ret); errno {
	case 0:
		return nil
	case syscall.ENOSPC: // from ibv_wr_complete
		return why(syscall.ENOMEM, ib.ErrQueueFull)
	default:
		return why(errno, ib.ErrQueueFull)
	}
}
