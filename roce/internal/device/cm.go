package device

import (
	"fmt"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/roce/cm"
	"github.com/goroce/goroce/roce/internal/cma"
)

// CMLimits bound the objects of an account in the port's connection manager.
type CMLimits = cma.Limits

// CMOwner is an account in the port's connection manager: of a user, or of a process.
type CMOwner = cma.Owner

// CM is an event channel of the port's connection manager. It implements ib.CM.
type CM = cma.Channel

// CMID is an ID of the port's connection manager. It implements ib.CMID.
type CMID = cma.ID

var _ ib.CMDevice = (*Device)(nil)

// cmHost is the device as its connection manager sees it.
type cmHost struct{ *Device }

func (d *Device) newCM() *cma.Port {
	return cma.New(cmHost{d}, cma.Options{Name: d.opts.Name, GUID: d.guid, Rand: newRand(d.opts.Seed, streamCM),
		MaxRdAtomic: maxRdAtomic, HopLimit: defaultHops, Route: d.opts.Route, Source: d.opts.Source})
}

// Now returns the time: with Options.Manual that of Options.Clock, or of the last Step.
func (h cmHost) Now() ib.Instant {
	switch {
	case h.opts.Manual && h.opts.Clock != nil:
		return h.opts.Clock()
	case h.opts.Manual:
		return ib.Instant(h.stepped.Load())
	}
	return h.engine.Now()
}

func (h cmHost) MTU() ib.MTU { return ib.MTU(h.mtu.Load()) }

func (h cmHost) GIDIndex(g ib.GID, held bool) int { return h.gids.Load().find(g, held) }

func (h cmHost) HeldGIDs() []ib.GIDEntry {
	gids, _ := h.GIDs(1) // never fails: port 1 exists
	return gids
}

// CheckQP refuses a QP that is not the tenant's, or has another type than the ID.
func (h cmHost) CheckQP(op string, tenant any, num ib.QPN, typ ib.QPType) error {
	t, _ := tenant.(Tenant)
	q, ok := h.byNum.Load(num)
	if ok && includes(q.(*QP).pd.tenant, t) && connects(typ, q.(*QP).typ) {
		return nil
	}
	return driver.Refuse(op, "QPN", fmt.Sprintf("%#x", uint32(num)),
		fmt.Sprintf("an open QP of yours of type %v", typ), ib.ErrInvalid)
}

// connects reports whether an ID of one type may connect a QP of another. IDs of XRC QPs have type RC, as in
// librdmacm. A UD QP is allowed because UCX names one that carries no data: it only reserves the QP number for the
// connection. Linux does not check the type.
func connects(id, qp ib.QPType) bool {
	return id == qp || id == ib.RC && (qp == ib.XRCINI || qp == ib.XRCTGT || qp == ib.UD)
}

func (h cmHost) WakeGSI()  { h.engine.WakeGSI() }
func (h cmHost) FlushGSI() { h.engine.FlushGSI() }

// OpenCM opens an event channel of the port's connection manager for this process.
func (d *Device) OpenCM() (ib.CM, error) {
	ch, err := d.OpenCMFor(d.cmOwn, nil, false)
	if err != nil {
		return nil, err
	}
	return ch, nil
}

// OpenCMFor opens an event channel on the account of o. Its IDs may name QPs of tenant t only. With all they may be on
// any device that d was joined with (JoinCM), as their addresses say; HasCMID tells on which.
func (d *Device) OpenCMFor(o *CMOwner, t Tenant, all bool) (*CM, error) { return d.cm.Open(o, t, all) }

// JoinCM joins the connection managers of devices that have no channels yet, once: accounts are for all of them.
func JoinCM(devices ...*Device) {
	var ports []*cma.Port
	for _, d := range devices {
		ports = append(ports, d.cm)
	}
	cma.Join(ports...)
}

// HasCMID reports whether an ID is on this device. One without an address is on the device by which its channel was
// opened.
func (d *Device) HasCMID(id *CMID) bool { return id.Port() == d.cm }

// ListensCMID reports whether an ID is a listener that takes requests to this device.
func (d *Device) ListensCMID(id *CMID) bool { return id.ListensAt(d.cm) }

// NewCMOwner makes an account for a user or a process, on the device and those that it is joined with.
func (d *Device) NewCMOwner(l CMLimits) *CMOwner { return cma.NewOwner(l) }

// SetCMLimits changes the limits of an account.
func (d *Device) SetCMLimits(o *CMOwner, l CMLimits) { d.cm.SetLimits(o, l) }

// CMStats returns the counters of the port's connection manager.
func (d *Device) CMStats() cm.Stats { return d.cm.Stats() }
