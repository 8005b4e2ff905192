package device

import (
	"fmt"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// object is implemented by the objects that verbs take as arguments.
type object interface {
	comparable
	owner() *Device
	isDead() bool
}

func (p *PD) owner() *Device      { return p.dev }
func (c *CQ) owner() *Device      { return c.dev }
func (c *Channel) owner() *Device { return c.dev }
func (q *QP) owner() *Device      { return q.pd.dev }
func (q *SRQ) owner() *Device     { return q.pd.dev }
func (x *XRCD) owner() *Device    { return x.dev }

func (p *PD) isDead() bool      { return p.dead.Load() }
func (c *CQ) isDead() bool      { return c.dead.Load() }
func (c *Channel) isDead() bool { return c.isShut.Load() }
func (q *QP) isDead() bool      { return q.dead.Load() }
func (q *SRQ) isDead() bool     { return q.dead.Load() }
func (x *XRCD) isDead() bool    { return x.dead.Load() }

// owned returns the object behind an argument of a verb, which must not be nil, belong to this device, and be open.
// The caller holds Device.mu if it goes on to count itself as a user: else the object may be closed meanwhile.
func owned[T object](d *Device, op, attr string, arg any) (T, error) {
	var none T
	fail := func(allowed string, err error) (T, error) {
		return none, driver.Refuse(op, attr, fmt.Sprintf("%T", arg), allowed, err)
	}
	o, ok := arg.(T)
	switch {
	// A nil pointer of the right type counts as none: its interface is not nil.
	case arg == nil || ok && o == none:
		return fail("an object of this device; none was given", ib.ErrInvalid)
	case !ok || o.owner() != d:
		return fail("an object of this device", ib.ErrForeign)
	case o.isDead():
		return fail("an object that is open", ib.ErrClosed)
	}
	return o, nil
}
