package socket

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// say writes what a daemon says beside its socket.
func say(t *testing.T, socket, file, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(socket+besides, 0o700),
		os.WriteFile(filepath.Join(socket+besides, file), []byte(text+"\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// TestForeign: the daemon of another network namespace is passed over, and named in the error; where one listens a
// daemon of this namespace has a directory of its own, in which programs look. What a daemon does not say does not
// count, nor what a dead one has said.
func TestForeign(t *testing.T) {
	run := runtimeDir(t)
	t.Setenv("XDG_RUNTIME_DIR", run)
	t.Setenv(ClientVariable, "")
	t.Setenv(AdminVariable, "")
	defer func(tmp string, paths Paths) { Tmp, system = tmp, paths }(Tmp, system)
	Tmp, system = t.TempDir(), in(t.TempDir())
	dir := filepath.Join(run, "goroce")
	plain, below := in(dir), in(inNamespace(dir))
	place := func() Paths { return free(dir) }
	for _, same := range []string{"", fmt.Sprint(Namespace()), "no number"} {
		say(t, plain.Client, NamespaceFile, same)
		if got := Candidates(Client, "", os.Getenv); got[0] != plain.Client || place() != plain {
			t.Errorf("the daemon says %q: programs look at %v, and a daemon takes %v; want %v first and %+v", same, got,
				place(), plain.Client, plain)
		}
	}
	say(t, plain.Client, NamespaceFile, "7")
	if got := place(); got != plain {
		t.Errorf("nobody listens: a daemon takes %v, want %v", got, plain)
	}
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: plain.Client, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if got := place(); got != below {
		t.Errorf("another namespace's daemon listens: a daemon takes %v, want %v", got, below)
	}
	for k, path := range map[Kind]string{Client: plain.Client, Admin: plain.Admin} {
		if got := Candidates(k, "", os.Getenv); slices.Contains(got, path) {
			t.Errorf("programs look at %v, want not at %s", got, path)
		}
		_, err := Dial(k, "")
		var other *NamespaceError
		if !errors.As(err, &other) || other.Daemon != 7 || other.Own != Namespace() ||
			!strings.Contains(err.Error(), fmt.Sprintf("net:[7], and this program in net:[%d]", Namespace())) {
			t.Errorf("dial: %v, want both namespaces named", err)
		}
	}
	if got := Candidates(Client, plain.Client, os.Getenv); len(got) != 1 || len(Foreign(Client, plain.Client,
		os.Getenv)) != 0 {
		t.Errorf("a socket that is named: programs look at %v, want one", got)
	}
	if err := os.Mkdir(filepath.Dir(below.Client), 0o700); err != nil {
		t.Fatal(err)
	}
	if got := Candidates(Client, "", os.Getenv); got[0] != below.Client {
		t.Errorf("programs look at %v, want at %s first", got, below.Client)
	}
}

// TestAdminOf: the variable of the client socket leads to the same daemon's admin socket, wherever that is.
func TestAdminOf(t *testing.T) {
	client := filepath.Join(t.TempDir(), "s")
	getenv := env(map[string]string{ClientVariable: client})
	say(t, client, AdminFile, "/elsewhere/a")
	if got := Candidates(Admin, "", getenv); !slices.Equal(got, []string{"/elsewhere/a"}) {
		t.Errorf("programs look at %v, want where the daemon says", got)
	}
	if got := Candidates(Admin, "/flag", getenv); !slices.Equal(got, []string{"/flag"}) {
		t.Errorf("with a flag programs look at %v, want %v", got, []string{"/flag"})
	}
}
