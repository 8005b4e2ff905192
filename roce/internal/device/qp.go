package device

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/qp"
	"github.com/goroce/goroce/qp/ring"
	"github.com/goroce/goroce/roce/internal/engine"
	"github.com/goroce/goroce/roce/internal/slowmem"
	"github.com/goroce/goroce/roce/link"
)

// A QP counts as a user of its PD, CQs, SRQ and XRC domain from CreateQP to Destroy, both under Device.mu. So none of
// them can be closed while a shard may use it for the QP. The other verbs take the lock of the QP's shard only. They
// look at dead first; a Destroy that comes after that is noticed under the shard's lock, where the engine's part says
// that it is closed.

// QP is a queue pair of the software device. It has the application's end of the rings.
type QP struct {
	driver.Implementation

	pd             *PD
	home           *engine.Shard // for good: it drives the QP, and its lock guards the state
	part           *engine.QP    // the engine's part
	num            ib.QPN
	typ            ib.QPType
	cap            ib.QPCap // rounded up to what the rings have
	sendCQ, recvCQ *CQ      // nil where the type has none
	srq            *SRQ     // nil without one; targets of XRC take that which a request names
	xrcd           *XRCD

	front qp.Front    // posting side of an application in this process; the shard updates its state
	dead  atomic.Bool // set by the first Destroy, under Device.mu
}

// CreateQP makes a queue pair in RESET.
func (p *PD) CreateQP(init ib.QPInit) (ib.QP, error) {
	d := p.dev
	if err := d.open("create QP"); err != nil {
		return nil, err
	}
	defer d.mu.Unlock()
	// mu is held to the end, so that nobody closes a CQ, SRQ or domain between this check and count.
	q, err := p.checkQP(&init)
	if err != nil {
		return nil, err
	}
	if len(d.qps) >= maxQPs {
		return nil, limitError("create QP", "QPs", maxQPs)
	}
	// A tenant's rings are memory of another process: if formatting them faults, the panic passes the deferred
	// Unlock.
	cfg, err := q.makeRings()
	if err != nil {
		return nil, err
	}
	if err := p.core.Acquire(mr.UserQP); err != nil {
		return nil, fmt.Errorf("create QP: PD: %w", err)
	}
	cfg.Type, cfg.Table, cfg.PD = init.Type, d.mem, p.core
	cfg.Cap, cfg.SigAll = q.cap, init.SigAll
	cfg.AckDelay = int64(d.opts.AckDelay)
	cfg.Trains = !d.opts.NoTrains
	cfg.Probe = !d.opts.NoProbes
	cfg.MaxLate = maxLate
	// Nothing fails from here on: checkQP has seen a free number, and only CreateQP takes numbers.
	q.count(1)
	q.part = q.home.Add(engine.QPInit{Owner: q, App: p.tenant, Remote: p.tenant != nil, Config: cfg, Front: &q.front,
		Worker: workerOf})
	q.num = q.part.Num()
	d.byNum.Store(q.num, q)
	d.qps[q] = struct{}{}
	return q, nil
}

