package socket

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goroce/goroce/roce/daemon/abi"
)

func env(vars map[string]string) func(string) string {
	return func(name string) string { return vars[name] }
}

// TestCandidates: what is named stands alone; otherwise the user's own daemons come before root's.
func TestCandidates(t *testing.T) {
	defer func(tmp string) { Tmp = tmp }(Tmp)
	Tmp = t.TempDir() // the user may have had a daemon in /tmp
	x := runtimeDir(t)
	for _, c := range []struct {
		kind Kind
		flag string
		env  map[string]string
		want []string
	}{
		{Client, "/f", map[string]string{"GOROCED_SOCKET": "/e"}, []string{"/f"}},
		{Client, "", map[string]string{"GOROCED_SOCKET": "/e", "GOROCED_ADMIN": "/a", "XDG_RUNTIME_DIR": x},
			[]string{"/e"}},
		{Admin, "", map[string]string{"GOROCED_SOCKET": "/e", "GOROCED_ADMIN": "/a"}, []string{"/a"}},
		{Admin, "", map[string]string{"GOROCED_SOCKET": "/blue.sock"}, []string{"/blue-admin.sock"}},
		{Admin, "", map[string]string{"GOROCED_SOCKET": "/s"}, []string{"/s-admin.sock"}},
		{Client, "", map[string]string{"XDG_RUNTIME_DIR": x},
			[]string{x + "/goroce/goroced.sock", "/run/goroce/goroced.sock"}},
		{Admin, "", map[string]string{"XDG_RUNTIME_DIR": x},
			[]string{x + "/goroce/goroced-admin.sock", "/run/goroce/goroced-admin.sock"}},
		{Client, "", map[string]string{"XDG_RUNTIME_DIR": "relative"}, []string{"/run/goroce/goroced.sock"}},
	} {
		if diff := cmp.Diff(c.want, Candidates(c.kind, c.flag, env(c.env))); diff != "" {
			t.Errorf("%v, flag %q, %v (-want +got): %s", c.kind, c.flag, c.env, diff)
		}
	}

	private := Private(os.Geteuid())
	if err := Take(private); err != nil {
		t.Fatal(err)
	}
	want := []string{x + "/goroce/goroced.sock", filepath.Join(private, "goroced.sock"), "/run/goroce/goroced.sock"}
	got := Candidates(Client, "", env(map[string]string{"XDG_RUNTIME_DIR": x}))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("with a directory of the user's in Tmp (-want +got): %s", diff)
	}
}

// TestDialAny: a dead daemon's socket does not hide a live one.
func TestDialAny(t *testing.T) {
	dir := t.TempDir()
	stale, live := filepath.Join(dir, "stale"), filepath.Join(dir, "live")
	for _, path := range []string{stale, live} {
		l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if path == stale {
			l.SetUnlinkOnClose(false)
			_ = l.Close()
		}
	}
	conn, err := DialAny(t.Context(), Client, []string{filepath.Join(dir, "none"), stale, live})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got := conn.RemoteAddr().String(); got != live {
		t.Errorf("connected to %s, want %s", got, live)
	}
}

// TestDialError says of each place why there is no daemon, and what to do.
func TestDialError(t *testing.T) {
	dir := t.TempDir()
	none, stale, stream, plain := filepath.Join(dir, "none"), filepath.Join(dir, "stale"), filepath.Join(dir, "stream"),
		filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: stream, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dead, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: stale, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	_ = dead.Close()

	_, err = DialAny(t.Context(), Client, []string{none, stale, stream, plain})
	var failed *DialError
	if !errors.As(err, &failed) || len(failed.Tried) != 4 {
		t.Fatalf("error %v, want 4 attempts", err)
	}
	for i, want := range []struct {
		path string
		err  error
		text string
	}{
		{none, fs.ErrNotExist, "no daemon runs"}, {stale, syscall.ECONNREFUSED, "died"},
		{stream, syscall.EPROTOTYPE, "another type"},
		{plain, syscall.ECONNREFUSED, "no socket"},
	} {
		if a := failed.Tried[i]; a.Path != want.path || !errors.Is(a.Err, want.err) ||
			!strings.Contains(err.Error(), want.path+": ") || !strings.Contains(a.reason(), want.text) {
			t.Errorf("attempt %d is %v: %s, want %v: %v", i, a, err, want.path, want.err)
		}
	}
	if !strings.Contains(err.Error(), "goroced serve") ||
		!strings.Contains(err.Error(), "by GOROCED_SOCKET (--socket") {
		t.Errorf("no advice: %v, want the sockets and goroced serve", err)
	}
	_, err = DialAny(t.Context(), Admin, []string{none})
	if !strings.Contains(err.Error(), "by GOROCED_ADMIN (--admin") {
		t.Errorf("no advice: %v, want GOROCED_ADMIN and --admin", err)
	}
}

// TestDialRights: who may not is told so. The kernel lets root do everything, so there
// it is told to the error by hand.
func TestDialRights(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := os.Chmod(path, 0o400); err != nil {
		t.Fatal(err)
	}
	_, err = DialAny(t.Context(), Client, []string{path})
	if os.Geteuid() == 0 {
		err = &DialError{Kind: Client, Tried: []Attempt{{path, syscall.EACCES}}}
	}
	if !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "mode 0400") ||
		!strings.Contains(err.Error(), "group") {
		t.Errorf("error %v, want %v, %q and %q", err, fs.ErrPermission, "mode 0400", "group")
	}
}

// TestGreet: a daemon that is not there for its clients, and one that is none, do not
// keep anybody.
func TestGreet(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	greet := func(ctx context.Context, answer []byte) error {
		conn, err := DialAny(t.Context(), Client, []string{path})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		server, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		if answer != nil {
			if _, err := server.Write(answer); err != nil {
				t.Fatal(err)
			}
		}
		_, err = Greet(ctx, conn)
		return err
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	asleep := errors.New("it sleeps")
	cancel(asleep)
	if err := greet(ctx, nil); !errors.Is(err, asleep) {
		t.Errorf("silence: %v, want %v", err, asleep)
	}
	for _, answer := range [][]byte{{1}, make([]byte, abi.HeaderLen), make([]byte, abi.HeaderLen+9)} {
		if err := greet(t.Context(), answer); err == nil {
			t.Errorf("%d bytes are taken for an answer, want an error", len(answer))
		}
	}
}
