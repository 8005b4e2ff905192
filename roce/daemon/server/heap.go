package server

import (
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/daemon/abi"
	"github.com/goroce/goroce/roce/internal/device"
)

// Besides shared memory, objects use memory of the daemon, which is charged to their user. The
// figures are measured (TestAccounts), and rounded up. That of a QP depends on the length of its
// queues (device.QPHeap). It grows when its client first registers memory that only a worker can
// access (device.QPHeapLeastLate), and when the QP first uses such memory, if the account allows it
// (device.QPHeapLate): so a client may have many QPs, of which few are busy.

// heapBytes is what one object of each kind uses.
var heapBytes = [numResources]int64{mrs: 1024, mws: 384, cqs: 1024, pds: 512, srqs: 1024, ahs: 512, xrcds: 512,
	channels: outboxHeap + 2<<10}

// fileHeap is what a handle of shared memory uses, with the file.
const fileHeap = 1024

// What a connection uses, including the stacks of its goroutines, what it adds with a device, and on each shard.
const (
	greetedHeap      = 20 << 10
	sessionHeap      = 28<<10 + outboxHeap
	sessionShardHeap = 52 << 10
	bellsHeap        = bellBlock * 12 // each further block of doorbells
)

// takeQP books the heap of a new QP.
func (c *session) takeQP(op abi.Op, cap *ib.QPCap) error {
	n := device.QPHeap(cap)
	if c.process != nil {
		n += device.QPHeapLeastLate()
	}
	return c.take(op, heap, n)
}

// takeTarget books the heap of an XRC target, or of another handle of one. Its staging memory is that of all sessions
// which have it open, so each books it as a whole.
func (c *session) takeTarget(op abi.Op) error {
	n := device.QPHeap(&ib.QPCap{})
	if c.process != nil {
		n += device.QPHeapLate()
	}
	return c.take(op, heap, n)
}

// Stage books the rest of the staging memory of a QP, if the account allows it (device.Tenant).
func (c *session) Stage(q *device.QP) bool {
	more := held{heap, device.QPHeapLate() - device.QPHeapLeastLate()}
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.handles[q]
	if o == nil || c.book(abi.OpRegMR, more.what, more.n) != nil {
		return false
	}
	o.staged = []held{more}
	return true
}

// extend books n bytes more for an existing object.
func (c *session) extend(op abi.Op, o *object, n int64) error {
	if n <= 0 {
		return nil
	}
	if err := c.book(op, heap, n); err != nil {
		return err
	}
	o.holds = append(o.holds, held{heap, n})
	return nil
}

// takeRdAtomic books what Modify allocates for READs and atomics, beyond what o has booked already.
func (c *session) takeRdAtomic(op abi.Op, o *object, a *ib.QPAttr, mask ib.QPAttrMask) error {
	next := o.rdAtomic
	if mask&ib.AttrMaxRdAtomic != 0 {
		next[0] = max(next[0], a.MaxRdAtomic)
	}
	if mask&ib.AttrMaxDestRdAtomic != 0 {
		next[1] = max(next[1], a.MaxDestRdAtomic)
	}
	more := device.QPHeapRdAtomic(next[0], next[1]) - device.QPHeapRdAtomic(o.rdAtomic[0], o.rdAtomic[1])
	if err := c.extend(op, o, more); err != nil {
		return err
	}
	o.rdAtomic = next
	return nil
}

// takeLate books the least that all QPs of the session use for memory that only a worker can access.
func (c *session) takeLate(op abi.Op) error {
	each, sum := map[*object]int64{}, int64(0)
	for _, o := range c.objects {
		if o.kind != abi.KindQP {
			continue
		}
		each[o] = device.QPHeapLeastLate()
		if o.target {
			each[o] = device.QPHeapLate()
		}
		sum += each[o]
	}
	if err := c.book(op, heap, sum); err != nil {
		return err
	}
	for o, n := range each {
		o.holds = append(o.holds, held{heap, n})
	}
	return nil
}
