package rsocket

import "fmt"

// inbound is the receive buffer: a ring that the peer writes into, in the order in
// which it was given the halves.
//
//	      read      +avail         +offered        +freed
//	-------|-----------|--------------|---------------|----
//	       | unread    | the peer may | read, not yet |
//	       |           | write here   | offered anew  |
//
// It does no IO. The caller copies unread bytes and locks.
type inbound struct {
	size    int
	read    int    // offset of the first unread byte
	avail   int    // unread bytes
	offered int    // bytes that the peer may still write
	freed   int    // bytes to offer, when they make a half
	next    int    // offset of the half to offer next
	queue   int    // receives that are posted: the peer's credits
	msgs    uint16 // data messages that arrived
	granted uint16 // msgs when the limit was last told
}

// newInbound is the state after the record, which offers the first half.
func newInbound(size, queue int) inbound {
	return inbound{size: size, offered: size / 2, freed: size / 2, next: size / 2, queue: queue}
}

// arrived takes note of a data message.
func (b *inbound) arrived(n uint32) error {
	if uint64(n) > uint64(b.offered) {
		return &ProtocolError{What: "length of a data message", Value: uint64(n), Allowed: fmt.Sprintf("at most the %d bytes offered", b.offered)}
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

// consumed takes note of n bytes that were read.
func (b *inbound) consumed(n int) {
	b.avail -= n
	b.freed += n
	b.read += n
	if b.read >= b.size {
		b.read -= b.size
	}
}

// wantsGrant reports whether it is time to tell the peer of credits or of space:
// when half of the queue or of the buffer is free (rs_give_credits).
func (b *inbound) wantsGrant() bool {
	return b.freed >= b.size/2 || b.msgs-b.granted >= uint16(b.queue/2)
}

// limit is the number of the data message before which the peer has to stop.
// Receives are posted again at once, so what arrived counts, not what was read.
func (b *inbound) limit() uint16 {
	b.granted = b.msgs
	return b.msgs + uint16(b.queue)
}

// offer returns the offset of the half to give to the peer, if one is free.
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
