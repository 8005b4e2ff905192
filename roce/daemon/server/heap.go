package server

import (
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/daemon/abi"
	"github.com/goroce/goroce/roce/internal/device"
)

// Besides shared memory, objects use memory of the daemon, which is charged to their user. The
// figures are measured (TestAccounts), and rounded up. That of a QP depends on the length of its
// queues (device.QPHeap). It grows when its client first registers memory that only a worker can
// access (device.QPHeapLate).

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
)

// takeQP books the heap of a new QP.
func (c *session) takeQP(op abi.Op, cap *ib.QPCap) error {
	n := device.QPHeap(cap)
	if c.process != nil {
		n += device.QPHeapLate()
	}
	return c.take(op, heap, n)
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

// takeLate books what all QPs of the session use for memory that only a worker can access.
func (c *session) takeLate(op abi.Op) error {
	var list []*object
	for _, o := range c.objects {
		if o.kind == kindQP {
			list = append(list, o)
		}
	}
	if err := c.book(op, heap, int64(len(list))*device.QPHeapLate()); err != nil {
		return err
	}
	for _, o := range list {
		o.holds = append(o.holds, held{heap, device.QPHeapLate()})
	}
	return nil
}
