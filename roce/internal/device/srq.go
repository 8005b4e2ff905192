package device

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/qp"
	"github.com/goroce/goroce/qp/ring"
	"github.com/goroce/goroce/roce/internal/engine"
	"github.com/goroce/goroce/roce/internal/slowmem"
)

// Like a CQ, an SRQ has two ends: shards take receives out of the device's end (core), under its lock if there are
// several; the application posts to its own (ring), under mu. A basic SRQ is used by the QPs that were created with
// it. One for XRC is found by its number, in the table of each shard, by any target of its domain.

// SRQ is a shared receive queue of the software device.
type SRQ struct {
	driver.Implementation

	pd   *PD
	typ  ib.SRQType
	xrcd *XRCD // xrcd and cq are for XRC only
	cq   *CQ
	num  uint32 // of an XRC SRQ, which requests carry; 0 for a basic one
	dead atomic.Bool
	qps  int // guarded by Device.mu

	core *qp.SRQ // the device's end

	mu   sync.Mutex // the application's end
	ring *ring.Recv // nil for a tenant
}

// CreateSRQ makes a shared receive queue.
func (p *PD) CreateSRQ(init ib.SRQInit) (ib.SRQ, error) {
	const op = "create SRQ"
	d := p.dev
	if err := d.open(op); err != nil {
		return nil, err
	}
	defer d.mu.Unlock()
	q, err := p.checkSRQ(op, &init)
	if err != nil {
		return nil, err
	}
	if d.srqs == maxSRQs {
		return nil, limitError(op, "SRQs", maxSRQs)
	}
	device, buf, err := newRecvRing(p.tenant, init.MaxWR, init.MaxSGE)
	if err == nil && p.tenant == nil {
		q.ring, err = ring.OpenRecv(buf)
	}
	if err != nil {
		return nil, err
	}
	if err := p.core.Acquire(mr.UserSRQ); err != nil {
		return nil, fmt.Errorf("%s: PD: %w", op, err)
	}
	d.srqs++
	q.makeCore(device, init.Limit)
	return q, nil
}

// newRecvRing makes a receive ring. It returns the device's end, and the memory that
// the application's end is opened on.
func newRecvRing(t Tenant, entries, maxSGE int) (device *ring.Recv, buf []byte, err error) {
	if buf, err = allocFor(t, ring.RecvSize(entries, maxSGE)); err != nil {
		return nil, nil, err
	}
	device, err = ring.NewRecv(buf, entries, maxSGE)
	return device, buf, err
}

// checkSRQ checks the arguments of CreateSRQ. The caller holds Device.mu, so that what it finds stays open until it
// is counted.
func (p *PD) checkSRQ(op string, init *ib.SRQInit) (*SRQ, error) {
	q := &SRQ{pd: p, typ: init.Type}
	bad := func(attr string, value any, allowed string) error {
		return driver.Refuse(op, attr, value, allowed, ib.ErrInvalid)
	}
	switch {
	case init.Type > ib.SRQXRC:
		return nil, bad("Type", init.Type, "SRQBasic or SRQXRC")
	case init.MaxWR < 1 || init.MaxWR > maxQPWR:
		return nil, bad("MaxWR", init.MaxWR, fmt.Sprintf("1 to %d", maxQPWR))
	case init.MaxSGE < 1 || init.MaxSGE > maxSGE:
		return nil, bad("MaxSGE", init.MaxSGE, fmt.Sprintf("1 to %d", maxSGE))
	case init.Limit < 0 || init.Limit > init.MaxWR:
		return nil, bad("Limit", init.Limit, fmt.Sprintf("0 to MaxWR, %d", init.MaxWR))
	case init.Type == ib.SRQBasic:
		return q, nil
	}
	var err error
	if q.xrcd, err = owned[*XRCD](p.dev, op, "XRCD", init.XRCD); err != nil {
		return nil, err
	}
	q.cq, err = owned[*CQ](p.dev, op, "CQ", init.CQ)
	return q, err
}

