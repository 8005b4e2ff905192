package client

import (
	"fmt"
	"sync"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/qp"
	"github.com/goroce/goroce/qp/ring"
	"github.com/goroce/goroce/roce/daemon/abi"
)

// pd is a protection domain.
type pd struct{ object }

// AllocPD allocates a protection domain.
func (d *Device) AllocPD() (ib.PD, error) {
	h, err := made(d, abi.OpAllocPD, struct{}{})
	if err != nil {
		return nil, err
	}
	return &pd{object{dev: d, kind: abi.KindPD, handle: h}}, nil
}

// queuePair is a queue pair of the daemon. This process posts to its rings in shared memory.
type queuePair struct {
	object
	// front has the state of the last Modify. If the device has moved the QP to ERR or SQE
	// since, the same requests may be posted.
	front           qp.Front
	shard, doorbell uint32
	pages           *mapped
	shorts          shorts
}

// CreateQP creates a queue pair in RESET.
func (p *pd) CreateQP(init ib.QPInit) (ib.QP, error) {
	const op = "create QP"
	if err := p.err(op); err != nil {
		return nil, err
	}
	c := &init.Cap
	r := abi.CreateQP{PD: p.handle, Type: uint32(init.Type), MaxSendWR: clamp(c.MaxSendWR),
		MaxRecvWR:  clamp(c.MaxRecvWR),
		MaxSendSGE: clamp(c.MaxSendSGE), MaxRecvSGE: clamp(c.MaxRecvSGE), MaxInline: clamp(c.MaxInline)}
	if r.MaxSendWR > 0 && init.Type != ib.XRCTGT {
		c.MaxInline = max(c.MaxInline, min(leastInline, p.dev.attr.MaxInline))
		r.MaxInline = clamp(c.MaxInline)
	}
	if init.SigAll {
		r.SigAll = 1
	}
	if err := p.dev.name(op, &init, &r); err != nil {
		return nil, err
	}
	q := &queuePair{front: qp.Front{Type: init.Type, HasSRQ: init.SRQ != nil, SQ: ring.NoSend(), RQ: ring.NoRecv()}}
	q.dev, q.kind = p.dev, abi.KindQP
	q.shorts = shorts{regions: &p.dev.regions, pd: p.handle}
	answer, err := askRings(p.dev, abi.OpCreateQP, r, ringsSize(&init), q.attach)
	if err != nil {
		return nil, err
	}
	q.handle, q.front.Num, q.shard, q.doorbell = answer.Handle, ib.QPN(answer.Num), answer.Shard, answer.Doorbell
	p.dev.keep(q.handle, q)
	return q, nil
}

// name fills in the handles of a QP's CQs, SRQ and XRCD.
func (d *Device) name(op string, init *ib.QPInit, r *abi.CreateQP) error {
	for _, a := range []struct {
		attr string
		cq   ib.CQ
		to   *abi.Handle
	}{{"SendCQ", init.SendCQ, &r.SendCQ}, {"RecvCQ", init.RecvCQ, &r.RecvCQ}} {
		if a.cq == nil {
			continue // the daemon checks whether the QP needs it
		}
		c, err := owned[*cq](d, op, a.attr, a.cq)
		if err != nil {
			return err
		}
		*a.to = c.handle
	}
	if init.SRQ != nil {
		s, err := owned[*srq](d, op, "SRQ", init.SRQ)
		if err != nil {
			return err
		}
		r.SRQ = s.handle
	}
	if init.XRCD != nil {
		x, err := owned[*xrcd](d, op, "XRCD", init.XRCD)
		if err != nil {
			return err
		}
		r.XRCD = x.handle
	}
	return nil
}

// ringsSize returns the bytes of a QP's rings. What exceeds the limits of rings counts 0: the daemon refuses it.
func ringsSize(init *ib.QPInit) (n int) {
	c := &init.Cap
	if c.MaxSendWR > 0 && init.Type != ib.XRCTGT {
		n = ring.SendSize(c.MaxSendWR, max(c.MaxSendSGE, 1), c.MaxInline)
	}
	if c.MaxRecvWR > 0 && init.SRQ == nil && init.Type != ib.XRCINI && init.Type != ib.XRCTGT {
		n += ring.RecvSize(c.MaxRecvWR, max(c.MaxRecvSGE, 1))
	}
	return n
}

