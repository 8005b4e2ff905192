package roce

import (
	"fmt"
	"sync/atomic"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/qp"
	"github.com/goroce/goroce/roce/link"
)

// AH is an address handle of the software device.
type AH struct {
	pd   *PD
	num  ib.AHNum
	dead atomic.Bool
}

// ahTable holds the address handles by number; it is guarded by shard.mu.
type ahTable struct{ numbers[qp.AH] }

// AH finds the handle that a request names.
func (t *ahTable) AH(n ib.AHNum) *qp.AH { return t.get(uint32(n)) }

// CreateAH makes an address handle.
func (p *PD) CreateAH(attr ib.AHAttr) (ib.AH, error) {
	const op = "create AH"
	d := p.dev
	if err := d.open(op); err != nil {
		return nil, err
	}
	defer d.mu.Unlock()
	core, err := p.newAH(op, &attr)
	if err != nil {
		return nil, err
	}
	if d.ahs == maxAHs {
		return nil, limitError(op, "AHs", maxAHs)
	}
	if err := p.core.Acquire(mr.UserAH); err != nil {
		return nil, fmt.Errorf("%s: PD: %w", op, err)
	}
	d.ahs++
	d.shard.mu.Lock()
	defer d.shard.mu.Unlock()
	return &AH{pd: p, num: ib.AHNum(d.shard.ahs.add(core))}, nil
}

// newAH checks an address vector and works out what sending to it takes.
func (p *PD) newAH(op string, attr *ib.AHAttr) (*qp.AH, error) {
	s := p.dev.shard
	if err := qp.CheckAH(op, attr, &p.dev.limits); err != nil {
		return nil, err
	}
	if err := s.checkFamily(op, attr); err != nil {
		return nil, err
	}
	path := s.path(attr)
	return &qp.AH{PD: p.core, Attr: *attr, Owner: &path}, nil
}

// path is the addressing of what goes to a: all but the source port.
func (s *shard) path(a *ib.AHAttr) link.Run {
	hops := a.HopLimit
	if hops == 0 {
		hops = defaultHops
	}
	return link.Run{Src: s.dev.caps.Local[a.SGIDIndex], Dst: a.DGID, TrafficClass: a.TrafficClass, HopLimit: hops, FlowLabel: a.FlowLabel}
}

// Num returns the number by which requests name the handle.
func (a *AH) Num() ib.AHNum { return a.num }

// Query returns the address vector.
func (a *AH) Query() (ib.AHAttr, error) {
	s := a.pd.dev.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := a.err("query"); err != nil {
		return ib.AHAttr{}, err
	}
	return s.ahs.AH(a.num).Attr, nil
}

// Modify changes where later requests go.
func (a *AH) Modify(attr ib.AHAttr) error {
	core, err := a.pd.newAH("modify AH", &attr)
	if err != nil {
		return err
	}
	s := a.pd.dev.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := a.err("modify"); err != nil {
		return err
	}
	s.ahs.items[a.num-1] = core
	return nil
}

func (a *AH) err(op string) error {
	if a.dead.Load() || a.pd.dev.closed.Load() {
		return fmt.Errorf("%s AH %d: %w", op, a.num, ib.ErrClosed)
	}
	return nil
}

// Close destroys the handle.
func (a *AH) Close() error {
	d := a.pd.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	if a.dead.Swap(true) || d.closed.Load() {
		return nil
	}
	d.shard.mu.Lock()
	d.shard.ahs.remove(uint32(a.num))
	d.shard.mu.Unlock()
	d.ahs--
	a.pd.core.Release(mr.UserAH)
	return nil
}
