package linktest

import (
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
)

// Port returns a TCP port that nobody listens on. It is below those that the kernel gives
// to connections, so none of a busy machine's takes it before the caller listens there.
func Port(t testing.TB) int {
	t.Helper()
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
