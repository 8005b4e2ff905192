//go:build rnic && cgo

package rnic

// #include "shim.h"
import "C"

import (
	"fmt"
	"syscall"
	"unsafe"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// srq is a shared receive queue. Its verbs hold the device's mutex, and posting holds recv.mu. Modify and free hold
// both, since they move or end the queue.
type srq struct {
	driver.Implementation

	object
	c    *C.struct_ibv_srq
	pd   *pd
	typ  ib.SRQType
	num  uint32 // of an XRC SRQ, for peers; 0 for a basic one
	recv recvQueue
}

// CreateSRQ creates a shared receive queue. The provider writes the sizes that it has granted back into attr. One for
// XRC also uses a domain and a CQ, which must outlive it.
func (p *pd) CreateSRQ(init ib.SRQInit) (ib.SRQ, error) {
	const op = "create SRQ"
	d := p.dev
	if err := d.checkSRQ(op, &init.SRQAttr); err != nil {
		return nil, err
	}
	if err := p.lock(op); err != nil {
		return nil, err
	}
	defer d.mu.Unlock()
	s := &srq{pd: p, typ: init.Type}
	attr := C.struct_ibv_srq_init_attr{attr: cSRQ(d, &init.SRQAttr)}
	uses := []*object{&p.object}
	var err error
	switch init.Type {
	case ib.SRQBasic:
		s.c, err = C.ibv_create_srq(p.c, &attr)
	case ib.SRQXRC:
		var domain *xrcd
		var completes *cq
		if domain, err = find[*xrcd](d, op, "XRCD", init.XRCD); err != nil {
			return nil, err
		}
		if completes, err = find[*cq](d, op, "CQ", init.CQ); err != nil {
			return nil, err
		}
		uses = append(uses, &domain.object, &completes.object)
		s.c, err = C.rnic_create_xrc_srq(p.c, domain.c, completes.c.cq, &attr.attr)
	default:
		return nil, driver.Refuse(op, "Type", init.Type, "SRQBasic or SRQXRC", ib.ErrInvalid)
	}
	if s.c == nil {
		return nil, verbError(op, err)
	}
	if err := s.open(op, int(attr.attr.max_sge)); err != nil {
		C.ibv_destroy_srq(s.c)
		return nil, err
	}
	d.adopt(&s.object, kindSRQ, s.free, uses...)
	d.names.add(s.address(), s)
	return s, nil
}

// open allocates the C memory for posting, and queries the number of an XRC SRQ. maxSGE is what the provider has
// granted. If it fails the caller destroys the SRQ.
func (s *srq) open(op string, maxSGE int) error {
	if s.typ == ib.SRQXRC {
		var num C.uint32_t
		if err := check(op, C.ibv_get_srq_num(s.c, &num)); err != nil {
			return err
		}
		s.num = uint32(num)
	}
	s.recv.maxSGE = maxSGE
	if s.recv.c = C.rnic_new_recv(nil, s.c, C.uint32_t(maxSGE)); s.recv.c == nil {
		return verbError(op, syscall.ENOMEM)
	}
	return nil
}

// checkSRQ refuses sizes beyond those of the device.
func (d *device) checkSRQ(op string, a *ib.SRQAttr) error {
	switch {
	case a.MaxWR < 1 || a.MaxWR > d.attr.MaxSRQWR:
		return driver.Refuse(op, "MaxWR", a.MaxWR, fmt.Sprintf("1 to %d", d.attr.MaxSRQWR), ib.ErrInvalid)
	case a.MaxSGE < 0 || a.MaxSGE > d.attr.MaxSRQSGE:
		return driver.Refuse(op, "MaxSGE", a.MaxSGE, fmt.Sprintf("0 to %d", d.attr.MaxSRQSGE), ib.ErrInvalid)
	case a.Limit < 0 || a.Limit > a.MaxWR:
		return driver.Refuse(op, "Limit", a.Limit, fmt.Sprintf("0 to MaxWR, %d", a.MaxWR), ib.ErrInvalid)
	}
	return nil
}

// cSRQ returns the C form of attributes that checkSRQ has passed, with the size rounded up as ib.SRQAttr says.
func cSRQ(d *device, a *ib.SRQAttr) C.struct_ibv_srq_attr {
	return C.struct_ibv_srq_attr{max_wr: C.uint32_t(roundUp(a.MaxWR, d.attr.MaxSRQWR)), max_sge: C.uint32_t(a.MaxSGE),
		srq_limit: C.uint32_t(a.Limit)}
}

// address returns the address by which events identify the SRQ.
func (s *srq) address() uintptr { return uintptr(unsafe.Pointer(s.c)) }

// Num returns the number of an XRC SRQ.
func (s *srq) Num() uint32 { return s.num }

// Modify changes the size or the limit. The check needs both, as the limit must not exceed the size. So the one that
// the mask does not name is queried first.
func (s *srq) Modify(attr ib.SRQAttr, mask ib.SRQAttrMask) error {
	const op = "modify SRQ"
	if mask == 0 || mask&^(ib.SRQMaxWR|ib.SRQLimit) != 0 {
		return driver.Refuse(op, "mask", fmt.Sprintf("%#x", uint8(mask)), "SRQMaxWR, SRQLimit or both", ib.ErrInvalid)
	}
	if err := s.lock(op); err != nil {
		return err
	}
	defer s.dev.mu.Unlock()
	now, err := s.query(op)
	if err != nil {
		return err
	}
	if mask&ib.SRQMaxWR != 0 {
		now.MaxWR = attr.MaxWR
	}
	if mask&ib.SRQLimit != 0 {
		now.Limit = attr.Limit
	}
	if err := s.dev.checkSRQ(op, &now); err != nil {
		return err
	}
	c := cSRQ(s.dev, &now)
	s.recv.mu.Lock() // a resize moves the queue
	defer s.recv.mu.Unlock()
	return check(op, C.ibv_modify_srq(s.c, &c, C.int(mask)))
}

// Query returns size and limit.
func (s *srq) Query() (ib.SRQAttr, error) {
	const op = "query SRQ"
	if err := s.lock(op); err != nil {
		return ib.SRQAttr{}, err
	}
	defer s.dev.mu.Unlock()
	return s.query(op)
}

// query is Query for callers that hold the device's mutex.
func (s *srq) query(op string) (ib.SRQAttr, error) {
	var c C.struct_ibv_srq_attr
	err := check(op, C.ibv_query_srq(s.c, &c))
	return ib.SRQAttr{MaxWR: int(c.max_wr), MaxSGE: int(c.max_sge), Limit: int(c.srq_limit)}, err
}

// PostRecv posts receive requests. Unlike a QP, an SRQ has no state that would forbid it.
func (s *srq) PostRecv(wrs []ib.RecvWR) (int, error) {
	const op = "post receive on SRQ"
	s.recv.mu.Lock()
	defer s.recv.mu.Unlock()
	if s.recv.c == nil {
		return 0, fmt.Errorf("%s: it is %w", op, ib.ErrClosed)
	}
	n, err := s.recv.post(wrs)
	if err != nil {
		err = fmt.Errorf("%s: %w", op, err)
	}
	return n, err
}

// free destroys the SRQ. No QP uses it any more. As with a CQ, the library waits for the acks of events that were read,
// which need neither of the locks held here.
func (s *srq) free() error {
	s.recv.mu.Lock()
	defer s.recv.mu.Unlock()
	if err := check("close SRQ", C.ibv_destroy_srq(s.c)); err != nil {
		return err
	}
	s.dev.names.remove(s.address())
	C.rnic_free_recv(s.recv.c)
	s.recv.c = nil
	return nil
}