// attach opens the application's end of the rings.
func (q *queuePair) attach(r *abi.Ring, pages *mapped) (err error) {
	if err := q.dev.hasDoorbell(r.Shard, r.Doorbell); err != nil {
		return err
	}
	q.pages = pages
	buf := pages.buf
	if r.Send > 0 {
		if q.front.SQ, err = ring.OpenSend(buf[:r.Send]); err != nil {
			return err
		}
		q.shorts.room = q.front.SQ.MaxInline()
		q.front.Rewrite = q.shorts.inlined
	}
	if r.Recv > 0 {
		q.front.RQ, err = ring.OpenRecv(buf[r.Send : r.Send+r.Recv])
	}
	return err
}

// Num returns the QP number.
func (q *queuePair) Num() ib.QPN { return q.front.Num }

// Type returns the transport service.
func (q *queuePair) Type() ib.QPType { return q.front.Type }

// err is object.err with the QP's number in the error.
func (q *queuePair) err(op string) error {
	if err := q.object.err(op); err != nil {
		return fmt.Errorf("QP %#x: %w", uint32(q.front.Num), err)
	}
	return nil
}

// Modify changes state and attributes.
func (q *queuePair) Modify(attr ib.QPAttr, mask ib.QPAttrMask) error {
	const op = "modify QP"
	if err := q.err(op); err != nil {
		return err
	}
	if mask&ib.AttrState != 0 && attr.State >= ib.NumQPStates { // q.front knows no other states
		return driver.Refuse(fmt.Sprintf("%s %#x", op, uint32(q.front.Num)), "State", attr.State, "RESET to ERR",
			ib.ErrInvalid)
	}
	if err := tell(q.dev.link, abi.OpModifyQP, abi.QPAttrOf(q.handle, &attr, mask)); err != nil {
		return err
	}
	if mask&ib.AttrState != 0 {
		q.front.SetState(attr.State)
	}
	return nil
}

// Query returns the attributes.
func (q *queuePair) Query() (ib.QPAttr, error) {
	if err := q.err("query QP"); err != nil {
		return ib.QPAttr{}, err
	}
	r, _, err := ask[abi.QPAttr](q.dev.link, abi.OpQueryQP, abi.Object{Handle: q.handle}, 0)
	if err != nil {
		return ib.QPAttr{}, err
	}
	return r.Attr(), nil
}

// Failure returns why the QP failed last, and why it last refused a request of the peer.
func (q *queuePair) Failure() (failed, refused ib.Failure, err error) {
	if err := q.err("query failure of QP"); err != nil {
		return failed, refused, err
	}
	r, _, err := ask[abi.QPFailure](q.dev.link, abi.OpQPFailure, abi.Object{Handle: q.handle}, 0)
	if err != nil {
		return failed, refused, err
	}
	return r.Failed.Failure(), r.Refused.Failure(), nil
}

// PostSend posts send requests.
func (q *queuePair) PostSend(wrs []ib.SendWR) (n int, err error) {
	if err := q.err("post send"); err != nil {
		return 0, err
	}
	n, doorbell, err := q.front.PostSend(wrs)
	if doorbell {
		q.dev.ring(q.shard, q.doorbell)
	}
	return n, err
}

// PostRecv posts receive requests.
func (q *queuePair) PostRecv(wrs []ib.RecvWR) (n int, err error) {
	if err := q.err("post receive"); err != nil {
		return 0, err
	}
	n, doorbell, err := q.front.PostRecv(wrs)
	if doorbell {
		q.dev.ring(q.shard, q.doorbell)
	}
	return n, err
}

