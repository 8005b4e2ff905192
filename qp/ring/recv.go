package ring

import (
	"fmt"
	"unsafe"

	"github.com/goroce/goroce/ib"
)

// Recv is a receive queue, of one QP or shared (SRQ): the application is the producer,
// the device the consumer.
type Recv struct{ ring }

// recvSlot is the fixed part of a receive slot; the SGEs follow it.
type recvSlot struct {
	id     uint64
	numSGE uint16
	_      [6]uint8
}

const recvPayload = int(unsafe.Sizeof(recvSlot{}))

// NewRecv formats b as an empty receive ring: the device's side. b must start on
// a 64-byte boundary and hold RecvSize bytes; it belongs to the ring from then on.
func NewRecv(b []byte, entries, maxSGE int) (*Recv, error) {
	r, err := geometry{kindRecv, entries, maxSGE, 0}.create(b)
	if err != nil {
		return nil, err
	}
	return &Recv{r}, nil
}

// OpenRecv attaches to a receive ring: the application's side.
func OpenRecv(b []byte) (*Recv, error) {
	r, err := open(b, kindRecv)
	if err != nil {
		return nil, err
	}
	return &Recv{r}, nil
}

// MaxSGE returns how many SGEs a request may have.
func (q *Recv) MaxSGE() int { return int(q.maxSGE) }

// Push copies wr into the next slot; the device does not see it before Publish.
// Errors are those of Send.Push. (Application)
func (q *Recv) Push(wr *ib.RecvWR) error {
	if err := q.check(wr); err != nil {
		return err
	}
	if !q.room() {
		return ib.ErrQueueFull
	}
	slot := q.slot(q.next)
	*(*recvSlot)(slot) = recvSlot{id: wr.ID, numSGE: uint16(len(wr.SGL))}
	copy(payload[ib.SGE](slot, recvPayload, len(wr.SGL)), wr.SGL)
	q.next++
	return nil
}

// Publish makes the pushed requests visible to the device and reports whether it
// must be woken. (Application)
func (q *Recv) Publish() (doorbell bool) { return q.publishWork() }

// Prepare gives dst the backing that Pop fills without allocating. (Device)
func (q *Recv) Prepare(dst *ib.RecvWR) { dst.SGL = make([]ib.SGE, 0, q.maxSGE) }

// Pop copies the next published request into dst, as Send.Pop does. The slot
// stays occupied until Release; a device that needs only the copy calls Release(1)
// at once. (Device)
func (q *Recv) Pop(dst *ib.RecvWR) (bool, error) {
	if ok, err := q.ready(); !ok {
		return false, err
	}
	slot := q.slot(q.popped)
	s := *(*recvSlot)(slot) // read only once: the application can change these bytes at any time
	q.popped++
	dst.ID, dst.SGL = s.id, dst.SGL[:0]
	if s.numSGE > q.maxSGE {
		return true, &InvalidError{ib.WCLocQPOpErr, refuse("post receive", "SGL", fmt.Sprintf("%d entries", s.numSGE),
			fmt.Sprintf("at most %d (QPCap.MaxRecvSGE)", q.maxSGE))}
	}
	dst.SGL = append(dst.SGL, payload[ib.SGE](slot, recvPayload, int(s.numSGE))...)
	if err := q.check(dst); err != nil {
		return true, &InvalidError{ib.WCLocLenErr, err}
	}
	return true, nil
}

// Release returns the n oldest popped slots to the application. It panics if fewer
// are popped, which is a bug of the device and not caused by any application. (Device)
func (q *Recv) Release(n int) { q.release(n) }

// Available returns how many published requests wait to be popped: the credit count
// of an AETH (IBTA 9.7.7.2). (Device)
func (q *Recv) Available() int { return q.count() }

// Sleep announces that the device reads the ring only after a doorbell, for a device
// that has no receives left and must learn of the next. Call Available once more, as
// for Send.Sleep. (Device)
func (q *Recv) Sleep() { storeFence(q.wake(), 1) }

// Awake ends Sleep: posting rings no doorbell any more. (Device)
func (q *Recv) Awake() { storeFence(q.wake(), 0) }

// MoveTo begins to move the receives in q to the new ring n. (Device)
func (q *Recv) MoveTo(n *Recv) *Move {
	return &Move{from: &q.ring, to: &n.ring, start: q.released, pops: true}
}
