package roce

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/qp"
	"github.com/goroce/goroce/qp/ring"
	"github.com/goroce/goroce/roce/link"
)

// QP is a queue pair of the software device: the application's end of the rings,
// and what the shard keeps about the core.
type QP struct {
	pd             *PD
	num            ib.QPN
	typ            ib.QPType
	cap            ib.QPCap
	sendCQ, recvCQ *CQ

	sendMu sync.Mutex
	sq     *ring.Send
	recvMu sync.Mutex
	rq     *ring.Recv

	state atomic.Uint32 // ib.QPState, as the shard last saw it
	rung  atomic.Bool   // in the shard's doorbell list
	dead  atomic.Bool

	// Guarded by shard.mu.
	core      *qp.QP
	path      link.Run // the addressing of what it sends
	flow      *flowEntry
	timer     timerEntry
	inReady   bool
	nextReady *QP
}

// CreateQP makes a queue pair in RESET.
func (p *PD) CreateQP(init ib.QPInit) (ib.QP, error) {
	d := p.dev
	if err := d.open("create QP"); err != nil {
		return nil, err
	}
	defer d.mu.Unlock()
	q, err := p.checkQP(&init)
	if err != nil {
		return nil, err
	}
	if len(d.qps) >= maxQPs {
		return nil, limitError("create QP", "QPs", maxQPs)
	}
	if err := p.core.Acquire(mr.UserQP); err != nil {
		return nil, fmt.Errorf("create QP: PD: %w", err)
	}
	cfg, err := q.makeRings()
	if err != nil {
		p.core.Release(mr.UserQP)
		return nil, fmt.Errorf("create QP: %w", err)
	}
	cfg.Type, cfg.Table, cfg.PD = init.Type, d.mem, p.core
	cfg.SendCQ, cfg.RecvCQ = q.sendCQ.core, q.recvCQ.core
	cfg.Cap, cfg.SigAll = q.cap, init.SigAll
	cfg.Limits, cfg.AckDelay = &d.limits, int64(d.opts.AckDelay)
	d.shard.add(q, cfg)
	q.sendCQ.users.Add(1)
	q.recvCQ.users.Add(1)
	d.qps[q] = struct{}{}
	return q, nil
}

// checkQP checks the arguments of CreateQP.
func (p *PD) checkQP(init *ib.QPInit) (*QP, error) {
	bad := func(attr string, value any, allowed string, err error) (*QP, error) {
		return nil, &ib.AttrError{Op: "create QP", Attr: attr, Value: value, Allowed: allowed, Err: err}
	}
	if init.Type != ib.RC {
		return bad("Type", init.Type, "RC", ib.ErrNotSupported)
	}
	sendCQ, ok := init.SendCQ.(*CQ)
	if !ok || sendCQ.dev != p.dev || sendCQ.dead.Load() {
		return bad("SendCQ", fmt.Sprintf("%T", init.SendCQ), "an open CQ of this device", ib.ErrInvalid)
	}
	recvCQ, ok := init.RecvCQ.(*CQ)
	if !ok || recvCQ.dev != p.dev || recvCQ.dead.Load() {
		return bad("RecvCQ", fmt.Sprintf("%T", init.RecvCQ), "an open CQ of this device", ib.ErrInvalid)
	}
	for _, c := range []struct {
		attr       string
		value, max int
	}{
		{"Cap.MaxSendWR", init.Cap.MaxSendWR, maxQPWR},
		{"Cap.MaxRecvWR", init.Cap.MaxRecvWR, maxQPWR},
		{"Cap.MaxSendSGE", init.Cap.MaxSendSGE, maxSGE},
		{"Cap.MaxRecvSGE", init.Cap.MaxRecvSGE, maxSGE},
		{"Cap.MaxInline", init.Cap.MaxInline, maxInline},
	} {
		if c.value < 0 || c.value > c.max {
			return bad(c.attr, c.value, fmt.Sprintf("0 to %d", c.max), ib.ErrInvalid)
		}
	}
	return &QP{pd: p, typ: init.Type, cap: init.Cap, sendCQ: sendCQ, recvCQ: recvCQ}, nil
}

