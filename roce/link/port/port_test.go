package port

import (
	"errors"
	"net/netip"
	"os"
	"strings"
	"testing"
)

func TestParseSocket(t *testing.T) {
	tests := []struct {
		line  string
		local string
		uid   int
		inode string
	}{
		{"  12: 0100007F:12B7 00000000:0000 07 00000000:00000000 00:00000000 00000000  1000        0 31337 2 " +
			"0000000000000000 0",
			"127.0.0.1:4791", 1000, "31337"},
		{" 7: 00000000000000000000000001000000:12B7 00000000000000000000000000000000:0000 07 00000000:00000000 " +
			"00:00000000 00000000 0 0 99 2 0 0",
			"[::1]:4791", 0, "99"},
		{" 7: 0000000000000000FFFF0000630A0A0A:0035 00000000000000000000000000000000:0000 07 0:0 00:0 0 5 0 98 2 0 0",
			"10.10.10.99:53", 5, "98"},
	}
	for _, tt := range tests {
		s, ok := parseSocket(tt.line)
		if !ok || s.local.String() != tt.local || s.uid != tt.uid || s.inode != tt.inode {
			t.Errorf("%q: %+v, %v; want %+v", tt.line, s, ok, tt)
		}
	}
	for _, line := range []string{
		"",
		"  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref " +
			"pointer drops",
		"1: 010:12B7 x x x x x 0 0 99 2", "1: 0100007F12B7 x x x x x 0 0 99 2",
		"1: 0100007F:12B7 x x x x x root 0 99 2", "1: 0100007F00:12B7 x x x x x 0 0 99 2",
	} {
		if s, ok := parseSocket(line); ok {
			t.Errorf("%q is taken for a socket: %+v", line, s)
		}
	}
}

func TestCovers(t *testing.T) {
	tests := []struct {
		local, addr string
		want        bool
	}{
		{"10.0.0.1:4791", "10.0.0.1", true},
		{"10.0.0.1:4791", "10.0.0.2", false},
		{"10.0.0.1:4792", "10.0.0.1", false},
		{"0.0.0.0:4791", "10.0.0.1", true},
		{"0.0.0.0:4791", "fd00::1", false},
		{"[::]:4791", "10.0.0.1", true}, // unless IPV6_V6ONLY, which the table does not show
		{"[::]:4791", "fd00::1", true},
		{"[fe80::1]:4791", "fe80::1%eth0", true},
	}
	for _, tt := range tests {
		s := socket{local: netip.MustParseAddrPort(tt.local)}
		if got := s.covers(netip.MustParseAddr(tt.addr)); got != tt.want {
			t.Errorf("%s covers %s: %v, want %v", tt.local, tt.addr, got, tt.want)
		}
	}
}

func TestClaim(t *testing.T) {
	addr := netip.MustParseAddr("192.0.2.201") // a lock needs no interface
	first, err := Claim(addr)
	if err != nil {
		t.Fatal(err)
	}
	var taken *Error
	if _, err := Claim(addr); !errors.Is(err, ErrTaken) || !errors.As(err, &taken) || !taken.Owner.Goroce {
		t.Errorf("second claim: %v, want ErrTaken by goroce", err)
	}
	if !errors.As(Taken(addr), &taken) || taken.Owner.Goroce {
		t.Errorf("who has the lock hears %v: it is another program that has the port", taken)
	}
	first.Release()
	second, err := Claim(addr)
	if err != nil {
		t.Fatalf("after release: %v", err)
	}
	second.Release()
	if FindOwner(addr).Goroce {
		t.Error("a lock that was released is still found")
	}
}

func TestOwnerText(t *testing.T) {
	for _, tt := range []struct {
		o    Owner
		want string
	}{
		{Owner{PID: os.Getpid(), Name: "x"}, "process"},
		{Owner{UID: 0, Kernel: true}, "rdma_rxe"},
		{Owner{UID: 1001}, "user 1001"},
		{Owner{UID: -1}, "by a process that cannot be seen"},
		{Owner{UID: 1001, Goroce: true}, "goroce in a process of user 1001"},
		{Owner{PID: 7, Name: "goroced", Goroce: true},
			"goroce in process 7 (goroced); if that is the daemon, go through it (--daemon)"},
	} {
		if got := (&Error{Addr: netip.MustParseAddr("::1"), Owner: tt.o}).Error(); !strings.Contains(got, tt.want) ||
			!strings.Contains(got, "[::1]:4791") {
			t.Errorf("%+v: %q does not say %q and where", tt.o, got, tt.want)
		}
	}
}

// TestLikeRxe: neither a process that is seen nor goroce's lock leaves the kernel.
func TestLikeRxe(t *testing.T) {
	for _, c := range []struct {
		o        Owner
		wildcard bool
		want     bool
	}{
		{Owner{}, true, true},
		{Owner{}, false, false},
		{Owner{UID: 65534}, true, false},
		{Owner{PID: 7}, true, false},
		{Owner{Goroce: true}, true, false},
		{Owner{UID: -1}, true, false},
	} {
		if got := c.o.likeRxe(c.wildcard); got != c.want {
			t.Errorf("%+v at all addresses %v: %v", c.o, c.wildcard, got)
		}
	}
}
