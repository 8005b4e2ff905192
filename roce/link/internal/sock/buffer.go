package sock

import "golang.org/x/sys/unix"

// SetRecvBuffer sets the receive buffer to n bytes, beyond net.core.rmem_max if the process may, and returns the actual
// size. The kernel doubles the number to account for its bookkeeping.
func SetRecvBuffer(fd, n int) int {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, n) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, n)
	}
	got, _ := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF)
	return got / 2
}
