package server

import (
	"errors"
	"fmt"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/daemon/abi"
	"github.com/goroce/goroce/roce/internal/device"
)

// Requests about queue pairs. A QP of a client is one of package device whose rings lie in the client's memfd.
// Posting needs no request: the client writes the ring and sets the doorbell that createQP has assigned.

// createQP makes a QP. A target without a PD has neither rings nor a doorbell (createTarget). On an error after
// CreateQP the QP is closed here; the memory of its rings is unmapped by answer, when no shard has it any more.
func createQP(c *session, r *abi.CreateQP) (reply, error) {
	const op = abi.OpCreateQP
	if err := c.take(op, qps, 1); err != nil {
		return noBody(err)
	}
	// A target without a PD belongs to its domain, and may outlive this session.
	if r.PD == 0 && r.Type == uint32(ib.XRCTGT) {
		return createTarget(c, r)
	}
	pd, err := lookup[*device.PD](c, op, "PD", r.PD)
	if err == nil && c.doorbells == nil {
		err = fmt.Errorf("%v: share doorbells first: %w", op, ib.ErrState)
	}
	if err != nil {
		return noBody(err)
	}
	init, err := c.qpInit(r)
	if err == nil {
		err = c.takeQP(op, &init.Cap)
	}
	if err != nil {
		return noBody(err)
	}
	made, err := pd.CreateQP(init)
	if err != nil {
		return noBody(err)
	}
	q := made.(*device.QP)
	// After CreateQP, which chooses the shard.
	doorbell, err := c.assign(op, q)
	if err != nil {
		return noBody(errors.Join(q.Close(), err))
	}
	o := &object{kind: abi.KindQP, value: q, rings: c.made}
	x, _ := optional[*xrcd](c, op, "XRCD", r.XRCD) // qpInit has found it, too
	c.visit.madeQP()
	o.close = x.using(func() error {
		// The doorbell first: a ring from now on finds no QP. One that was taken before is for a part that is still
		// there.
		c.unassign(q, doorbell)
		c.closesQP(q)
		o.gone = c.ownTurn(q, q.Destroy())
		return nil
	})
	send, recv := q.Rings()
	answer := abi.Ring{Handle: c.add(o), Num: uint32(q.Num()), Send: uint64(send), Recv: uint64(recv),
		Shard: uint32(q.Shard()), Doorbell: doorbell}
	if o.rings != nil {
		answer.Size = uint64(len(o.rings.buf))
	}
	return withBody(answer)
}

// qpInit resolves the handles of a request. A handle of 0 stands for none; the device says which of them a QP of the
// type must have.
func (c *session) qpInit(r *abi.CreateQP) (init ib.QPInit, err error) {
	const op = abi.OpCreateQP
	send, err1 := optional[*device.CQ](c, op, "SendCQ", r.SendCQ)
	recv, err2 := optional[*device.CQ](c, op, "RecvCQ", r.RecvCQ)
	srq, err3 := optional[*device.SRQ](c, op, "SRQ", r.SRQ)
	x, err4 := optional[*xrcd](c, op, "XRCD", r.XRCD)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return init, err
	}
	init = ib.QPInit{Type: ib.QPType(min(r.Type, 0xFF)), SigAll: r.SigAll != 0, Cap: ib.QPCap{
		MaxSendWR: int(r.MaxSendWR), MaxRecvWR: int(r.MaxRecvWR),
		MaxSendSGE: int(r.MaxSendSGE), MaxRecvSGE: int(r.MaxRecvSGE), MaxInline: int(r.MaxInline)}}
	// A nil pointer must become a nil interface.
	if send != nil {
		init.SendCQ = send
	}
	if recv != nil {
		init.RecvCQ = recv
	}
	if srq != nil {
		init.SRQ = srq
	}
	if x != nil {
		init.XRCD = x.core
	}
	return init, nil
}

// modifyQP changes a QP. It waits for the turn of the session's worker that is under way, if the QP goes to RESET or
// is an XRC target.
func modifyQP(c *session, r *abi.QPAttr) (reply, error) {
	q, err := lookup[*device.QP](c, abi.OpModifyQP, "QP", r.QP)
	if err != nil {
		return noBody(err)
	}
	a, mask := r.Attr(), ib.QPAttrMask(r.Mask)
	if err := c.mayHave(&a, mask); err != nil {
		return noBody(err)
	}
	// Booked even if the change is refused below: the largest amount that was granted stays with the QP.
	if err := c.takeRdAtomic(abi.OpModifyQP, c.objects[r.QP], &a, mask); err != nil {
		return noBody(err)
	}
	// After a reset the client may reuse buffers of requests that have vanished without completions.
	gone, err := q.BeginModify(a, mask)
	if err != nil {
		return noBody(err)
	}
	return noBody(c.retire(abi.OpModifyQP, c.ownTurn(q, gone), func() {}))
}

func queryQP(c *session, r *abi.Object) (reply, error) {
	q, err := lookup[*device.QP](c, abi.OpQueryQP, "QP", r.Handle)
	if err != nil {
		return noBody(err)
	}
	a, err := q.Query()
	if err != nil {
		return noBody(err)
	}
	return withBody(abi.QPAttrOf(r.Handle, &a, 0))
}

// qpFailure tells a client why its QP has failed, and which request of the peer the QP has refused last.
func qpFailure(c *session, r *abi.Object) (reply, error) {
	q, err := lookup[*device.QP](c, abi.OpQPFailure, "QP", r.Handle)
	if err != nil {
		return noBody(err)
	}
	failed, refused, err := q.Failure()
	if err != nil {
		return noBody(err)
	}
	return withBody(abi.QPFailure{Failed: abi.FailureOf(&failed), Refused: abi.FailureOf(&refused)})
}
