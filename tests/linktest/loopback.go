package linktest

import (
	"net/netip"
	"os"
	"sync/atomic"
)

var loopbacks atomic.Uint32

// Loopback returns an IPv4 loopback address that no other test uses, in this process or, most likely, in another: each
// address has only one port 4791.
func Loopback() netip.Addr {
	n := uint32(os.Getpid())<<8 + loopbacks.Add(1)
	return netip.AddrFrom4([4]byte{127, 1 + byte(n>>16)%250, byte(n >> 8), byte(n)})
}
