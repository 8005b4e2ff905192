package forward

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// batchLen is how many frames one system call moves at most.
const batchLen = 64

// batch is an array of messages for recvmmsg and sendmmsg, of two parts each. What the links have for that, in
// roce/link/internal/sock, is out of a test's reach.
type batch struct {
	messages [batchLen]struct { // struct mmsghdr
		unix.Msghdr
		n uint32 // bytes received
	}
	parts [batchLen][2]unix.Iovec
}

// set makes one or two parts, which are not empty, message i.
func (b *batch) set(i int, parts ...[]byte) {
	for j, p := range parts {
		b.parts[i][j].Base = &p[0]
		b.parts[i][j].SetLen(len(p))
	}
	b.messages[i].Iov = &b.parts[i][0]
	b.messages[i].SetIovlen(len(parts))
}

// call does a system call, which does not block, for messages [from, to). It returns how many it was done for. An error
// is about the next one.
func (b *batch) call(trap uintptr, fd, from, to int) (int, unix.Errno) {
	n, _, errno := unix.Syscall6(trap, uintptr(fd), uintptr(unsafe.Pointer(&b.messages[from])), uintptr(to-from),
		unix.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}
