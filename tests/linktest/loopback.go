package linktest

import (
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
)

// loopbacks names the last address by its low 24 bits. It begins anywhere, and its odd stride comes to each of the 2^24
// values before one again: tests of several processes at the same time seldom choose the same.
var loopbacks atomic.Uint32

const stride = 0x9E3779B1

func init() { loopbacks.Store(rand.Uint32()) }

// Loopback returns an IPv4 loopback address whose UDP port 4791 nobody has. It comes again after millions of calls.
func Loopback() netip.Addr {
	for {
		n := loopbacks.Add(stride)
		addr := netip.AddrFrom4([4]byte{127, 1 + byte(n>>16)%250, byte(n >> 8), byte(n)})
		if !taken(addr) {
			return addr
		}
	}
}

// taken reports whether somebody has the address's port 4791. No child is forked meanwhile: until it runs its program
// it would have the socket, too, and so the port.
func taken(addr netip.Addr) bool {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	conn, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, 4791)))
	if err == nil {
		_ = conn.Close()
	}
	return errors.Is(err, syscall.EADDRINUSE)
}
