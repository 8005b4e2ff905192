package launch

import (
	"errors"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goroce/goroce/cmd/goroced/internal/config"
	"github.com/goroce/goroce/internal/socket"
	"github.com/goroce/goroce/roce/host"
)

// TestMain also plays the daemons of TestUnused, which this program starts by itself: the first three end without an
// error.
func TestMain(m *testing.M) {
	if len(os.Args) < 3 || os.Args[1] != "spawn" {
		os.Exit(m.Run())
	}
	log := os.Args[2]
	count, err := os.OpenFile(filepath.Join(filepath.Dir(log), "count"), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		panic(err)
	}
	before, err := io.ReadAll(count)
	if err != nil {
		panic(err)
	}
	logs := []string{"", "time=1 level=INFO msg=stopped\n", `{"msg":"stopped"}` + "\n", "time=1\ngoroced: a reason\n"}
	if _, err := count.WriteString("x"); err != nil {
		panic(err)
	}
	if err := os.WriteFile(log, []byte(logs[len(before)]), 0o600); err != nil {
		panic(err)
	}
}

// TestUnused: a daemon that ends before it has a client is started again, one that fails is not.
func TestUnused(t *testing.T) {
	p := place(t.TempDir())
	conn, err := p.start(t.Context(), func(string) {})
	if conn != nil || err == nil || err.Error() != "the daemon that was started has ended: goroced: a reason" {
		t.Errorf("%v, %v; want no connection, the reason", conn, err)
	}
	if count, err := os.ReadFile(filepath.Join(string(p), "count")); string(count) != "xxxx" || err != nil {
		t.Errorf("started %q, %v; want four", count, err)
	}
}

// TestDeviceFlags: the interface of the default route, or else loopback; a name that UCX can keep.
func TestDeviceFlags(t *testing.T) {
	lo := host.Interface{Name: "lo", Up: true, Loopback: true}
	for _, c := range []struct {
		name string
		list []host.Interface
		want []string
	}{
		{"network", []host.Interface{lo, {Name: "eth0", Up: true, Default: true}}, nil},
		{"long name", []host.Interface{lo, {Name: "enp0s31f6", Up: true, Default: true}},
			[]string{"--set", "device.name=goroce0"}},
		{"others down", []host.Interface{lo, {Name: "eth0"}}, []string{"--netif", "lo"}},
		{"loopback only", []host.Interface{lo}, []string{"--netif", "lo"}},
		{"loopback down", []host.Interface{{Name: "lo", Loopback: true}}, nil},
	} {
		got, err := deviceFlags(c.list)
		if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", c.name, err, diff)
		}
	}
	one, two := []netip.Addr{netip.MustParseAddr("10.0.0.1")}, []netip.Addr{netip.MustParseAddr("10.1.0.1")}
	_, err := deviceFlags([]host.Interface{lo, {Name: "eth0", Up: true, Addrs: one},
		{Name: "eth1", Up: true, Addrs: two}})
	if !errors.Is(err, host.ErrNoInterface) || !strings.Contains(err.Error(), "eth0 (10.0.0.1), eth1 (10.1.0.1); set "+
		"GOROCED_DEVICE_NETIF") {
		t.Errorf("several, and no default route: got %v, want both named", err)
	}
}

// TestPlain: what the user has configured is left alone.
func TestPlain(t *testing.T) {
	for _, c := range []struct {
		list []config.Device
		want bool
	}{
		{[]config.Device{{Link: "auto"}}, true}, {[]config.Device{{Link: "udp"}}, false},
		{[]config.Device{{Link: "auto", NetIf: "eth1"}}, false},
		{[]config.Device{{Link: "auto"}, {Link: "auto"}}, false},
	} {
		if got := plain(c.list); got != c.want {
			t.Errorf("%+v: %v, want %v", c.list, got, c.want)
		}
	}
}

// TestOwnPlace: the runtime directory, if it is the user's own.
func TestOwnPlace(t *testing.T) {
	if os.Geteuid() == 0 {
		if got := ownPlace(); got != "/run/goroce" {
			t.Errorf("root's place is %s, want %s", got, "/run/goroce")
		}
		return
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_RUNTIME_DIR", dir)
	if got := ownPlace(); string(got) != filepath.Join(dir, "goroce") {
		t.Errorf("with a runtime directory it is %s, want %v", got, filepath.Join(dir, "goroce"))
	}
	for _, other := range []string{"", "/nowhere", "/"} {
		t.Setenv("XDG_RUNTIME_DIR", other)
		if got := ownPlace(); filepath.Dir(string(got)) != "/tmp" {
			t.Errorf("with %q it is %s, want one in /tmp", other, got)
		}
	}
}

// TestForeignPlace: a directory in /tmp to which others may write is neither asked for a daemon nor used for one.
func TestForeignPlace(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("skipped: needs an ordinary user, as root's place is in /run")
	}
	socket.Tmp = t.TempDir()
	defer func() { socket.Tmp = "/tmp" }()
	t.Setenv("XDG_RUNTIME_DIR", "")
	t.Setenv("GOROCED_SOCKET", "")
	own := ownPlace()
	for _, mode := range []os.FileMode{0o777, 0o775, 0o755} {
		if err := errors.Join(os.MkdirAll(string(own), 0o755), os.Chmod(string(own), mode)); err != nil {
			t.Fatal(err)
		}
		alone := mode == 0o755
		if got := slices.Contains(candidates(""), own.socket()); got != alone {
			t.Errorf("mode %v: its socket is asked: %v, want %v", mode, got, alone)
		}
		if err := own.take(); (err == nil) != alone || err != nil && !errors.Is(err, fs.ErrPermission) {
			t.Errorf("mode %v: taken with %v; want none if alone, else %v", mode, err, fs.ErrPermission)
		}
	}
}

// TestLibrariesName: a directory that LD_PRELOAD cannot name is refused.
func TestLibrariesName(t *testing.T) {
	if err := check("/a b"); err == nil {
		t.Error("/a b is taken")
	}
}
