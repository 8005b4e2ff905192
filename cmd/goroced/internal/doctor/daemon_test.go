package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/internal/socket"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/daemon/abi"
	"github.com/goroce/goroce/roce/daemon/server"
	"github.com/goroce/goroce/roce/host"
	"github.com/goroce/goroce/roce/link/port"
	"github.com/goroce/goroce/tests/linktest"
)

// systemSocket is the socket of root's daemon.
const systemSocket = "/run/goroce/goroced.sock"

// listen listens as the daemon does.
func listen(t *testing.T, name string) *net.UnixListener {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: name, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// newDaemon serves a device "a", and returns its address and what ends it.
func newDaemon(t *testing.T, name string, o server.Options) (addr netip.Addr, end func()) {
	t.Helper()
	addr = linktest.Loopback()
	dev, err := host.Open(host.Options{Addrs: []netip.Addr{addr}, Device: roce.Options{Name: "a"}})
	if err != nil {
		t.Fatal(err)
	}
	return addr, newDaemonOf(t, dev, name, o)
}

// newDaemonOf serves a device, which it closes at the end.
func newDaemonOf(t *testing.T, dev roce.Device, name string, o server.Options) (end func()) {
	t.Helper()
	s, err := server.New([]roce.Device{dev}, o)
	if err != nil {
		t.Fatal(err)
	}
	l := listen(t, name)
	l.SetUnlinkOnClose(false) // a daemon that is killed does not
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, l) }()
	end = func() {
		if ctx.Err() == nil {
			cancel()
			if err := errors.Join(<-served, dev.Close()); err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(end)
	return end
}

// setEnv gives the user variables.
func (e *env) setEnv(vars map[string]string) {
	e.getenv = func(name string) string { return vars[name] }
}

// login gives the user a runtime directory, and returns the path of the socket of a daemon of the user's.
func (e *env) login(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err == nil {
		err = os.Chmod(dir, 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	e.setEnv(map[string]string{"XDG_RUNTIME_DIR": dir})
	return e.path(filepath.Join(dir, "goroce", "goroced.sock"))
}

// TestForeignRuntimeDirectory: one to which others may write, or that is another user's, is not looked into, which is
// told.
func TestForeignRuntimeDirectory(t *testing.T) {
	e := machine(t, nil)
	e.login(t)
	if f := pick(e.examine(), "daemon", Warn, "XDG_RUNTIME_DIR"); f != nil {
		t.Errorf("got %q, want no warning of the user's own directory", f.Text)
	}
	if err := os.Chmod(e.getenv("XDG_RUNTIME_DIR"), 0o777); err != nil {
		t.Fatal(err)
	}
	if f := wantFound(t, e.examine(), "daemon", Warn, "XDG_RUNTIME_DIR is ignored: others"); f.Command !=
		"unset XDG_RUNTIME_DIR" {
		t.Errorf("got the command %q, want %q", f.Command, "unset XDG_RUNTIME_DIR")
	}
}

// TestDaemon: none, one, and one that ended.
func TestDaemon(t *testing.T) {
	e := machine(t, nil)
	name := e.login(t)
	if f := pick(e.examine(), "daemon", OK, "none is running"); f == nil {
		t.Fatal(text(e.examine()))
	}
	addr, end := newDaemon(t, name, server.Options{})
	want := fmt.Sprintf("a daemon answers at %s: protocol version %d, devices a [%v]", name, abi.Version, addr)
	if f := pick(e.examine(), "daemon", OK, want); f == nil {
		t.Fatalf("nothing says %q:\n%s", want, text(e.examine()))
	}
	end()
	f := wantFound(t, e.examine(), "daemon", Warn, "has ended")
	if err := shell(f.Command); err != nil {
		t.Fatal(err)
	}
	wantOK(t, e.examine(), "daemon")
}

// TestDaemonHangs: it has a socket, and does not answer; its queue fills up.
func TestDaemonHangs(t *testing.T) {
	e := machine(t, nil)
	e.patience = 20 * time.Millisecond
	l := listen(t, e.path(systemSocket))
	wantFound(t, e.examine(), "daemon", Fail, systemSocket+": no answer")
	raw, err := l.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) { err = unix.Listen(int(fd), 0) }); err != nil {
		t.Fatal(err)
	}
	for f := (*Finding)(nil); f == nil; { // each try leaves a connection in the queue
		found := e.examine()
		wantFound(t, found, "daemon", Fail, "no answer")
		f = pick(found, "daemon", Fail, "its queue is full")
	}
}

// TestNoDaemon: what is in the place of its socket is none.
func TestNoDaemon(t *testing.T) {
	e := machine(t, nil)
	name := e.path(systemSocket)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	other, err := net.ListenPacket("unixgram", name)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	f := wantFound(t, e.examine(), "daemon", Fail, "no socket of goroced")
	if err := shell(f.Command); err != nil {
		t.Fatal(err)
	}
	wantOK(t, e.examine(), "daemon")
}

// TestDaemonNamed: a variable names a socket that is not there, and hides the daemon
// that is.
func TestDaemonNamed(t *testing.T) {
	e := machine(t, nil)
	newDaemon(t, e.path(systemSocket), server.Options{})
	e.setEnv(map[string]string{socket.ClientVariable: "/nosuch", socket.AdminVariable: "/nosuch2"})
	for _, c := range []struct {
		variable, path string
		status         Status
	}{{socket.ClientVariable, "/nosuch", Fail}, {socket.AdminVariable, "/nosuch2", Warn}} {
		f := wantFound(t, e.examine(), "daemon", c.status, c.variable+" names "+e.path(c.path))
		if f.Command != "unset "+c.variable {
			t.Errorf("command %q, want %q", f.Command, "unset "+c.variable)
		}
	}
	e.setEnv(nil)
	wantOK(t, e.examine(), "daemon")
}

// TestDaemonSays: what a daemon that answers refuses.
func TestDaemonSays(t *testing.T) {
	for _, c := range []struct {
		name   string
		o      server.Options
		words  string
		remedy string
	}{
		{name: "user", o: server.Options{Allow: func(uint32, uint32) error { return errors.New("not on Sundays") }},
			words: "not on Sundays", remedy: "ask whoever"},
		{name: "limit", o: server.Options{User: server.Limits{Connections: 1}}, words: "connections of one user",
			remedy: "raise the limit"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := machine(t, nil)
			name := e.path(systemSocket)
			newDaemon(t, name, c.o)
			if c.o.User.Connections > 0 {
				conn, err := socket.DialAny(t.Context(), socket.Client, []string{name})
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				if _, err := socket.Greet(t.Context(), conn); err != nil {
					t.Fatal(err)
				}
			}
			if f := wantFound(t, e.examine(), "daemon", Fail, c.words); !strings.Contains(f.Remedy, c.remedy) {
				t.Errorf("remedy %q, want %q", f.Remedy, c.remedy)
			}
		})
	}
}

