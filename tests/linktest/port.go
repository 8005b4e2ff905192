package linktest

import (
	"math/rand/v2"
	"net"
	"strconv"
	"syscall"
	"testing"
)

// Port returns a TCP port that nobody listens on. It is below the kernel's range of ephemeral ports, so that no
// connection takes it before the caller listens. No child is forked meanwhile (see taken).
func Port(t testing.TB) int {
	t.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	for range 1000 {
		port := 10000 + rand.IntN(22000)
		if l, err := net.Listen("tcp", ":"+strconv.Itoa(port)); err == nil {
			l.Close()
			return port
		}
	}
	t.Fatal("no TCP port from 10000 to 31999 is free")
	return 0
}
