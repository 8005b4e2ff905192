package ring

import (
	"sync/atomic"
	"unsafe"

	"github.com/goroce/goroce/ib"
)

// CQ is a completion queue: the device is the producer, the application the consumer.
type CQ struct{ ring }

// cqSlot is a completion slot.
type cqSlot struct {
	id             uint64
	status         uint8
	opcode         uint8
	flags          uint8
	sl             uint8
	vendorErr      uint32
	byteLen        uint32
	imm            uint32
	invalidatedKey uint32
	qpn            uint32
	srcQP          uint32
	_              uint32
	timestamp      int64
	_              [2]uint64
}

// Values of the wake word of a completion ring.
const (
	armNone      = 0
	armSolicited = 1
	armAny       = 2
)

// NewCQ formats b as an empty completion ring: the device's side. b must start on
// a 64-byte boundary and hold CQSize bytes; it belongs to the ring from then on. The device fills no more
// than the entries that are asked for, although the ring may have more slots.
func NewCQ(b []byte, entries int) (*CQ, error) {
	r, err := geometry{kindCQ, entries, 0, 0}.create(b)
	if err != nil {
		return nil, err
	}
	r.limit = uint32(entries)
	return &CQ{r}, nil
}

// Entries returns the capacity: what NewCQ was asked for; on the application's side the number of slots.
func (q *CQ) Entries() int { return int(q.limit) }

// OpenCQ attaches to a completion ring: the application's side.
func OpenCQ(b []byte) (*CQ, error) {
	r, err := open(b, kindCQ)
	if err != nil {
		return nil, err
	}
	return &CQ{r}, nil
}

// Push writes a completion and makes it visible. It returns false, and writes
// nothing, when no slot is free: the CQ has overrun. (Device)
func (q *CQ) Push(wc *ib.WC) bool {
	if !q.room() {
		atomic.StoreUint32(q.overrun(), 1)
		return false
	}
	(*cqSlot)(q.slot(q.next)).put(wc)
	q.next++
	q.publish()
	return true
}

func (q *CQ) overrun() *uint32 { return (*uint32)(unsafe.Add(q.buf, overrunOffset)) }

// TakeArm reports, after a Push, whether that completion raises an event, which is so if
// the application has armed the CQ for it; TakeArm then disarms the CQ. solicited is set
// for solicited and for failed completions. (Device)
func (q *CQ) TakeArm(solicited bool) bool {
	arm := atomic.LoadUint32(q.wake())
	if arm == armNone || arm == armSolicited && !solicited {
		return false
	}
	return atomic.SwapUint32(q.wake(), armNone) != armNone
}

// Poll moves up to len(wcs) completions out of the ring and returns how many.
// (Application)
func (q *CQ) Poll(wcs []ib.WC) int {
	n := 0
	for ; n < len(wcs); n++ {
		if ok, _ := q.ready(); !ok {
			break
		}
		s := (*cqSlot)(q.slot(q.popped))
		s.get(&wcs[n])
		q.popped++
	}
	if n > 0 {
		q.release(n)
	}
	return n
}

// put writes the fields of a completion, one by one: a composite literal would be copied, and the copy would wait until
// the processor has stored its parts. So do get, and those of sendSlot.
func (s *cqSlot) put(wc *ib.WC) {
	s.id, s.status, s.opcode, s.flags, s.sl = wc.ID, uint8(wc.Status), uint8(wc.Opcode), uint8(wc.Flags), wc.SL
	s.vendorErr, s.byteLen, s.imm, s.invalidatedKey = wc.VendorErr, wc.ByteLen, wc.Imm, uint32(wc.InvalidatedKey)
	s.qpn, s.srcQP, s.timestamp = uint32(wc.QPN), uint32(wc.SrcQP), int64(wc.Timestamp)
}

// get is the inverse of put.
func (s *cqSlot) get(wc *ib.WC) {
	wc.ID, wc.Status, wc.Opcode = s.id, ib.WCStatus(s.status), ib.WCOpcode(s.opcode)
	wc.Flags, wc.SL = ib.WCFlags(s.flags), s.sl
	wc.VendorErr, wc.ByteLen, wc.Imm, wc.InvalidatedKey = s.vendorErr, s.byteLen, s.imm, ib.Key(s.invalidatedKey)
	wc.QPN, wc.SrcQP, wc.Timestamp = ib.QPN(s.qpn), ib.QPN(s.srcQP), ib.Instant(s.timestamp)
}

// Arm asks for an event at the next completion, or with solicitedOnly at the next
// solicited or failed one. Completions that are in the ring already raise none:
// poll once more after arming. A CQ that is armed for any completion stays so when it
// is armed for solicited ones (IBTA 11.4.2.2). (Application)
func (q *CQ) Arm(solicitedOnly bool) {
	if solicitedOnly {
		atomic.CompareAndSwapUint32(q.wake(), armNone, armSolicited)
		return
	}
	storeFence(q.wake(), armAny)
}

// Len returns how many completions wait to be polled. (Application)
func (q *CQ) Len() int { return q.count() }

// MoveTo begins to move the completions in q to the new ring n. (Device)
func (q *CQ) MoveTo(n *CQ) *Move {
	return &Move{from: &q.ring, to: &n.ring, start: atomic.LoadUint32(q.cons())}
}
