package ring

import (
	"fmt"
	"unsafe"

	"github.com/goroce/goroce/ib"
)

// Send is a send queue: the application is the producer, the device the consumer.
type Send struct{ ring }

// sendSlot is the fixed part of a send slot; the payload follows it.
type sendSlot struct {
	id         uint64
	opcode     uint8
	flags      uint8
	numSGE     uint16
	inlineLen  uint32
	imm        uint32 // or key
	remoteSRQ  uint32
	remoteAddr uint64
	rkey       uint32
	remoteQPN  uint32
	compare    uint64 // or length
	swap       uint64 // or access, flush
	ah         uint32
	remoteQKey uint32
}

// put writes the fields of a request. Fields that no opcode uses together share their
// bytes.
func (s *sendSlot) put(wr *ib.SendWR) {
	s.id, s.opcode, s.flags = wr.ID, uint8(wr.Opcode), uint8(wr.Flags)
	s.numSGE, s.inlineLen = uint16(len(wr.SGL)), uint32(len(wr.Inline))
	s.imm, s.remoteSRQ, s.remoteAddr, s.rkey = wr.Imm, wr.RemoteSRQ, wr.RemoteAddr, uint32(wr.RKey)
	s.remoteQPN, s.compare, s.swap = uint32(wr.RemoteQPN), wr.Compare, wr.Swap
	s.ah, s.remoteQKey = uint32(wr.AH), wr.RemoteQKey
	switch wr.Opcode {
	case ib.WRSendInv, ib.WRLocalInv:
		s.imm = uint32(wr.InvalidateKey)
	case ib.WRBindMW:
		s.imm, s.remoteAddr = uint32(wr.Bind.LKey), wr.Bind.Addr
		s.compare, s.swap = wr.Bind.Length, uint64(wr.Bind.Access)
	case ib.WRFlush:
		s.compare, s.swap = uint64(wr.Flush.Length), uint64(wr.Flush.Level)|uint64(wr.Flush.Extent)<<32
	}
}

// get is the inverse of put. It leaves SGL and Inline, which the caller sets.
func (s *sendSlot) get(wr *ib.SendWR) {
	wr.ID, wr.Opcode, wr.Flags = s.id, ib.WROpcode(s.opcode), ib.SendFlags(s.flags)
	wr.Imm, wr.RemoteSRQ, wr.InvalidateKey = s.imm, s.remoteSRQ, 0
	wr.RemoteAddr, wr.RKey, wr.Compare, wr.Swap = s.remoteAddr, ib.Key(s.rkey), s.compare, s.swap
	wr.RemoteQPN, wr.AH, wr.RemoteQKey = ib.QPN(s.remoteQPN), ib.AHNum(s.ah), s.remoteQKey
	wr.Bind, wr.Flush = ib.MWBind{}, ib.Flush{}
	switch wr.Opcode {
	case ib.WRSendInv, ib.WRLocalInv:
		wr.Imm, wr.InvalidateKey = 0, ib.Key(s.imm)
	case ib.WRBindMW:
		wr.Imm, wr.RemoteAddr, wr.Compare, wr.Swap = 0, 0, 0, 0
		wr.Bind = ib.MWBind{LKey: ib.Key(s.imm), Addr: s.remoteAddr, Length: s.compare, Access: ib.Access(s.swap)}
	case ib.WRFlush:
		wr.Compare, wr.Swap = 0, 0
		wr.Flush = ib.Flush{Length: uint32(s.compare), Level: ib.FlushLevel(s.swap),
			Extent: ib.FlushExtent(s.swap >> 32)}
	}
}

const (
	sendPayload = int(unsafe.Sizeof(sendSlot{}))
	sgeSize     = int(unsafe.Sizeof(ib.SGE{}))
)

