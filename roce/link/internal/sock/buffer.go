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

// Gauge tells when the receive buffer of a socket is more than half full. It asks the kernel only while receives leave
// messages there, once for a sixteenth of the buffer: never if a socket is emptied each time, and seldom if its buffer
// is large. Where messages are longer than that, as merged runs of packets in a small buffer are, a few that wait fill
// half of it, and that says nothing.
type Gauge struct {
	fd, size int
	taken    int  // bytes of messages since the kernel was asked
	high     bool // what it said
}

// NewGauge returns the Gauge of a socket whose receive buffer has its size.
func NewGauge(fd int) Gauge {
	size, _ := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF)
	return Gauge{fd: fd, size: size}
}

// Took notes that a receive took messages of so many bytes in all, and whether it may have left some. It reports
// whether the buffer was more than half full.
func (g *Gauge) Took(messages, bytes int, left bool) (high bool) {
	if messages == 0 || bytes/messages > g.size/16 {
		g.taken, g.high = 0, false
		return false
	}
	if !left {
		g.taken, g.high = 0, false
		return 2*bytes > g.size
	}
	if g.taken += bytes; g.taken > g.size/16 {
		g.taken, g.high = 0, 2*(bytes+g.waiting()) > g.size
	}
	return g.high
}

// waiting returns how many bytes of the buffer are in use, with the kernel's bookkeeping; 0 if it does not say.
func (g *Gauge) waiting() int {
	n, _ := unix.GetsockoptInt(g.fd, unix.SOL_SOCKET, unix.SO_MEMINFO) // its first word is SK_MEMINFO_RMEM_ALLOC
	return n
}