// TestDaemonVersion: a daemon of another version names both.
func TestDaemonVersion(t *testing.T) {
	e := machine(t, nil)
	l := listen(t, e.path(systemSocket))
	go func() {
		for {
			c, err := l.AcceptUnix()
			if err != nil {
				return
			}
			conn := abi.NewConn(c)
			if h, _, _, err := conn.Receive(); err == nil {
				body, status := abi.PutError(nil,
					fmt.Errorf("hello: the daemon speaks version 99, the client 1 to 1: %w", abi.ErrVersion))
				_ = conn.Send(abi.Header{Op: h.Op, Seq: h.Seq, Status: status}, body)
			}
			_ = c.Close()
		}
	}()
	if f := wantFound(t, e.examine(), "daemon", Fail,
		"the daemon speaks version 99, the client 1 to 1"); !strings.Contains(f.Remedy, "the same goroced") {
		t.Errorf("remedy %q, want %q", f.Remedy, "the same goroced")
	}
}

// TestDaemonShows: what the admin socket says.
func TestDaemonShows(t *testing.T) {
	e := machine(t, nil)
	name := e.path("/run/goroce/goroced-admin.sock")
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", name)
	if err != nil {
		t.Fatal(err)
	}
	status := map[string]any{"version": map[string]string{"version": "v7"}, "pid": 9, "clients": 3}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		_ = json.NewEncoder(w).Encode(status)
	})}
	go s.Serve(l)
	t.Cleanup(func() { _ = s.Close() })
	if f := pick(e.examine(), "daemon", OK, name+": goroced v7, process 9, clients: 3"); f == nil {
		t.Error(text(e.examine()))
	}
}

// TestDaemonSharesPort: a port that the daemon has is no problem, that of another goroce
// is.
func TestDaemonSharesPort(t *testing.T) {
	e := machine(t, nil)
	e.getOwner = func(netip.Addr) port.Owner { return port.Owner{PID: 7, Name: "goroced", Goroce: true} }
	wantFound(t, e.examine(), "port", Fail, "goroce in process 7 (goroced)")
	addr, _ := newDaemon(t, e.path(systemSocket), server.Options{})
	wantFound(t, e.examine(), "port", Fail, "goroce in process 7 (goroced)")
	e.usable = []netip.Addr{addr}
	if f := pick(e.examine(), "port", OK, "the daemon shares it"); f == nil {
		t.Error(text(e.examine()))
	}
}

