package udp_test

import (
	"errors"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/port"
	"github.com/goroce/goroce/roce/link/udp"
	"github.com/goroce/goroce/tests/linktest"
)

// TestSquattedName: anybody can take the abstract name that goroce processes use for an address.
// That keeps nobody from the address, and two links still do not share it.
func TestSquattedName(t *testing.T) {
	addr := linktest.Loopback()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: "@goroce/" +
		netip.AddrPortFrom(addr, link.Port).String()}); err != nil {
		t.Fatal(err)
	}
	for _, shards := range []int{1, 2} {
		links, err := udp.OpenShards([]netip.Addr{addr}, udp.Options{}, shards)
		if err != nil {
			t.Fatalf("%d shards: %v", shards, err)
		}
		for _, other := range []int{1, 2, 4} {
			if _, err := udp.OpenShards([]netip.Addr{addr}, udp.Options{}, other); !errors.Is(err, port.ErrTaken) {
				t.Errorf("%d shards beside %d: %v, want %v", other, shards, err, port.ErrTaken)
			}
		}
		for _, l := range links {
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