// checkQP checks the arguments of CreateQP. It returns a QP that nobody knows yet. The caller holds Device.mu.
func (p *PD) checkQP(init *ib.QPInit) (*QP, error) {
	bad := func(attr string, value any, allowed string, err error) (*QP, error) {
		return nil, driver.Refuse("create QP", attr, value, allowed, err)
	}
	if !qp.Known(init.Type) || init.Type == ib.GSI {
		return bad("Type", init.Type, "RC, UC, UD, XRCINI, XRCTGT; QP 1 is the connection manager's (OpenCM)",
			ib.ErrNotSupported)
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
	q := &QP{pd: p, typ: init.Type, cap: init.Cap}
	q.cap.MaxSendWR, q.cap.MaxRecvWR = ring.Slots(q.cap.MaxSendWR), ring.Slots(q.cap.MaxRecvWR)
	if err := q.attach(init); err != nil {
		return nil, err
	}
	q.home = q.chooseShard()
	if !q.home.Room() {
		return nil, limitError("create QP", "QPs on the shard of this send CQ", maxQPs)
	}
	return q, nil
}

// chooseShard returns the shard of a new QP: that of its send CQ.
func (q *QP) chooseShard() *engine.Shard {
	d := q.pd.dev
	if q.sendCQ == nil {
		return d.nextShard()
	}
	// A program that polls the CQ then drives the shard of its QPs (CQ.Poll), and completions of sends do not cross
	// shards. Those of receives do, if the receive CQ is on another one.
	return q.sendCQ.home
}

// attach looks up the objects that a QP of its type uses. XRC initiators have no receive
// queue. XRC targets have neither queue: their receives come from the SRQs of their domain.
func (q *QP) attach(init *ib.QPInit) (err error) {
	const op = "create QP"
	d := q.pd.dev
	if qp.Sends(q.typ) {
		if q.sendCQ, err = owned[*CQ](d, op, "SendCQ", init.SendCQ); err != nil {
			return err
		}
	}
	switch q.typ {
	case ib.XRCINI:
		q.cap.MaxRecvWR = 0
		return nil
	case ib.XRCTGT:
		q.cap = ib.QPCap{}
		q.xrcd, err = owned[*XRCD](d, op, "XRCD", init.XRCD)
		return err
	}
	if q.recvCQ, err = owned[*CQ](d, op, "RecvCQ", init.RecvCQ); err != nil || init.SRQ == nil {
		return err
	}
	if q.srq, err = owned[*SRQ](d, op, "SRQ", init.SRQ); err != nil {
		return err
	}
	if q.srq.typ != ib.SRQBasic {
		return driver.Refuse(op, "SRQ", q.srq.typ, "a basic SRQ; XRC requests name theirs by number", ib.ErrInvalid)
	}
	q.cap.MaxRecvWR, q.cap.MaxRecvSGE = 0, 0
	return nil
}

// count adds n, 1 or -1, to the number of users of each object that the QP uses. The caller
// holds Device.mu.
func (q *QP) count(n int) {
	if q.sendCQ != nil {
		q.sendCQ.qps += n
	}
	if q.recvCQ != nil && q.recvCQ != q.sendCQ {
		q.recvCQ.qps += n
	}
	if q.srq != nil {
		q.srq.qps += n
	}
	switch {
	case q.xrcd == nil:
	case n > 0:
		q.xrcd.targets[q] = struct{}{}
	default:
		delete(q.xrcd.targets, q)
	}
}

// config fills in the objects of the core's configuration.
func (q *QP) config(cfg *qp.Config) {
	if q.sendCQ != nil {
		cfg.SendCQ = q.sendCQ.core
	}
	if q.recvCQ != nil {
		cfg.RecvCQ = q.recvCQ.core
	}
	if q.srq != nil {
		cfg.SRQ = q.srq.core
	}
	if q.xrcd != nil {
		cfg.XRCD = q.xrcd.core
	}
}

// makeRings allocates both queues in one piece of memory, the send ring before the receive ring. If the application
// is in this process it opens the application's ends too. Queues without entries get shared dummy rings. The caller
// holds Device.mu.
func (q *QP) makeRings() (cfg qp.Config, err error) {
	q.config(&cfg)
	f := &q.front
	f.Type, f.HasSRQ = q.typ, q.srq != nil
	cfg.SQ, f.SQ = ring.NoSend(), ring.NoSend()
	cfg.RQ, f.RQ = ring.NoRecv(), ring.NoRecv()
	c := &q.cap
	send, recv := q.Rings()
	if send+recv == 0 {
		return cfg, nil
	}
	buf, err := allocFor(q.pd.tenant, send+recv)
	if err != nil {
		return cfg, err
	}
	if send > 0 {
		cfg.SQ, err = ring.NewSend(buf[:send:send], c.MaxSendWR, max(c.MaxSendSGE, 1), c.MaxInline)
	}
	if recv > 0 && err == nil {
		cfg.RQ, err = ring.NewRecv(buf[send:], c.MaxRecvWR, max(c.MaxRecvSGE, 1))
	}
	// A tenant maps the same memory, and opens its ends in its process.
	if err != nil || q.pd.tenant != nil {
		return cfg, err
	}
	if send > 0 {
		f.SQ, err = ring.OpenSend(buf[:send])
	}
	if recv > 0 && err == nil {
		f.RQ, err = ring.OpenRecv(buf[send:])
	}
	return cfg, err
}

// Num returns the QP number.
func (q *QP) Num() ib.QPN { return q.num }

// Type returns the transport service.
func (q *QP) Type() ib.QPType { return q.typ }

// Modify changes state and attributes.
func (q *QP) Modify(attr ib.QPAttr, mask ib.QPAttrMask) error {
	_, err := q.BeginModify(attr, mask)
	return err
}

// BeginModify is Modify for QPs with slow memory: after a reset, a turn of the worker that is under way
// may still write what requests have brought. gone is closed when it has ended.
func (q *QP) BeginModify(attr ib.QPAttr, mask ib.QPAttrMask) (gone <-chan struct{}, err error) {
	gone = slowmem.NoTurn
	if err := q.err("modify QP"); err != nil {
		return gone, err
	}
	const op = "modify QP"
	var path link.Run
	if mask&ib.AttrAV != 0 {
		// One table for the check and for the path: the row that was checked is the one that packets carry.
		gids := *q.pd.dev.gids.Load()
		if err := checkSource(fmt.Sprintf("%s %#x", op, uint32(q.num)), &attr.AH, gids); err != nil {
			return gone, err
		}
		path = gids.path(&attr.AH)
		attr.AH.HopLimit = path.HopLimit // which Query returns, as Linux does
	}
	// Without Device.mu: QPs change their states side by side. A Close that comes between leaves part closed.
	// gone is closed already unless the QP goes to RESET and has placements with a worker.
	gone, open, err := q.part.Modify(&attr, mask, &path)
	if !open { // closed concurrently
		return gone, q.err(op)
	}
	return gone, err
}

// Query returns the attributes.
func (q *QP) Query() (ib.QPAttr, error) {
	if err := q.err("query QP"); err != nil {
		return ib.QPAttr{}, err
	}
	a, open := q.part.Query()
	if !open { // closed concurrently
		return a, q.err("query QP")
	}
	return a, nil
}

// Failure returns why the QP failed last, and why it last refused a request of the peer.
func (q *QP) Failure() (failed, refused ib.Failure, err error) {
	const op = "query failure of QP"
	if err := q.err(op); err != nil {
		return failed, refused, err
	}
	failed, refused, open := q.part.Failure()
	if !open { // closed concurrently
		return failed, refused, q.err(op)
	}
	return failed, refused, nil
}

// Traffic returns what the QP has sent and received since it was made, and the state of the way to its destination.
func (q *QP) Traffic() (traffic qp.Traffic, path engine.Path, err error) {
	const op = "query traffic of QP"
	if err := q.err(op); err != nil {
		return traffic, path, err
	}
	traffic, path, open := q.part.Traffic()
	if !open { // closed concurrently
		return traffic, path, q.err(op)
	}
	return traffic, path, nil
}

// own is err for operations on the application's end of the rings, which a tenant's QP lacks.
func (q *QP) own(op string) error {
	if q.pd.tenant != nil {
		return notHere(op)
	}
	return q.err(op)
}

func (q *QP) err(op string) error {
	if q.dead.Load() {
		return fmt.Errorf("%s %#x: %w", op, uint32(q.num), ib.ErrClosed)
	}
	return nil
}

// PostSend posts send requests. Those before one that is refused stay posted.
func (q *QP) PostSend(wrs []ib.SendWR) (n int, err error) {
	if err := q.own("post send on QP"); err != nil {
		return 0, err
	}
	// Under no lock of the device or the shard: front writes the ring, and the shard reads it.
	n, _, err = q.front.PostSend(wrs)
	if n > 0 {
		q.part.Posted(wrs[:n])
	}
	return n, err
}

// PostRecv posts receive requests.
func (q *QP) PostRecv(wrs []ib.RecvWR) (n int, err error) {
	if err := q.own("post receive on QP"); err != nil {
		return 0, err
	}
	n, _, err = q.front.PostRecv(wrs)
	// The responder looks for receives when a message needs one. Only a QP in ERR needs
	// the doorbell, to flush them.
	if n > 0 && q.front.State() == ib.StateErr {
		q.part.Ring()
	}
	return n, err
}

// Close destroys the QP. Outstanding requests end without completions.
func (q *QP) Close() error {
	q.Destroy()
	return nil
}

// Destroy is Close for QPs with slow memory: a turn of the worker that is under way may still write what requests
// have brought. gone is closed when it has ended. A second call returns at once, and does not wait for the turn that
// the first one has to wait for.
func (q *QP) Destroy() (gone <-chan struct{}) {
	d := q.pd.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	if q.dead.Swap(true) {
		return slowmem.NoTurn
	}
	gone = q.drop()
	delete(d.qps, q)
	// After drop: no turn uses the CQs, the SRQ and the rings any more, so that they may be closed.
	q.count(-1)
	q.pd.core.Release(mr.UserQP)
	return gone
}

// drop takes the QP out of its shard. The caller holds Device.mu, also while this waits for the shard's turn to end
// and a last ACK leaves (engine.QP.Close). So what a shard calls, owner and Tenant, must not take Device.mu.
func (q *QP) drop() (gone <-chan struct{}) {
	for group, members := range q.pd.dev.groups {
		if slices.Contains(members, q) {
			_ = q.pd.dev.detach(q, group) // on an error the link stays in the group
		}
	}
	q.pd.dev.byNum.Delete(q.num)
	return q.part.Close()
}