// TestDaemonSharesLinkLocal: the addresses of an interface have a zone, those of a daemon's GID table have none.
func TestDaemonSharesLinkLocal(t *testing.T) {
	e := machine(t, nil)
	e.getOwner = func(netip.Addr) port.Owner { return port.Owner{PID: 7, Name: "goroced", Goroce: true} }
	ns, _ := linktest.NewVeth(t, 1500)
	addr := netip.MustParseAddr("fe80::77").WithZone(ns.IfName)
	ns.Command(t, "ip", "address", "add", "fe80::77/64", "dev", ns.IfName, "nodad")
	var dev roce.Device
	if err := ns.Do(func() (err error) {
		dev, err = host.Open(host.Options{Addrs: []netip.Addr{addr}, Device: roce.Options{Name: "a"}})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	newDaemonOf(t, dev, e.path(systemSocket), server.Options{})
	e.usable = []netip.Addr{addr}
	if f := pick(e.examine(), "port", OK, "the daemon shares it"); f == nil {
		t.Error(text(e.examine()))
	}
}

// TestDaemonRefuses: the user lacks the right; the group is named.
func TestDaemonRefuses(t *testing.T) {
	e := machine(t, nil)
	name := e.path(systemSocket)
	newDaemon(t, name, server.Options{})
	if err := os.Chmod(name, 0); err != nil {
		t.Fatal(err)
	}
	done := make(chan []Finding)
	go func() {
		// Root on this thread loses its way round permissions; the thread ends.
		runtime.LockOSThread()
		if os.Geteuid() == 0 {
			_ = unix.Setfsuid(65534)
		}
		done <- checkDaemon(e)
		done <- checkMemory(e)
	}()
	found, memory := <-done, <-done
	if len(memory) != 1 || memory[0].Status != Warn || memory[0].Remedy != found[0].Remedy {
		t.Errorf("who may not connect is told of memory %+v, want the remedy of %+v", memory, found)
	}
	if len(found) != 1 || found[0].Status != Fail || !strings.Contains(found[0].Text, "no right to connect to "+name) ||
		found[0].Remedy == "" {
		t.Errorf("found %+v, want one that is a %v, with a remedy", found, Fail)
	}
	if err := os.Chmod(name, 0o666); err != nil {
		t.Fatal(err)
	}
	if found := checkDaemon(e); found[0].Status != OK {
		t.Errorf("found %+v, want %v", found, OK)
	}
}

// TestDaemonDisturbs: faults that somebody has added to a daemon, and perhaps forgotten, are found.
func TestDaemonDisturbs(t *testing.T) {
	e := machine(t, nil)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"devices": [{"faults": 2}, {"name": "red", "rx_overflow": 7},
			{"name": "blue", "netif": "eth0", "send_err": 5}]}`))
	})
	name := e.path(socket.Candidates(socket.Admin, "", e.getenv)[0])
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", name)
	if err != nil {
		t.Fatal(err)
	}
	server := http.Server{Handler: mux}
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
	wantFound(t, e.examine(), "daemon", Warn, "disturbs packets: 2 faults were added")
	wantFound(t, e.examine(), "daemon", Warn, "dropped 7 packets for which the receive buffer had no room")
	wantFound(t, e.examine(), "daemon", Warn, "refused to send 5 packets")
}

// TestDaemonElsewhere: the daemon of another network namespace is not taken for one of programs here.
func TestDaemonElsewhere(t *testing.T) {
	e := machine(t, nil)
	path := e.login(t)
	name := strings.TrimPrefix(path, e.root) // where the variable leads; the machine of the test is below another root
	if err := os.MkdirAll(name+".d", 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(name + ".d") })
	if err := os.WriteFile(filepath.Join(name+".d", socket.NamespaceFile), []byte("7\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	newDaemon(t, path, server.Options{})
	found := e.examine()
	wantFound(t, found, "daemon", Warn, fmt.Sprintf("in the network namespace net:[7], and this program in net:[%d]",
		socket.Namespace()))
	if f := pick(found, "daemon", OK, "a daemon answers"); f != nil {
		t.Errorf("it is asked all the same: %+v, want none", f)
	}
}
