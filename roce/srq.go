package roce

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/qp"
	"github.com/goroce/goroce/qp/ring"
)

// SRQ is a shared receive queue of the software device.
type SRQ struct {
	pd   *PD
	typ  ib.SRQType
	xrcd *XRCD // XRC only, as is cq
	cq   *CQ
	num  uint32
	dead atomic.Bool
	qps  int // guarded by Device.mu

	core *qp.SRQ // the device's end; guarded by shard.mu
	dev  *ring.Recv

	mu   sync.Mutex // the application's end
	ring *ring.Recv
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
	if q.dev, q.ring, err = newRecvRing(init.MaxWR, init.MaxSGE, nil); err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	if err := p.core.Acquire(mr.UserSRQ); err != nil {
		return nil, fmt.Errorf("%s: PD: %w", op, err)
	}
	d.srqs++
	d.shard.addSRQ(q, init.Limit)
	return q, nil
}

// newRecvRing makes a receive ring, with what is in the old one if there is any,
// and attaches to the application's end.
func newRecvRing(entries, maxSGE int, old *ring.Recv) (device, app *ring.Recv, err error) {
	buf := ring.Alloc(ring.RecvSize(entries, maxSGE))
	if device, err = ring.NewRecv(buf, entries, maxSGE); err != nil {
		return nil, nil, err
	}
	if old != nil && !old.MoveTo(device) {
		return nil, nil, &ib.AttrError{Op: "resize SRQ", Attr: "MaxWR", Value: entries,
			Allowed: fmt.Sprintf("at least the %d receives that are posted", old.Available()), Err: ib.ErrInvalid}
	}
	app, err = ring.OpenRecv(buf)
	return device, app, err
}

// checkSRQ checks the arguments of CreateSRQ.
func (p *PD) checkSRQ(op string, init *ib.SRQInit) (*SRQ, error) {
	q := &SRQ{pd: p, typ: init.Type}
	bad := func(attr string, value any, allowed string) error {
		return &ib.AttrError{Op: op, Attr: attr, Value: value, Allowed: allowed, Err: ib.ErrInvalid}
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

// addSRQ makes the core of a new SRQ and, for XRC, its number.
func (s *shard) addSRQ(q *SRQ, limit int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.typ == ib.SRQXRC {
		q.core = qp.NewSRQ(q.dev, q.pd.core, q.cq.core, q.xrcd.core, &s.due)
		q.num = s.srqs.add(q.core)
		q.cq.srqs++
		q.xrcd.srqs++
	} else {
		q.core = qp.NewSRQ(q.dev, q.pd.core, nil, nil, &s.due)
	}
	q.core.Owner = q
	q.core.SetLimit(limit)
	s.tell()
}

// srqTable holds the XRC SRQs by number; it is guarded by shard.mu.
type srqTable struct{ numbers[qp.SRQ] }

// SRQ finds the SRQ that a request names.
func (t *srqTable) SRQ(n uint32) *qp.SRQ { return t.get(n) }

// Num returns the number of an XRC SRQ; 0 for a basic one.
func (q *SRQ) Num() uint32 { return q.num }

// Query returns the attributes.
func (q *SRQ) Query() (ib.SRQAttr, error) {
	s := q.pd.dev.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := q.err("query SRQ"); err != nil {
		return ib.SRQAttr{}, err
	}
	return ib.SRQAttr{MaxWR: q.dev.Entries(), MaxSGE: q.dev.MaxSGE(), Limit: q.core.Limit()}, nil
}

// Modify arms the limit, or changes the size.
func (q *SRQ) Modify(attr ib.SRQAttr, mask ib.SRQAttrMask) error {
	const op = "modify SRQ"
	bad := func(attr string, value any, allowed string) error {
		return &ib.AttrError{Op: op, Attr: attr, Value: value, Allowed: allowed, Err: ib.ErrInvalid}
	}
	if mask == 0 || mask&^(ib.SRQMaxWR|ib.SRQLimit) != 0 {
		return bad("attribute mask", uint8(mask), "SRQMaxWR, SRQLimit or both")
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.pd.dev.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := q.err(op); err != nil {
		return err
	}
	size := q.dev.Entries()
	if mask&ib.SRQMaxWR != 0 {
		if attr.MaxWR < 1 || attr.MaxWR > maxQPWR {
			return bad("MaxWR", attr.MaxWR, fmt.Sprintf("1 to %d", maxQPWR))
		}
		size = attr.MaxWR
	}
	if mask&ib.SRQLimit != 0 && (attr.Limit < 0 || attr.Limit > size) {
		return bad("Limit", attr.Limit, fmt.Sprintf("0 to MaxWR, %d", size))
	}
	if mask&ib.SRQMaxWR != 0 {
		if err := q.resize(size); err != nil {
			return err
		}
	}
	if mask&ib.SRQLimit != 0 {
		q.core.SetLimit(attr.Limit)
		s.tell()
	}
	return nil
}

// resize moves the receives to a ring of another size. The caller holds both
// ends.
func (q *SRQ) resize(size int) error {
	device, app, err := newRecvRing(size, q.dev.MaxSGE(), q.dev)
	if err != nil {
		return err
	}
	q.dev, q.ring = device, app
	q.core.SetRing(device)
	return nil
}

func (q *SRQ) err(op string) error {
	if q.dead.Load() || q.pd.dev.closed.Load() {
		return fmt.Errorf("%s: %w", op, ib.ErrClosed)
	}
	return nil
}

// PostRecv posts receive requests.
func (q *SRQ) PostRecv(wrs []ib.RecvWR) (n int, err error) {
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
	q.ring.Publish()
	return n, err
}

// Close destroys the queue. Receives that are posted are forgotten.
func (q *SRQ) Close() error {
	d := q.pd.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	if q.dead.Load() || d.closed.Load() {
		return nil
	}
	if q.qps > 0 {
		return fmt.Errorf("close SRQ: %w by %d QPs; close them first", ib.ErrBusy, q.qps)
	}
	q.dead.Store(true)
	d.srqs--
	if q.typ == ib.SRQXRC {
		d.shard.mu.Lock()
		d.shard.srqs.remove(q.num)
		d.shard.mu.Unlock()
		q.cq.srqs--
		q.xrcd.srqs--
	}
	q.pd.core.Release(mr.UserSRQ)
	return nil
}

// XRCD is an XRC domain of the software device.
type XRCD struct {
	dev  *Device
	core *qp.XRCD
	dead atomic.Bool

	srqs, qps int // guarded by Device.mu
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
	return &XRCD{dev: d, core: new(qp.XRCD)}, nil
}

// Close frees the domain.
func (x *XRCD) Close() error {
	x.dev.mu.Lock()
	defer x.dev.mu.Unlock()
	if x.dead.Load() || x.dev.closed.Load() {
		return nil
	}
	if err := busy("close XRCD", users{{x.srqs, "SRQs"}, {x.qps, "QPs"}}); err != nil {
		return err
	}
	x.dead.Store(true)
	x.dev.xrcds--
	return nil
}

// users counts what keeps an object from being closed.
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
