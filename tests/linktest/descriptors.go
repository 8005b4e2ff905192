package linktest

import (
	"testing"

	"golang.org/x/sys/unix"
)

// OpenDescriptors returns how many descriptors below 256 are open in this process, by one system
// call, for fuzz targets that check that nothing is left.
func OpenDescriptors(t testing.TB) (n int) {
	t.Helper()
	var all [256]unix.PollFd
	for i := range all {
		all[i].Fd = int32(i)
	}
	if _, err := unix.Poll(all[:], 0); err != nil {
		t.Fatal(err)
	}
	for i := range all {
		if all[i].Revents&unix.POLLNVAL == 0 {
			n++
		}
	}
	return n
}