// makeCore makes the device's end of a new SRQ and, for XRC, its number. The caller
// holds Device.mu.
func (q *SRQ) makeCore(device *ring.Recv, limit int) {
	d := q.pd.dev
	if q.typ == ib.SRQXRC {
		q.core = qp.NewSRQ(device, q.pd.core, q.cq.core, q.xrcd.core, d.engine.NewLock())
		q.num = d.srqNums.take()
		q.cq.srqs++
		q.xrcd.srqs++
	} else {
		q.core = qp.NewSRQ(device, q.pd.core, nil, nil, d.engine.NewLock())
	}
	q.core.Owner = q
	q.setLimit(limit)
	if q.typ == ib.SRQXRC {
		// Last: from here on a request may find the SRQ by its number.
		d.engine.Each(func(s *engine.Shard) { s.SetSRQ(q.num, q.core) })
	}
}

// setLimit arms the limit. If it is reached already, the event is delivered at once. Any shard will do, as for Query.
func (q *SRQ) setLimit(limit int) { q.pd.dev.shard(0).SetSRQLimit(q.core, limit) }

// Num returns the number of an XRC SRQ; 0 for a basic one.
func (q *SRQ) Num() uint32 { return q.num }

// Query returns the attributes.
func (q *SRQ) Query() (ib.SRQAttr, error) {
	if err := q.err("query SRQ"); err != nil {
		return ib.SRQAttr{}, err
	}
	var attr ib.SRQAttr
	// The lock of any shard would do: where there are several the SRQ has one of its own.
	q.pd.dev.shard(0).Locked(func() {
		attr.MaxWR, attr.MaxSGE = q.core.Capacity()
		attr.Limit = q.core.Limit()
	})
	return attr, nil
}

