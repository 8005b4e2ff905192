package sock

import "golang.org/x/sys/unix"

// SetRecvBuffer asks for a receive buffer of n bytes, beyond net.core.rmem_max if
// we may, and returns what there is. The kernel doubles the figure, to pay for its
// bookkeeping.
func SetRecvBuffer(fd, n int) int {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, n) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, n)
	}
	got, _ := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF)
	return got / 2
}
