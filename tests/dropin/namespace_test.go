//go:build linux

package dropin

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
)

// number returns the inode number of a network namespace, as programs in it see it.
func number(t *testing.T, in *linktest.Namespace) string {
	t.Helper()
	text := strings.TrimSpace(in.Command(t, "readlink", "/proc/self/ns/net"))
	return strings.TrimSuffix(strings.TrimPrefix(text, "net:["), "]")
}

// TestRunNamespaces: programs of a user in two network namespaces, with one runtime directory, have a daemon each.
// Those that start none, in a third namespace, are told why there is none for them; a socket that is named is used all
// the same.
func TestRunNamespaces(t *testing.T) {
	t.Parallel()
	installed(t, "ibv_devices")
	const system = "/run/goroce/goroced.sock"
	if _, err := os.Stat(system); err == nil {
		require.Missing(t, "root's daemon listens at %s, so that it is found, too: end it by `goroced stop`", system)
	}
	red, blue := linktest.NewVeth(t, 1500)
	third, _ := linktest.NewVeth(t, 1500)
	u := newUser(t)
	var env []string
	for _, v := range u.env {
		if !strings.HasPrefix(v, "GOROCED_DEVICE_ADDRESSES=") {
			env = append(env, v)
		}
	}
	do := func(in *linktest.Namespace, env []string, program string, args ...string) *process {
		h := host{dir: u.dir, libs: u.libs, in: in}
		cmd := exec.Command(program, args...)
		cmd.Env = env
		return h.launch(t, cmd)
	}
	sockets := map[*linktest.Namespace]string{}
	var running []*process
	for _, in := range []*linktest.Namespace{red, blue} {
		p := do(in, env, goroced, "run", "--", "sleep", "1000")
		p.becomes(t, "sleep")
		running = append(running, p)
		out := do(in, env, goroced, "run", "--", "sh", "-c", "echo $GOROCED_SOCKET; ibv_devices").ok(t)
		if want := "goroce_" + in.IfName; !strings.Contains(out, want) && !strings.Contains(out, "goroce0") {
			t.Errorf("the devices are\n%s, want %s", out, want)
		}
		sockets[in], _, _ = strings.Cut(out, "\n")
	}
	below := filepath.Join(u.dir, "goroce", "netns-"+number(t, blue), "goroced.sock")
	if sockets[red] != u.socket || sockets[blue] != below {
		t.Errorf("the sockets are %s and %s, want %s and %s", sockets[red], sockets[blue], u.socket, below)
	}
	bare := append([]string{"LD_LIBRARY_PATH=" + u.libs}, env...) // not by run: the library looks for a daemon
	for _, in := range []*linktest.Namespace{red, blue} {
		guid := do(in, bare, "ibv_devices").ok(t)
		named := append([]string{"GOROCED_SOCKET=" + sockets[in]}, bare...)
		if out := do(in, named, "ibv_devices").ok(t); out != guid || !strings.Contains(out, "goroce") {
			t.Errorf("found without a name\n%s, want that of %s:\n%s", guid, sockets[in], out)
		}
	}
	names := fmt.Sprintf("in the network namespace net:[%s], ", number(t, red))
	for _, args := range [][]string{{goroced, "status"}, {goroced, "devinfo", "--daemon"}, {"ibv_devices"}} {
		p := do(third, bare, args[0], args[1:]...)
		if said, _ := p.wait(t); !strings.Contains(said, names) ||
			!strings.Contains(said, "this program in net:["+number(t, third)+"]") {
			t.Errorf("%v in a third namespace: %s, want both namespaces named", args, said)
		}
	}
	do(third, append([]string{"GOROCED_SOCKET=" + sockets[blue]}, bare...), goroced, "status").ok(t)
	for _, p := range running {
		_, _ = p.signal(t, syscall.SIGTERM)
	}
}
