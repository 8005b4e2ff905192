package abi

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// These are system calls that do not block, made without telling the scheduler of Go: it does not give the processor
// to another goroutine meanwhile, however long the kernel takes. So in a simulation, which has one processor, the order
// in which goroutines run does not depend on the load of the machine.

// rawCall reads, writes or sends: the system call takes a buffer, and flags if it has any.
func rawCall(trap uintptr, fd uintptr, b []byte, flags uintptr) (int, error) {
	n, _, errno := unix.RawSyscall6(trap, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), flags, 0,
		0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// rawMessage sends or receives a message with control data: by sendmsg(2) or recvmsg(2). It returns the message's
// length, and that of the control data and the flags of a message that was received.
func rawMessage(trap uintptr, fd uintptr, b, oob []byte, flags uintptr) (n, oobn, got int, err error) {
	iov := unix.Iovec{Base: unsafe.SliceData(b)}
	iov.SetLen(len(b))
	h := unix.Msghdr{Iov: &iov, Control: unsafe.SliceData(oob)}
	h.SetIovlen(1)
	h.SetControllen(len(oob))
	r, _, errno := unix.RawSyscall(trap, fd, uintptr(unsafe.Pointer(&h)), flags)
	if errno != 0 {
		return 0, 0, 0, errno
	}
	return int(r), int(h.Controllen), int(h.Flags), nil
}

// Poll returns what a descriptor is ready for, of events and of those that poll(2) always reports. It does not wait.
func Poll(fd int, events int16) int16 {
	p := unix.PollFd{Fd: int32(fd), Events: events}
	var none unix.Timespec
	n, _, errno := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&p)), 1, uintptr(unsafe.Pointer(&none)), 0,
		0, 0)
	if errno != 0 || n != 1 {
		return 0
	}
	return p.Revents
}