// NewSend formats b as an empty send ring: the device's side. b must start on a
// 64-byte boundary and hold SendSize bytes; it belongs to the ring from then on.
func NewSend(b []byte, entries, maxSGE, maxInline int) (*Send, error) {
	r, err := geometry{kindSend, entries, maxSGE, maxInline}.create(b)
	if err != nil {
		return nil, err
	}
	*r.wake() = 1
	return &Send{r}, nil
}

// OpenSend attaches to a send ring: the application's side.
func OpenSend(b []byte) (*Send, error) {
	r, err := open(b, kindSend)
	if err != nil {
		return nil, err
	}
	return &Send{r}, nil
}

// MaxSGE returns how many SGEs a request may have.
func (q *Send) MaxSGE() int { return int(q.maxSGE) }

// MaxInline returns how many bytes of inline payload a request may have.
func (q *Send) MaxInline() int { return int(q.maxInline) }

// Push copies wr into the next slot; the device does not see it before Publish.
// It returns ib.ErrQueueFull when no slot is free, and an *ib.AttrError for a
// request that is invalid in a send queue of this geometry. The ring is unchanged
// then. (Application)
func (q *Send) Push(wr *ib.SendWR) error {
	if err := q.check(wr); err != nil {
		return err
	}
	if !q.room() {
		return ib.ErrQueueFull
	}
	slot := q.slot(q.next)
	(*sendSlot)(slot).put(wr)
	copy(payload[ib.SGE](slot, sendPayload, len(wr.SGL)), wr.SGL)
	copy(payload[byte](slot, sendPayload, len(wr.Inline)), wr.Inline)
	q.next++
	return nil
}

// Publish makes the pushed requests visible to the device and reports whether it
// must be woken: the caller then rings the doorbell. (Application)
func (q *Send) Publish() (doorbell bool) { return q.publishWork() }

// Prepare gives dst the backing that Pop fills without allocating. (Device)
func (q *Send) Prepare(dst *ib.SendWR) {
	dst.SGL = make([]ib.SGE, 0, q.maxSGE)
	dst.Inline = make([]byte, 0, q.maxInline)
}

// Pop copies the next published request into dst, reusing the capacity of its
// slices, and reports whether there was one. It repeats the checks of Push on the
// copy; with a request that fails them it returns true and an *InvalidError. ErrCorrupt
// says that the indices are invalid. The slot stays occupied until Release. (Device)
func (q *Send) Pop(dst *ib.SendWR) (bool, error) {
	if ok, err := q.ready(); !ok {
		return false, err
	}
	slot := q.slot(q.popped)
	s := *(*sendSlot)(slot) // read only once: the application can change these bytes at any time
	q.popped++
	dst.SGL, dst.Inline = dst.SGL[:0], dst.Inline[:0]
	s.get(dst)
	if s.numSGE > q.maxSGE || s.inlineLen > uint32(q.maxInline) {
		return true, &InvalidError{ib.WCLocQPOpErr, refuse("post send", "SGL or Inline",
			fmt.Sprintf("%d entries, %d bytes", s.numSGE, s.inlineLen),
			fmt.Sprintf("at most %d and %d", q.maxSGE, q.maxInline))}
	}
	dst.SGL = append(dst.SGL, payload[ib.SGE](slot, sendPayload, int(s.numSGE))...)
	dst.Inline = append(dst.Inline, payload[byte](slot, sendPayload, int(s.inlineLen))...)
	return true, q.checkCopy(dst)
}

// Release returns the n oldest popped slots to the application. It panics if fewer
// are popped, which is a bug of the device and not caused by any application. (Device)
func (q *Send) Release(n int) { q.release(n) }

// Len returns how many published requests wait to be popped. (Device)
func (q *Send) Len() int { return q.count() }

// Sleep announces that the device will read the ring only after a doorbell. Entries
// that were published before Sleep ring none: call Len once more, and if it is not 0,
// call Awake and continue. (Device)
func (q *Send) Sleep() { storeFence(q.wake(), 1) }

// Awake announces that the device polls the ring. (Device)
func (q *Send) Awake() { storeFence(q.wake(), 0) }