// makeRings makes the queues and attaches to the application's end. Queues of no
// entries have one that is never used.
func (q *QP) makeRings() (cfg qp.Config, err error) {
	c := &q.cap
	send, recv := max(c.MaxSendWR, 1), max(c.MaxRecvWR, 1)
	sendSGE, recvSGE := max(c.MaxSendSGE, 1), max(c.MaxRecvSGE, 1)
	buf := ring.Alloc(ring.SendSize(send, sendSGE, c.MaxInline))
	if cfg.SQ, err = ring.NewSend(buf, send, sendSGE, c.MaxInline); err != nil {
		return cfg, err
	}
	if q.sq, err = ring.OpenSend(buf); err != nil {
		return cfg, err
	}
	buf = ring.Alloc(ring.RecvSize(recv, recvSGE))
	if cfg.RQ, err = ring.NewRecv(buf, recv, recvSGE); err != nil {
		return cfg, err
	}
	q.rq, err = ring.OpenRecv(buf)
	return cfg, err
}

// Num returns the QP number.
func (q *QP) Num() ib.QPN { return q.num }

// Type returns the transport service.
func (q *QP) Type() ib.QPType { return q.typ }

// Modify changes state and attributes.
func (q *QP) Modify(attr ib.QPAttr, mask ib.QPAttrMask) error {
	if err := q.err("modify QP"); err != nil {
		return err
	}
	return q.pd.dev.shard.modify(q, &attr, mask)
}

// Query returns the attributes.
func (q *QP) Query() (ib.QPAttr, error) {
	if err := q.err("query QP"); err != nil {
		return ib.QPAttr{}, err
	}
	s := q.pd.dev.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	return q.core.Query(), nil
}

func (q *QP) err(op string) error {
	if q.dead.Load() {
		return fmt.Errorf("%s %#x: %w", op, uint32(q.num), ib.ErrClosed)
	}
	return nil
}

// PostSend posts send requests.
func (q *QP) PostSend(wrs []ib.SendWR) (n int, err error) {
	if err := q.err("post send on QP"); err != nil {
		return 0, err
	}
	if state := ib.QPState(q.state.Load()); !qp.CanPostSend(state) {
		return 0, q.postError("post send", state, "RTS (also SQD and ERR)")
	}
	q.sendMu.Lock()
	for n < len(wrs) {
		if err = q.pushSend(&wrs[n]); err != nil {
			break
		}
		n++
	}
	q.sq.Publish()
	q.sendMu.Unlock()
	if n > 0 {
		q.pd.dev.shard.ring(q)
	}
	return n, err
}

func (q *QP) pushSend(wr *ib.SendWR) error {
	if !qp.SupportsSend(q.typ, wr.Opcode) {
		return &ib.AttrError{Op: fmt.Sprintf("post send on QP %#x", uint32(q.num)), Attr: "Opcode", Value: wr.Opcode,
			Allowed: "SEND, RDMA WRITE, RDMA READ and atomics on an RC QP", Err: ib.ErrNotSupported}
	}
	if q.cap.MaxSendWR == 0 {
		return fmt.Errorf("post send on QP %#x: created with MaxSendWR 0: %w", uint32(q.num), ib.ErrQueueFull)
	}
	return q.sq.Push(wr)
}

// PostRecv posts receive requests.
func (q *QP) PostRecv(wrs []ib.RecvWR) (n int, err error) {
	if err := q.err("post receive on QP"); err != nil {
		return 0, err
	}
	if state := ib.QPState(q.state.Load()); !qp.CanPostRecv(state) {
		return 0, q.postError("post receive", state, "INIT and later")
	}
	q.recvMu.Lock()
	for n < len(wrs) {
		if q.cap.MaxRecvWR == 0 {
			err = fmt.Errorf("post receive on QP %#x: created with MaxRecvWR 0: %w", uint32(q.num), ib.ErrQueueFull)
			break
		}
		if err = q.rq.Push(&wrs[n]); err != nil {
			break
		}
		n++
	}
	q.rq.Publish()
	q.recvMu.Unlock()
	// Receives are looked for when a message needs one; only ERR wants to know,
	// to flush them.
	if n > 0 && ib.QPState(q.state.Load()) == ib.Err {
		q.pd.dev.shard.ring(q)
	}
	return n, err
}

func (q *QP) postError(op string, state ib.QPState, allowed string) error {
	return &ib.AttrError{Op: fmt.Sprintf("%s on QP %#x", op, uint32(q.num)), Attr: "QP state", Value: state,
		Allowed: allowed, Err: ib.ErrState}
}

// Close destroys the QP. Requests that are under way end without completions.
func (q *QP) Close() error {
	d := q.pd.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	if q.dead.Swap(true) {
		return nil
	}
	d.shard.drop(q)
	delete(d.qps, q)
	q.sendCQ.users.Add(-1)
	q.recvCQ.users.Add(-1)
	q.pd.core.Release(mr.UserQP)
	return nil
}
