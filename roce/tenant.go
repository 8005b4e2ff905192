package roce

import (
	"fmt"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/qp/ring"
	"github.com/goroce/goroce/roce/internal/engine"
)

// Tenant is an application in another process: what makes the rings of its objects be
// memory that it shares, and takes what its objects have to tell. Package server is
// the one that has tenants.
//
// Objects of a tenant's PDs and CQs are created, changed and closed here like others.
// Posting, polling and arming is done in the rings, by the tenant: those methods fail
// with ib.ErrNotSupported.
type Tenant interface {
	// Alloc returns size zero bytes that start on a 64-byte boundary, for the rings of
	// the object that is being created or resized. They must be there until that is
	// closed, or resized again. Its errors are those of what is being done, and say so.
	Alloc(size int) ([]byte, error)

	// Notify says that a completion raises the event that c was armed for. It is
	// called on the device's own goroutines, must not block and not call the device.
	Notify(c *CQ)

	// Event takes an asynchronous event of one of the tenant's objects, as Notify.
	Event(e ib.Event)

	// Fault says that memory which the tenant shares, a ring or a region, is not there: the
	// device has touched it at addr, an address of this process, and has abandoned the QP at
	// hand. Others of the tenant will fare likewise. It is called as Notify.
	Fault(addr uintptr)
}

// Doorbells are the doorbells of all tenants' QPs on one shard. The shard calls them on its
// own goroutine.
type Doorbells interface {
	// Take calls ring for each QP that has work since the last time. now is the shard's
	// time.
	Take(now ib.Instant, ring func(*QP))
	// Sleep announces that the shard sleeps until its link is woken, and reports
	// whether doorbells have rung that nobody would wake it for.
	Sleep() (rung bool)
	// Awake announces that the shard looks by itself.
	Awake(now ib.Instant)
	// GiveWay lets the tenants' processes have this processor for a moment. It reports
	// false if the shard had better sleep.
	GiveWay() bool
	// Faulted is called after one of the others has touched memory of a tenant that is not
	// there, and ended in a panic (debug.SetPanicOnFault). It looks at that no more, and
	// reports false if there is none such.
	Faulted() bool
}

// SetDoorbells makes the shard with that number look at b, from its next turn on. What
// ends the shard's sleep when a doorbell rings is fd, which becomes readable then; it
// stays the caller's, who closes it after the device. An error that matches
// errors.ErrUnsupported says that the device's link cannot look at it.
func (d *Device) SetDoorbells(shard int, b Doorbells, fd int) error {
	t := &tenantDoorbells{Doorbells: b}
	t.rung = func(q *QP) { t.ring(q.part) }
	return d.shard(shard).SetDoorbells(t, fd)
}

// tenantDoorbells are Doorbells as the engine looks at them.
type tenantDoorbells struct {
	Doorbells
	ring func(*engine.QP) // of the Take under way
	rung func(*QP)
}

// Take calls ring for the engine's part of each QP that has work.
func (t *tenantDoorbells) Take(now ib.Instant, ring func(*engine.QP)) {
	t.ring = ring
	t.Doorbells.Take(now, t.rung)
}

// AllocPDFor makes a protection domain of a tenant: what is made of it is the
// tenant's. Memory of it that is not direct is touched by w, which all domains of the
// tenant share and no other; nil refuses such memory.
func (d *Device) AllocPDFor(t Tenant, w *Worker) (*PD, error) { return d.allocPD(t, w) }

// CreateCQFor makes a completion queue of a tenant. The tenant is notified if it was
// armed, in place of a channel.
func (d *Device) CreateCQFor(t Tenant, entries int) (*CQ, error) {
	return d.createCQ(ib.CQInit{Entries: entries}, t)
}

// RegMemory registers memory that need not be of this process. iova is the address by
// which SGEs and peers name its first byte. Memory that is not direct is read and
// written by the domain's worker, or the device's where that is of this process; a
// tenant's domain without a worker refuses it with ib.ErrNotSupported.
func (p *PD) RegMemory(mem mr.Memory, iova uint64, access ib.Access) (*MR, error) {
	const op = "register memory"
	if p.tenant != nil && p.own == nil && mem.Direct() == nil {
		return nil, ib.Refuse(op, "memory", "not direct",
			"direct memory, as the protection domain has no worker", ib.ErrNotSupported)
	}
	if err := p.dev.open(op); err != nil {
		return nil, err
	}
	defer p.dev.mu.Unlock()
	core, err := p.dev.mem.Register(p.core, mem, iova, access)
	if err != nil {
		return nil, err
	}
	return &MR{dev: p.dev, pd: p, core: core}, nil
}

// ReregMemory is Rereg with memory as RegMemory takes it, and does not wait: gone is closed
// when nothing touches the old memory any more, as Deregister has it. pd is looked at if
// mask says so.
func (m *MR) ReregMemory(mask ib.ReregMask, pd *PD, mem mr.Memory, iova uint64, access ib.Access) (gone <-chan struct{},
	err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.replace(mask, pd, mem, iova, access)
}

// Shard returns the number of the shard that q is on.
func (q *QP) Shard() int { return q.home.Number() }

// Rings returns the bytes of the send ring, which is the first in the memory of the QP,
// and of the receive ring behind it; 0 for one that takes no work.
func (q *QP) Rings() (send, recv int) {
	if c := &q.cap; c.MaxSendWR > 0 {
		send = ring.SendSize(c.MaxSendWR, max(c.MaxSendSGE, 1), c.MaxInline)
	}
	if c := &q.cap; c.MaxRecvWR > 0 {
		recv = ring.RecvSize(c.MaxRecvWR, max(c.MaxRecvSGE, 1))
	}
	return send, recv
}

// allocFor returns memory for rings: a tenant's, or this process's own for nil.
func allocFor(t Tenant, size int) ([]byte, error) {
	if t == nil {
		return ring.Alloc(size), nil
	}
	return t.Alloc(size)
}

// notHere refuses what only the application's end of a ring can do.
func notHere(op string) error {
	return fmt.Errorf("%s: the application's end of the ring is in another process: %w", op, ib.ErrNotSupported)
}
