package rsocket

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/goroce/goroce/ib"
)

// ctrlSlots is how many entries of the send queue are set aside, so that credits
// and control messages never wait for data.
const ctrlSlots = 4

// outbound is what sending depends on: the send buffer, slots of the send queue,
// and what the peer allows. It does no IO.
type outbound struct {
	ring  ring // the send buffer
	slots int  // free entries of the send queue for data
	ctrl  int  // and for control

	msgs  uint16 // data messages that were sent
	limit uint16 // stop when msgs gets here

	target sge      // what is left of the peer's buffer
	sgl    []uint64 // our target SGL, which the peer writes
	entry  int      // the one to look at next

	theirs    sge // the peer's target SGL; length counts entries
	theirNext int // the one to write next
	order     binary.AppendByteOrder
}

// newOutbound is the state that the peer's record makes.
func newOutbound(size, queue int, sgl []uint64, r *record) outbound {
	return outbound{
		ring: ring{size: size}, slots: queue - ctrlSlots, ctrl: ctrlSlots, limit: r.credits,
		target: r.data, sgl: sgl, entry: 1, theirs: r.sgl, theirNext: 1, order: r.byteOrder(),
	}
}

// retarget takes the next buffer out of the target SGL when the present one is
// used up. The peer writes an entry again only after its buffer was used, so that
// what was taken is made empty first.
//
// The length is loaded first, and atomically: devices write the last word of an
// entry last.
func (o *outbound) retarget() error {
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

// room is how many bytes of the peer's buffer a message may fill now: 0 without
// credits.
func (o *outbound) room() int {
	if o.msgs == o.limit || o.slots == 0 {
		return 0
	}
	return min(int(o.target.length), valueMask)
}

// take takes n bytes of the peer's buffer, for one message.
func (o *outbound) take(n int) (addr uint64, key ib.Key) {
	addr, key = o.target.addr, o.target.key
	o.target.addr += uint64(n)
	o.target.length -= uint32(n)
	o.msgs++
	o.slots--
	return addr, key
}

// theirEntry returns the address of the entry of the peer's SGL to write next.
func (o *outbound) theirEntry() uint64 {
	addr := o.theirs.addr + uint64(o.theirNext)*sgeLen
	o.theirNext = (o.theirNext + 1) % int(o.theirs.length)
	return addr
}

// ring is a ring buffer that is filled and freed in order.
type ring struct{ size, head, used int }

func (r *ring) free() int { return r.size - r.used }

// take takes n bytes and returns where they are: the second part is at 0.
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
