package device

import (
	"fmt"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/qp"
)

// Requests name an address handle by its number, which is the device's. A tenant may write any number into its ring:
// package qp refuses a handle of another PD. What shards see of a handle (qp.AH) never changes; Modify replaces it.

// AH is an address handle of the software device.
type AH struct {
	driver.Implementation

	pd   *PD
	num  ib.AHNum  // stays that of the handle until Close
	attr ib.AHAttr // attr and dead are guarded by Device.mu
	dead bool
}

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
	a := &AH{pd: p, num: ib.AHNum(d.ahNums.take()), attr: attr}
	a.set(core)
	return a, nil
}

// set sets core as the handle that requests name by the handle's number; nil removes it. It takes the lock of each
// shard in turn. The caller holds Device.mu, so that changes reach all shards in the same order.
func (a *AH) set(core *qp.AH) {
	a.pd.dev.engine.SetAH(a.num, core)
}

// newAH checks an address vector and makes the core's handle, with the addressing of packets.
func (p *PD) newAH(op string, attr *ib.AHAttr) (*qp.AH, error) {
	gids := *p.dev.gids.Load()
	if err := checkAH(op, attr, gids); err != nil {
		return nil, err
	}
	path := gids.path(attr)
	return &qp.AH{PD: p.core, Attr: *attr, Owner: &path}, nil
}

// Num returns the number by which requests name the handle.
func (a *AH) Num() ib.AHNum { return a.num }

// Query returns the address vector.
func (a *AH) Query() (ib.AHAttr, error) {
	if err := a.open("query"); err != nil {
		return ib.AHAttr{}, err
	}
	defer a.pd.dev.mu.Unlock()
	return a.attr, nil
}

// Modify changes the destination of later requests.
func (a *AH) Modify(attr ib.AHAttr) error {
	core, err := a.pd.newAH("modify AH", &attr)
	if err != nil {
		return err
	}
	if err := a.open("modify"); err != nil {
		return err
	}
	defer a.pd.dev.mu.Unlock()
	a.attr = attr
	a.set(core)
	return nil
}

// open takes Device.mu if the handle is open; the caller unlocks it.
func (a *AH) open(op string) error {
	d := a.pd.dev
	d.mu.Lock()
	if a.dead || d.closed.Load() {
		d.mu.Unlock()
		return fmt.Errorf("%s AH %d: %w", op, a.num, ib.ErrClosed)
	}
	return nil
}

// Close destroys the handle. Its number rests before another handle gets it (numbers), as requests that name it may
// still be in a ring.
func (a *AH) Close() error {
	d := a.pd.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	if a.dead || d.closed.Load() {
		return nil
	}
	a.dead = true
	a.set(nil)
	d.ahNums.put(uint32(a.num))
	d.ahs--
	a.pd.core.Release(mr.UserAH)
	return nil
}
