package rsocket

import "fmt"

// inbound is the state of the receive buffer: a ring that the peer writes in the order in which its halves are offered.
//
//	      read      +avail         +offered        +freed
//	-------|-----------|--------------|---------------|----
//	       | unread    | the peer may | read, not yet |
//	       |           | write here   | offered anew  |
//
// It does no IO. The caller copies the data and holds the lock.
type inbound struct {
	size    int
	read    int    // offset of the first unread byte
	avail   int    // unread bytes
	offered int    // bytes that the peer may write
	freed   int    // bytes that have been read; offered when they make a half
	next    int    // offset of the half to offer next
	queue   int    // posted receives, which are the peer's credits
	msgs    uint16 // data messages that arrived
	granted uint16 // msgs when the peer was last told the limit
}

// newInbound returns the state after the record has offered the first half.
func newInbound(size, queue int) inbound {
	return inbound{size: size, offered: size / 2, freed: size / 2, next: size / 2, queue: queue}
}

// arrived records the arrival of a data message.
func (b *inbound) arrived(n uint32) error {
	if uint64(n) > uint64(b.offered) {
		return &ProtocolError{What: "length of a data message", Value: uint64(n),
			Allowed: fmt.Sprintf("at most the %d bytes offered", b.offered)}
	}
	b.offered -= int(n)
	b.avail += int(n)
	b.msgs++
	return nil
}

// unread returns up to n unread bytes of buf, which holds the ring, in two parts.
func (b *inbound) unread(buf []byte, n int) (first, second []byte) {
	n = min(n, b.avail)
	k := min(n, b.size-b.read)
	return buf[b.read : b.read+k], buf[:n-k]
}

// consumed records that n bytes have been read.
func (b *inbound) consumed(n int) {
	b.avail -= n
	b.freed += n
	b.read += n
	if b.read >= b.size {
		b.read -= b.size
	}
}

// wantsGrant reports whether to send the peer credits or space: when half of the queue or of the buffer is free
// (rs_give_credits).
func (b *inbound) wantsGrant() bool {
	return b.freed >= b.size/2 || b.msgs-b.granted >= uint16(b.queue/2)
}

// limit returns the count of data messages at which the peer must stop. Receives are posted again at once, so it
// depends on messages that have arrived, not on those that have been read.
func (b *inbound) limit() uint16 {
	b.granted = b.msgs
	return b.msgs + uint16(b.queue)
}

// offer returns the offset of the half to offer next, if it is free.
func (b *inbound) offer() (offset int, ok bool) {
	half := b.size / 2
	if b.freed < half {
		return 0, false
	}
	offset = b.next
	b.next = (b.next + half) % b.size
	b.freed -= half
	b.offered += half
	return offset, true
}
