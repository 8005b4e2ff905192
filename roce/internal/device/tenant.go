package device

import (
	"fmt"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/qp/ring"
	"github.com/goroce/goroce/roce/internal/engine"
	"github.com/goroce/goroce/roce/link"
)

// Tenant represents an application in another process. It allocates the rings of the
// application's objects in memory shared with the application, and receives the events of
// these objects. Package server implements it.
//
// Objects of a tenant's PDs and CQs are created, changed and closed here like others.
// The tenant posts, polls and arms by writing the rings itself: in this process those
// methods fail with ib.ErrNotSupported.
type Tenant interface {
	// Alloc returns size bytes that start on a 64-byte boundary, for the rings of the object that
	// is being created or resized. The application may write there already: the device formats them,
	// and relies on nothing that it reads there. They must stay mapped until the object is closed
	// or resized again. The verb returns Alloc's errors unchanged.
	Alloc(size int) ([]byte, error)

	// Notify reports a completion for which c was armed. It is called on the device's own
	// goroutines, and must neither block nor call the device.
	Notify(c *CQ)

	// Event receives an asynchronous event of one of the tenant's objects. It is called as
	// Notify.
	Event(e ib.Event)

	// QPFailed says why one of the tenant's QPs has gone to ERR or SQE. It is called as Notify.
	QPFailed(f QPFailure)

	// Stage is asked when q first uses memory that is not direct: whether it may have QPHeapLate bytes
	// for that until it is closed. Else it makes do with QPHeapLeastLate. It is called as Notify.
	Stage(q *QP) bool

	// Fault reports that memory which the tenant shares, a ring or a region, is not mapped at
	// addr, an address of this process. The device has faulted on it and abandons the QP that
	// it was working on; the tenant's other QPs will probably fail too. It is called as Notify.
	Fault(addr uintptr)
}

// QPFailure is why a QP has failed.
type QPFailure struct {
	Num     ib.QPN
	Type    ib.QPType
	Peer    ib.GID // reliable and unreliable connections
	PeerQPN ib.QPN
	Failed  ib.Failure
	Refused ib.Failure // the latest request of the peer that was refused, by ReasonNone if there is none

	path      link.Run
	recording engine.Recording
}

// Group is a Tenant that stands for several tenants, which may all use its objects. Package server has one for
// each XRC domain that processes share.
type Group interface {
	Tenant
	// Includes reports whether t belongs to the group. It is called under locks of the device, and must not
	// call the device.
	Includes(t Tenant) bool
}

// includes reports whether t may use objects of owner: t is owner, or owner is a Group with t.
func includes(owner, t Tenant) bool {
	g, ok := owner.(Group)
	return owner == t || ok && g.Includes(t)
}

// SetDoorbells makes the shard with that number look at b, from its next turn on. A
// doorbell that rings makes fd readable, which ends the shard's sleep. The caller owns fd
// and closes it after the device. An error that matches errors.ErrUnsupported means that
// the device's link cannot watch fd.
func (d *Device) SetDoorbells(shard int, b engine.Doorbells, fd int) error {
	return d.shard(shard).SetDoorbells(b, fd)
}

// Part returns the engine's part of a QP, for engine.Doorbells.
func (q *QP) Part() *engine.QP { return q.part }

// AllocPDFor makes a protection domain of a tenant: objects created in it belong to the
// tenant. w accesses the domain's memory that is not direct. All domains of a tenant use
// the same worker, and no others do. If w is nil such memory is refused.
func (d *Device) AllocPDFor(t Tenant, w *Worker) (*PD, error) { return d.allocPD(t, w) }

// CreateCQFor makes a completion queue of a tenant. Events of the CQ go to Tenant.Notify
// instead of a channel.
func (d *Device) CreateCQFor(t Tenant, init ib.CQInit) (*CQ, error) { return d.createCQ(init, t) }

// RegMemory registers memory that may be in another process. SGEs and peers address its
// first byte as iova. The domain's worker reads and writes memory that is not direct; for
// domains of this process the device has a worker. In a tenant's domain without a worker
// RegMemory refuses such memory with ib.ErrNotSupported.
func (p *PD) RegMemory(mem mr.Memory, iova uint64, access ib.Access) (*MR, error) {
	const op = "register memory"
	if p.tenant != nil && p.own == nil && mem.Direct() == nil {
		return nil, driver.Refuse(op, "memory", "not direct",
			"direct memory, as the protection domain has no worker", ib.ErrNotSupported)
	}
	if err := p.dev.open(op); err != nil {
		return nil, err
	}
	defer p.dev.mu.Unlock()
	// Nothing here keeps mem alive or mapped: the caller does, until Deregister's gone is closed.
	core, err := p.dev.mem.Register(p.core, mem, iova, access)
	if err != nil {
		return nil, err
	}
	return &MR{dev: p.dev, pd: p, core: core}, nil
}

// ReregMemory is Rereg for memory as RegMemory takes it. It does not wait: gone is closed, as
// that of Deregister, when the device does not touch the old memory any more. It uses pd only
// if mask has ib.ReregPD. With sameKeys the region keeps its keys.
func (m *MR) ReregMemory(mask ib.ReregMask, pd *PD, mem mr.Memory, iova uint64, access ib.Access,
	sameKeys bool) (gone <-chan struct{}, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change := m.dev.mem.Reregister
	if sameKeys {
		change = m.dev.mem.ReregisterSameKey
	}
	return m.replace(change, mask, pd, mem, iova, access)
}

// Shard returns the number of the shard that q is on.
func (q *QP) Shard() int { return q.home.Number() }

// Rings returns the sizes in bytes of the send ring, which comes first in the memory of the
// QP, and of the receive ring behind it; 0 for a queue without entries.
func (q *QP) Rings() (send, recv int) {
	if c := &q.cap; c.MaxSendWR > 0 {
		send = ring.SendSize(c.MaxSendWR, max(c.MaxSendSGE, 1), c.MaxInline)
	}
	if c := &q.cap; c.MaxRecvWR > 0 {
		recv = ring.RecvSize(c.MaxRecvWR, max(c.MaxRecvSGE, 1))
	}
	return send, recv
}

// allocFor returns memory for rings: from t, or from this process's heap if t is nil.
func allocFor(t Tenant, size int) ([]byte, error) {
	if t == nil {
		return ring.Alloc(size), nil
	}
	return t.Alloc(size)
}

// notHere returns the error of operations on the application's end of a tenant's ring.
func notHere(op string) error {
	return fmt.Errorf("%s: the application's end of the ring is in another process: %w", op, ib.ErrNotSupported)
}
