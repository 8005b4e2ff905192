package port

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/goroce/goroce/tests/require"
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
			t.Errorf("%q is taken for a socket: %+v, want none", line, s)
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

// TestNotice: the process that has bound the port is called goroce as long as it says so itself. A notice from a
// process without the port is ignored.
func TestNotice(t *testing.T) {
	addr := netip.AddrFrom4([4]byte{127, 9, byte(os.Getpid() >> 8), byte(os.Getpid())})
	notice := Announce(addr)
	defer notice.Withdraw()
	if o := FindOwner(addr); o.Goroce || o.UID != -1 {
		t.Errorf("where nobody has the port the owner is %+v, want none", o)
	}
	conn, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, 4791)))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var taken *Error
	if err := Taken(addr); !errors.Is(err, ErrTaken) || !errors.As(err, &taken) || !taken.Owner.Goroce ||
		taken.Owner.PID != os.Getpid() {
		t.Errorf("the port is %v, want goroce's", err)
	}
	notice.Withdraw()
	if fd := notice.fd; fd != -1 {
		t.Errorf("a notice that was withdrawn still has descriptor %d, which may be another file's now, want -1", fd)
	}

	squatter := exec.Command("python3", "-c", `import socket, sys
s = socket.socket(socket.AF_UNIX); s.bind("\0" + sys.argv[1]); print("bound", flush=True); sys.stdin.read()`,
		noticeName(addr)[1:])
	in, err1 := squatter.StdinPipe()
	out, err2 := squatter.StdoutPipe()
	if err := errors.Join(err1, err2, squatter.Start()); err != nil {
		require.Missing(t, "needs python3: %v", err)
	}
	defer func() {
		_ = in.Close()
		_ = squatter.Wait()
	}()
	if _, err := out.Read(make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	Announce(addr).Withdraw()
	if o := FindOwner(addr); o.Goroce {
		t.Errorf("by another process's word the owner is %+v, want it not to be goroce", o)
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
			"goroce in process 7 (goroced); if that is the daemon, go through it (host.Any in Go, `goroced run` for "},
	} {
		if got := (&Error{Addr: netip.MustParseAddr("::1"), Owner: tt.o}).Error(); !strings.Contains(got, tt.want) ||
			!strings.Contains(got, "[::1]:4791") {
			t.Errorf("%+v: %q does not say %q and where", tt.o, got, tt.want)
		}
	}
}

// TestLikeRxe: neither a process that is seen nor a goroce leaves the kernel.
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
			t.Errorf("%+v at all addresses %v: %v, want %v", c.o, c.wildcard, got, c.want)
		}
	}
}
