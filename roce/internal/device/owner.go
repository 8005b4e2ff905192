package device

import (
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/qp"
	"github.com/goroce/goroce/roce/internal/engine"
)

// owner delivers the engine's events to the applications (engine.Owner). The engine calls it
// under the lock of a shard, so nothing here may block.
type owner struct{ dev *Device }

// QPFailed tells the tenant why its QP has failed, or keeps it. That the application has moved it to ERR is no failure.
func (o owner) QPFailed(q *engine.QP, failed, refused ib.Failure) {
	of := q.Owner.(*QP)
	if failed.Cause.Reason == ib.ReasonModified || failed.Cause.Reason == ib.ReasonNone {
		return
	}
	f := failureOf(q)
	f.Failed, f.Refused = failed, refused
	if t := of.pd.tenant; t != nil {
		t.QPFailed(f)
	} else {
		o.dev.failures.add(f)
	}
}

// QPEvent delivers an asynchronous event of a QP.
func (o owner) QPEvent(q *engine.QP, t ib.EventType) {
	of := q.Owner.(*QP)
	o.deliver(of.pd.tenant, ib.Event{Type: t, QP: of})
}

// CQNotify delivers the completion event that a CQ was armed for.
func (o owner) CQNotify(c *qp.CQ) {
	switch of := c.Owner.(*CQ); {
	// A tenant's channels are in its process. A CQ with a channel has no waiter: Wait refuses it.
	case of.tenant != nil:
		of.tenant.Notify(of)
	case of.channel != nil:
		of.channel.notify(of)
	default:
		of.waiter.Wake()
	}
}

// CQError delivers the event of a CQ that has overrun.
func (o owner) CQError(c *qp.CQ) {
	of := c.Owner.(*CQ)
	o.deliver(of.tenant, ib.Event{Type: ib.EventCQErr, CQ: of})
}

// SRQEvent delivers an asynchronous event of an SRQ.
func (o owner) SRQEvent(s *qp.SRQ, t ib.EventType) {
	of := s.Owner.(*SRQ)
	o.deliver(of.pd.tenant, ib.Event{Type: t, SRQ: of})
}

// Fault reports to the tenant that memory which it shares is not mapped. It revokes the keys of
// regions that contain addr, so that no other access faults on them.
func (o owner) Fault(q *engine.QP, addr uintptr) bool {
	t := q.Owner.(*QP).pd.tenant
	if t == nil {
		return false
	}
	o.dev.mem.Fault(addr)
	t.Fault(addr)
	return true
}

// LinkDown raises EventDeviceFatal, once: the device cannot be used any more.
func (o owner) LinkDown(error) {
	if !o.dev.fatal.Swap(true) {
		o.dev.raise(ib.Event{Type: ib.EventDeviceFatal})
	}
}

// deliver gives an event to tenant t, or if t is nil to the device's event queue.
func (o owner) deliver(t Tenant, e ib.Event) {
	if t != nil {
		t.Event(e)
	} else {
		o.dev.raise(e)
	}
}

// raise puts an event into the device's event queue, or counts it as lost if the queue is full.
func (d *Device) raise(e ib.Event) {
	if !d.events.put(e) {
		d.eventsLost.Add(1)
	}
}
