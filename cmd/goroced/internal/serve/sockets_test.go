package serve

import (
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/goroce/goroce/tests/require"
)

// TestDeadDaemonsSockets: what a daemon leaves that was killed is replaced.
func TestDeadDaemonsSockets(t *testing.T) {
	dir := t.TempDir()
	dead := start(t, dir, "")
	dead.signal(syscall.SIGKILL)
	_ = dead.cmd.Wait()
	if _, err := os.Lstat(dead.socket); err != nil {
		t.Fatalf("nothing is left to replace: %v", err)
	}
	c := start(t, dir, "")
	c.connect()
	c.wantStatus(`200 {"clients":1,"qps":16384}`)
}

// TestLiveDaemonsSockets: a second daemon is refused, and told whom to stop.
func TestLiveDaemonsSockets(t *testing.T) {
	dir := t.TempDir()
	live := start(t, dir, "")
	c := prepare(t, dir, "")
	c.run()
	c.ends(1, live.socket, "another daemon has it", fmt.Sprintf("process %d of user %d", live.cmd.Process.Pid,
		os.Geteuid()), "--socket")
	live.connect()
}

// TestForeignFiles: what is not a dead daemon's socket stays.
func TestForeignFiles(t *testing.T) {
	listen := func(network string) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			l, err := net.ListenUnix(network, &net.UnixAddr{Name: path, Net: network})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = l.Close() })
		}
	}
	for _, c := range []struct {
		name string
		make func(*testing.T, string)
		says string
	}{
		{"listens", listen("unixpacket"), fmt.Sprintf("process %d ", os.Getpid())},
		{"another type", listen("unix"), "another type"},
		{"file", func(t *testing.T, path string) {
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}, "no socket"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			d := prepare(t, dir, "")
			c.make(t, d.socket)
			d.run()
			d.ends(1, d.socket, c.says)
			if _, err := os.Lstat(d.socket); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestRights: sockets have the permissions and the group that are configured.
func TestRights(t *testing.T) {
	c := start(t, t.TempDir(), fmt.Sprintf("socket_mode = '0620'\nsocket_group = '%d'", os.Getegid()))
	for _, path := range []string{c.socket, c.admin} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if mode := info.Mode(); mode != fs.ModeSocket|0o620 {
			t.Errorf("%s has mode %v, want %v", path, mode, fs.ModeSocket|0o620)
		}
		if gid := info.Sys().(*syscall.Stat_t).Gid; int(gid) != os.Getegid() {
			t.Errorf("%s has group %d, want %d", path, gid, os.Getegid())
		}
	}
	bad := prepare(t, t.TempDir(), "socket_group = 'no-such-group'")
	bad.run()
	bad.ends(1, "socket_group no-such-group")
}

// TestActivation: the daemon takes the sockets that its service manager holds, whichever
// comes first, and leaves their files.
func TestActivation(t *testing.T) {
	sh := require.Command(t, "sh")
	for _, networks := range [][]string{{"unixpacket", "unix"}, {"unix", "unixpacket"}, {"unixpacket"}} {
		t.Run(strings.Join(networks, " "), func(t *testing.T) {
			d, held := prepareActivated(t, sh, networks)
			d.run()
			d.told("READY=1")
			conn := d.connect()
			d.wantStatus(`200 {"clients":1,"qps":16384}`)
			d.signal(syscall.SIGTERM)
			_ = conn.Close()
			d.ends(0)
			for _, path := range held {
				if _, err := os.Lstat(path); err != nil {
					t.Errorf("the service manager's socket: %v", err)
				}
			}
		})
	}
	for _, c := range []struct {
		networks []string
		says     string
	}{{[]string{"unixpacket", "unixpacket"}, "second socket"}, {[]string{"unixgram"},
		"ListenSequentialPacket="}, {[]string{"tcp"}, "no Unix socket"}} {
		d, _ := prepareActivated(t, sh, c.networks)
		d.run()
		d.ends(1, "socket activation", c.says)
	}
}

// prepareActivated makes a daemon that gets listening sockets of these networks. The
// shell fills in its process id, which stays the daemon's.
func prepareActivated(t *testing.T, sh string, networks []string) (d *child, held []string) {
	t.Helper()
	d = prepare(t, t.TempDir(), "drain = '1h'", fmt.Sprintf("LISTEN_FDS=%d", len(networks)))
	d.cmd.Args = []string{"sh", "-c", `LISTEN_PID=$$ exec "$0"`, d.cmd.Path}
	d.cmd.Path = sh
	for i, network := range networks {
		path := filepath.Join(t.TempDir(), fmt.Sprint(i))
		f := passed(t, network, path)
		t.Cleanup(func() { _ = f.Close() })
		d.cmd.ExtraFiles = append(d.cmd.ExtraFiles, f)
		switch network {
		case "unixpacket":
			d.socket = path
		case "unix":
			d.admin = path
		default:
			continue
		}
		held = append(held, path)
	}
	return d, held
}

// passed returns the descriptor of a listening socket.
func passed(t *testing.T, network, path string) *os.File {
	t.Helper()
	var holder interface{ File() (*os.File, error) }
	var err error
	switch network {
	case "tcp":
		holder, err = net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	case "unixgram":
		holder, err = net.ListenUnixgram(network, &net.UnixAddr{Name: path, Net: network})
	default:
		holder, err = net.ListenUnix(network, &net.UnixAddr{Name: path, Net: network})
	}
	if err != nil {
		t.Fatal(err)
	}
	f, err := holder.File()
	if err != nil {
		t.Fatal(err)
	}
	return f
}
