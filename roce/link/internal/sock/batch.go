package sock

import (
	"iter"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mmsghdr is struct mmsghdr of recvmmsg(2), on 64-bit machines.
type mmsghdr struct {
	hdr unix.Msghdr
	n   uint32 // bytes sent or received
	_   uint32
}

// Batch is an array of message headers. It is allocated once and used for every call, so calls do not allocate. Each
// message has its own buffers, address and room for control messages.
type Batch struct {
	hdrs    []mmsghdr
	iovs    []unix.Iovec
	names   []unix.RawSockaddrInet6 // the larger of the two families
	control []uint64                // words, so that control messages are aligned
	perIov  int
	perCtl  int // words of control room for each message
	stale   int // the kernel has overwritten the headers before this one
}

// NewBatch returns a batch of n messages with iovs buffers and controlLen bytes
// of control room each.
func NewBatch(n, iovs, controlLen int) *Batch {
	words := (controlLen + 7) / 8
	b := &Batch{
		hdrs:    make([]mmsghdr, n),
		iovs:    make([]unix.Iovec, n*iovs),
		names:   make([]unix.RawSockaddrInet6, n),
		control: make([]uint64, n*words),
		perIov:  iovs,
		perCtl:  words,
		stale:   n,
	}
	for i := range b.hdrs {
		h := &b.hdrs[i].hdr
		h.Iov = &b.iovs[i*iovs]
		h.Iovlen = uint64(iovs)
		if words > 0 {
			h.Control = (*byte)(unsafe.Pointer(&b.control[i*words]))
		}
	}
	return b
}

// Len returns how many messages b holds.
func (b *Batch) Len() int { return len(b.hdrs) }

// SetBuf makes p, which is not empty, buffer j of message i.
func (b *Batch) SetBuf(i, j int, p []byte) {
	v := &b.iovs[i*b.perIov+j]
	v.Base = &p[0]
	v.Len = uint64(len(p))
}

// Name4 makes message i's address an IPv4 one and returns it.
func (b *Batch) Name4(i int) *unix.RawSockaddrInet4 {
	n := (*unix.RawSockaddrInet4)(unsafe.Pointer(&b.names[i]))
	n.Family = unix.AF_INET
	b.hdrs[i].hdr.Name = (*byte)(unsafe.Pointer(n))
	b.hdrs[i].hdr.Namelen = unix.SizeofSockaddrInet4
	return n
}

// Name6 makes message i's address an IPv6 one and returns it.
func (b *Batch) Name6(i int) *unix.RawSockaddrInet6 {
	n := &b.names[i]
	n.Family = unix.AF_INET6
	b.hdrs[i].hdr.Name = (*byte)(unsafe.Pointer(n))
	b.hdrs[i].hdr.Namelen = unix.SizeofSockaddrInet6
	return n
}

// Family returns the address family of received message i.
func (b *Batch) Family(i int) uint16 { return b.names[i].Family }

// Addr4 returns the address of received message i.
func (b *Batch) Addr4(i int) *unix.RawSockaddrInet4 {
	return (*unix.RawSockaddrInet4)(unsafe.Pointer(&b.names[i]))
}

// Addr6 returns the address of received message i.
func (b *Batch) Addr6(i int) *unix.RawSockaddrInet6 { return &b.names[i] }

// Control returns the control room of message i, in which the caller writes control messages.
func (b *Batch) Control(i int) unsafe.Pointer { return unsafe.Pointer(b.hdrs[i].hdr.Control) }

// SetControlLen sets how many bytes of the control room of message i are in use.
func (b *Batch) SetControlLen(i, n int) { b.hdrs[i].hdr.SetControllen(n) }

// N returns the length of received message i.
func (b *Batch) N(i int) int { return int(b.hdrs[i].n) }

// Bytes returns the length of received messages [from, to) together.
func (b *Batch) Bytes(from, to int) (n int) {
	for i := from; i < to; i++ {
		n += b.N(i)
	}
	return n
}

// Flags returns the MSG_ flags of received message i.
func (b *Batch) Flags(i int) int { return int(b.hdrs[i].hdr.Flags) }

// Send sends messages [from, to) with sendmmsg and returns how many were sent. An error is about the first message that
// was not.
func (b *Batch) Send(fd, from, to int) (int, unix.Errno) {
	return b.call(unix.SYS_SENDMMSG, fd, from, to, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
}

// Recv receives into messages [from, to) with recvmmsg and returns how many were received. It does not block.
func (b *Batch) Recv(fd, from, to int) (int, unix.Errno) {
	for i := from; i < b.stale; i++ {
		b.restore(i)
	}
	n, errno := b.call(unix.SYS_RECVMMSG, fd, from, to, unix.MSG_DONTWAIT)
	b.stale = from + n
	return n, errno
}

// restore makes message i ready to receive again.
func (b *Batch) restore(i int) {
	h := &b.hdrs[i].hdr
	h.Name = (*byte)(unsafe.Pointer(&b.names[i]))
	h.Namelen = unix.SizeofSockaddrInet6
	h.SetControllen(b.perCtl * 8)
}

func (b *Batch) call(trap uintptr, fd, from, to, flags int) (int, unix.Errno) {
	for {
		n, _, errno := unix.Syscall6(trap, uintptr(fd), uintptr(unsafe.Pointer(&b.hdrs[from])),
			uintptr(to-from), uintptr(flags), 0, 0)
		if errno == unix.EINTR {
			continue
		}
		if errno != 0 {
			return 0, errno
		}
		return int(n), 0
	}
}

// Kind identifies a control message.
type Kind struct{ Level, Type int32 }

// Controls iterates over the control messages of received message i: their kind and their data, at least 4 bytes of
// which may be read.
func (b *Batch) Controls(i int) iter.Seq2[Kind, unsafe.Pointer] {
	room := b.control[i*b.perCtl : (i+1)*b.perCtl]
	room = room[:min(int(b.hdrs[i].hdr.Controllen)/8, len(room))]
	return func(yield func(Kind, unsafe.Pointer) bool) {
		const head = unix.SizeofCmsghdr / 8
		for at := 0; at+head < len(room); {
			h := (*unix.Cmsghdr)(unsafe.Pointer(&room[at]))
			if h.Len < unix.SizeofCmsghdr || h.Len > uint64(8*(len(room)-at)) ||
				!yield(Kind{h.Level, h.Type}, unsafe.Pointer(&room[at+head])) {
				return
			}
			at += (int(h.Len) + 7) / 8
		}
	}
}
