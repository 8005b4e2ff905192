package rsocket

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/goroce/goroce/ib"
)

// ctrlSlots is the number of send queue entries that are reserved for credits and control messages, so that these never
// wait for data.
const ctrlSlots = 4

// outbound is the state of sending: the send buffer, entries of the send queue, and the buffer and credits that the
// peer has granted. It does no IO.
type outbound struct {
	ring  ring // the send buffer
	slots int  // free entries of the send queue for data
	ctrl  int  // free entries of the send queue for credits and control messages

	msgs  uint16 // number of data messages sent, modulo 2^16
	limit uint16 // value of msgs at which to stop

	target sge      // the unused rest of the peer's buffer
	sgl    []uint64 // target SGL of this end, which the peer writes
	entry  int      // index of the next entry of sgl to read

	peerSGL  sge // target SGL of the peer; length is the number of entries
	peerNext int // index of the entry of the peer's SGL to write next
	order    binary.AppendByteOrder
}

// newOutbound returns the initial state, which the peer's record determines.
func newOutbound(size, queue int, sgl []uint64, r *record) outbound {
	return outbound{
		ring: ring{size: size}, slots: queue - ctrlSlots, ctrl: ctrlSlots, limit: r.credits,
		target: r.data, sgl: sgl, entry: 1, peerSGL: r.sgl, peerNext: 1, order: r.byteOrder(),
	}
}

// nextTarget reads the next buffer out of the target SGL when the current one is used up. The peer may write an entry
// again as soon as its buffer is in use, so nextTarget clears the entry before that.
//
// It loads the length first, and atomically, because devices write the last word of an entry last.
func (o *outbound) nextTarget() error {
	if o.target.length > 0 {
		return nil
	}
	e := o.sgl[2*o.entry : 2*o.entry+2]
	tail := atomic.LoadUint64(&e[1])
	var raw [sgeLen]byte
	binary.NativeEndian.PutUint64(raw[8:], tail)
	if s := parseSGE(raw[:], binary.NativeEndian); s.length == 0 {
		return nil
	}
	binary.NativeEndian.PutUint64(raw[:], atomic.LoadUint64(&e[0]))
	s := parseSGE(raw[:], binary.NativeEndian)
	if err := s.check(); err != nil {
		return err
	}
	atomic.StoreUint64(&e[1], 0)
	o.target = s
	o.entry = (o.entry + 1) % sglEntries
	return nil
}

// room returns how many bytes of the peer's buffer the next message may fill, 0 without credits.
func (o *outbound) room() int {
	if o.msgs == o.limit || o.slots == 0 {
		return 0
	}
	return min(int(o.target.length), valueMask)
}

// take reserves n bytes of the peer's buffer for one message.
func (o *outbound) take(n int) (addr uint64, key ib.Key) {
	addr, key = o.target.addr, o.target.key
	o.target.addr += uint64(n)
	o.target.length -= uint32(n)
	o.msgs++
	o.slots--
	return addr, key
}

// peerEntry returns the address of the entry of the peer's SGL to write next.
func (o *outbound) peerEntry() uint64 {
	addr := o.peerSGL.addr + uint64(o.peerNext)*sgeLen
	o.peerNext = (o.peerNext + 1) % int(o.peerSGL.length)
	return addr
}

// ring is the state of a ring buffer that is allocated and freed in order.
type ring struct{ size, head, used int }

func (r *ring) free() int { return r.size - r.used }

// take allocates n bytes, in up to two parts: first bytes at off, second bytes at 0.
func (r *ring) take(n int) (off, first, second int) {
	off, first = r.head, min(n, r.size-r.head)
	r.used += n
	r.head += n
	if r.head >= r.size {
		r.head -= r.size
	}
	return off, first, n - first
}

func (r *ring) release(n int) { r.used -= n }