// AttachMulticast adds a UD QP to a multicast group.
func (q *queuePair) AttachMulticast(group ib.GID) error {
	if err := q.err("attach to multicast group"); err != nil {
		return err
	}
	return tell(q.dev.link, abi.OpAttach, abi.Group{QP: q.handle, GID: group})
}

// DetachMulticast removes a UD QP from a multicast group.
func (q *queuePair) DetachMulticast(group ib.GID) error {
	if err := q.err("detach from multicast group"); err != nil {
		return err
	}
	return tell(q.dev.link, abi.OpDetach, abi.Group{QP: q.handle, GID: group})
}

// srq is a shared receive queue of the daemon. This process posts to its ring in shared memory.
type srq struct {
	object
	num    uint32
	maxSGE int

	mu    sync.Mutex
	ring  *ring.Recv
	pages *mapped
}

// CreateSRQ creates a shared receive queue.
func (p *pd) CreateSRQ(init ib.SRQInit) (ib.SRQ, error) {
	const op = "create SRQ"
	if err := p.err(op); err != nil {
		return nil, err
	}
	r := abi.CreateSRQ{PD: p.handle, Type: uint32(init.Type), MaxWR: clamp(init.MaxWR), MaxSGE: clamp(init.MaxSGE),
		Limit: clamp(init.Limit)}
	if init.Type == ib.SRQXRC {
		x, err := owned[*xrcd](p.dev, op, "XRCD", init.XRCD)
		if err != nil {
			return nil, err
		}
		c, err := owned[*cq](p.dev, op, "CQ", init.CQ)
		if err != nil {
			return nil, err
		}
		r.XRCD, r.CQ = x.handle, c.handle
	}
	s := &srq{maxSGE: init.MaxSGE}
	p.dev.making.Lock() // a limit above 0 is reached at once, as nothing is posted yet
	defer p.dev.making.Unlock()
	answer, err := askRings(p.dev, abi.OpCreateSRQ, r, ring.RecvSize(init.MaxWR, init.MaxSGE), s.attach)
	if err != nil {
		return nil, err
	}
	s.dev, s.kind, s.handle, s.num = p.dev, abi.KindSRQ, answer.Handle, answer.Num
	p.dev.keep(s.handle, s)
	return s, nil
}

func (s *srq) attach(r *abi.Ring, pages *mapped) error {
	opened, err := ring.OpenRecv(pages.buf[:r.Size])
	if err == nil {
		s.ring, s.pages = opened, pages
	}
	return err
}

// Num returns the number of an XRC SRQ; 0 for a basic one.
func (s *srq) Num() uint32 { return s.num }

// Modify arms the limit, or changes the size.
func (s *srq) Modify(attr ib.SRQAttr, mask ib.SRQAttrMask) error {
	if err := s.err("modify SRQ"); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := abi.SRQAttr{SRQ: s.handle, Mask: uint32(mask), MaxWR: clamp(attr.MaxWR), Limit: clamp(attr.Limit)}
	if mask&ib.SRQMaxWR == 0 {
		return tell(s.dev.link, abi.OpModifySRQ, r)
	}
	_, err := askRings(s.dev, abi.OpModifySRQ, r, ring.RecvSize(attr.MaxWR, s.maxSGE), s.attach)
	return err
}

// Query returns the attributes.
func (s *srq) Query() (ib.SRQAttr, error) {
	if err := s.err("query SRQ"); err != nil {
		return ib.SRQAttr{}, err
	}
	r, _, err := ask[abi.SRQAttr](s.dev.link, abi.OpQuerySRQ, abi.SRQAttr{SRQ: s.handle}, 0)
	return ib.SRQAttr{MaxWR: int(r.MaxWR), MaxSGE: int(r.MaxSGE), Limit: int(r.Limit)}, err
}

// PostRecv posts receive requests.
func (s *srq) PostRecv(wrs []ib.RecvWR) (n int, err error) {
	if err := s.err("post receive on SRQ"); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for n < len(wrs) {
		if err = s.ring.Push(&wrs[n]); err != nil {
			break
		}
		n++
	}
	s.ring.Publish()
	return n, err
}