// Modify arms the limit, or changes the size. mu is held to the end: nobody posts, or changes it, in between.
func (q *SRQ) Modify(attr ib.SRQAttr, mask ib.SRQAttrMask) error {
	const op = "modify SRQ"
	bad := func(attr string, value any, allowed string) error {
		return driver.Refuse(op, attr, value, allowed, ib.ErrInvalid)
	}
	if mask == 0 || mask&^(ib.SRQMaxWR|ib.SRQLimit) != 0 {
		return bad("attribute mask", uint8(mask), "SRQMaxWR, SRQLimit or both")
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.err(op); err != nil {
		return err
	}
	size, _ := q.core.Capacity()
	if mask&ib.SRQMaxWR != 0 {
		if attr.MaxWR < 1 || attr.MaxWR > maxQPWR {
			return bad("MaxWR", attr.MaxWR, fmt.Sprintf("1 to %d", maxQPWR))
		}
		size = attr.MaxWR
	}
	if mask&ib.SRQLimit != 0 && (attr.Limit < 0 || attr.Limit > size) {
		return bad("Limit", attr.Limit, fmt.Sprintf("0 to MaxWR, %d", size))
	}
	// The size first: a limit may be above the old size, and if the size is refused the limit stays, too.
	if mask&ib.SRQMaxWR != 0 {
		if err := q.resize(size); err != nil {
			return err
		}
	}
	if mask&ib.SRQLimit != 0 {
		q.setLimit(attr.Limit)
	}
	return nil
}

// resize moves the receives to a ring of another size. The caller holds mu.
func (q *SRQ) resize(size int) error {
	_, maxSGE := q.core.Capacity()
	device, buf, err := newRecvRing(q.pd.tenant, size, maxSGE)
	if err != nil {
		return err
	}
	// In steps, as CQ.Resize; mu keeps PostRecv out until the ring has been replaced.
	if !q.pd.dev.shard(0).InSteps(q.core.Resize(device)) {
		return driver.Refuse("resize SRQ", "MaxWR", size,
			"at least the number of posted receives; try again when messages have used some", ib.ErrInvalid)
	}
	if q.pd.tenant == nil {
		q.ring, err = ring.OpenRecv(buf)
	}
	return err
}

func (q *SRQ) err(op string) error {
	if q.dead.Load() || q.pd.dev.closed.Load() {
		return fmt.Errorf("%s: %w", op, ib.ErrClosed)
	}
	return nil
}

// PostRecv posts receive requests.
func (q *SRQ) PostRecv(wrs []ib.RecvWR) (n int, err error) {
	if q.pd.tenant != nil {
		return 0, notHere("post receive on SRQ")
	}
	if err := q.err("post receive on SRQ"); err != nil {
		return 0, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for n < len(wrs) {
		if err = q.ring.Push(&wrs[n]); err != nil {
			break
		}
		n++
	}
	// Nothing is rung: a responder looks for a receive when a message needs one.
	q.ring.Publish()
	return n, err
}

// Close destroys the queue. Posted receives end without completions.
func (q *SRQ) Close() error {
	_, err := q.Destroy()
	return err
}

// Destroy is Close for SRQs with slow memory: messages that have arrived for an XRC SRQ may still be written to their
// receives. gone is closed when they are. For a basic SRQ there is nothing to wait for: its QPs ended before, each
// with a gone of its own.
func (q *SRQ) Destroy() (gone <-chan struct{}, err error) {
	d := q.pd.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	if q.dead.Load() || d.closed.Load() {
		return slowmem.NoTurn, nil
	}
	if q.qps > 0 {
		return nil, fmt.Errorf("close SRQ: %w by %d QPs; close them first", ib.ErrBusy, q.qps)
	}
	q.dead.Store(true)
	d.srqs--
	gone = slowmem.NoTurn
	if q.typ == ib.SRQXRC {
		q.forget()
		if w := q.pd.worker(); w != nil {
			gone = w.part.Drained()
		}
		// After forget: whoever gets the number next has no requests of this SRQ.
		d.srqNums.put(q.num)
		q.cq.srqs--
		q.xrcd.srqs--
	}
	q.pd.core.Release(mr.UserSRQ)
	return gone, nil
}

// forget removes an XRC SRQ from the shards, so that no target QP finds it any more, and then from
// the target QPs, for each of which the shard may take turns. When it returns no shard uses the SRQ's ring
// any more, or its CQ for the SRQ's completions. The caller holds Device.mu.
func (q *SRQ) forget() {
	q.pd.dev.engine.Each(func(s *engine.Shard) { s.SetSRQ(q.num, nil) })
	for target := range q.xrcd.targets {
		target.part.Shard().Locked(func() { target.part.ForgetSRQ(q.core) })
	}
}

// XRCD is an XRC domain of the software device. It is busy while it has SRQs or targets.
type XRCD struct {
	driver.Implementation

	dev  *Device
	core *qp.XRCD
	dead atomic.Bool

	srqs    int // srqs and targets are guarded by Device.mu
	targets map[*QP]struct{}
}

// AllocXRCD makes an XRC domain.
func (d *Device) AllocXRCD() (ib.XRCD, error) {
	if err := d.open("allocate XRCD"); err != nil {
		return nil, err
	}
	defer d.mu.Unlock()
	if d.xrcds == maxXRCDs {
		return nil, limitError("allocate XRCD", "XRCDs", maxXRCDs)
	}
	d.xrcds++
	return &XRCD{dev: d, core: new(qp.XRCD), targets: map[*QP]struct{}{}}, nil
}

// Close frees the domain.
func (x *XRCD) Close() error {
	x.dev.mu.Lock()
	defer x.dev.mu.Unlock()
	if x.dead.Load() || x.dev.closed.Load() {
		return nil
	}
	if err := busy("close XRCD", users{{x.srqs, "SRQs"}, {len(x.targets), "QPs"}}); err != nil {
		return err
	}
	x.dead.Store(true)
	x.dev.xrcds--
	return nil
}

// users counts, by kind, the objects that still use an object and keep it from being closed.
type users []struct {
	n    int
	what string
}

// busy returns an error that lists the users, nil if there are none.
func busy(op string, by users) error {
	var list []string
	for _, u := range by {
		if u.n > 0 {
			list = append(list, fmt.Sprintf("%d %s", u.n, u.what))
		}
	}
	if len(list) == 0 {
		return nil
	}
	return fmt.Errorf("%s: %w by %s; close them first", op, ib.ErrBusy, strings.Join(list, ", "))
}
