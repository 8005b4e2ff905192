//go:build linux

package dropin

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goroce/goroce/roce/daemon/dropin"
	"github.com/goroce/goroce/tests/require"
)

// compile compiles a program of testdata.
func compile(t testing.TB, source string, flags ...string) string {
	t.Helper()
	program := filepath.Join(work, strings.TrimSuffix(filepath.Base(source), ".c"))
	args := append([]string{"-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-o", program, source},
		flags...)
	buildOnce(t, program, require.Command(t, "cc"), args...)
	return program
}

// fakeTree writes a tree beside a socket that nobody listens on, with decoys where no path may lead.
func fakeTree(t testing.TB, socket, guid string) {
	t.Helper()
	for path, text := range map[string]string{
		"sys/class/infiniband/blue/node_guid": guid, "sys/class/infini": "decoy",
		"dev/infinibandwidth": "decoy", "dev/infin": "decoy", "sys/class/infiniband/blue/device/x": "",
		"dev/infiniband/uverbs0": "", "sys/class/infiniband_verbs/uverbs0/device": "",
	} {
		path = filepath.Join(socket+".d", path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		switch filepath.Base(path) {
		case "uverbs0":
			err = os.Symlink("/dev/null", path)
		case "device":
			err = os.Symlink("../../infiniband/blue/device", path)
		default:
			err = os.WriteFile(path, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestPreload: by every function the tree looks as if it were below /, in constructors, threads and children, after the
// first thread has ended, and no other path is touched. What the program finds below the tree itself is what it must
// find.
func TestPreload(t *testing.T) {
	program := compile(t, "testdata/sys.c")
	h := &host{dir: userDir(t), libs: libs(t)}
	socket := filepath.Join(h.dir, "goroce", "goroced.sock")
	fakeTree(t, socket, "1122:3344:5566:7788\n")
	want := h.start(t, program, socket+".d").ok(t)
	if !strings.Contains(want, "fopen64: 1122:") || !strings.Contains(want, "threads: ok") {
		t.Fatalf("without the library:\n%s", want)
	}
	for _, env := range []string{"GOROCED_SOCKET=" + socket, "XDG_RUNTIME_DIR=" + h.dir} {
		cmd := exec.Command(program)
		cmd.Env = append(clean(), env, "LD_PRELOAD="+filepath.Join(h.libs, dropin.Sys))
		if diff := cmp.Diff(want, h.launch(t, cmd).ok(t)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", env, diff)
		}
	}
}

// TestPreloadGIDAttrs: type and interface of an empty row of the GID table can be opened, and not read (EINVAL).
func TestPreloadGIDAttrs(t *testing.T) {
	h := &host{dir: userDir(t), libs: libs(t)}
	socket := filepath.Join(h.dir, "s")
	const types = "/sys/class/infiniband/blue/ports/1/gid_attrs/types"
	if err := os.MkdirAll(socket+".d"+types, 0o755); err != nil {
		t.Fatal(err)
	}
	for row, text := range map[string]string{"0": "RoCE v2\n", "1": ""} {
		if err := os.WriteFile(filepath.Join(socket+".d"+types, row), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for row, want := range map[string]string{"0": "RoCE v2\n", "1": "Invalid argument", "2": "No such file"} {
		cmd := exec.Command("sh", "-c", "exec cat "+types+"/"+row+" 2>&1")
		cmd.Env = append(clean(), "GOROCED_SOCKET="+socket, "LD_PRELOAD="+filepath.Join(h.libs, dropin.Sys))
		if got, err := h.launch(t, cmd).wait(t); !strings.Contains(got, want) {
			t.Errorf("row %s: %q, %v, want %q", row, got, err, want)
		}
	}
}

// TestPreloadPlaces: the tree is that of the socket that programs find.
func TestPreloadPlaces(t *testing.T) {
	h := &host{dir: userDir(t), libs: libs(t)}
	own, named := filepath.Join(h.dir, "goroce", "goroced.sock"), filepath.Join(h.dir, "s")
	fakeTree(t, own, "own")
	fakeTree(t, named, "named")
	link := filepath.Join(h.dir, "link")
	if err := os.Symlink(h.dir, link); err != nil {
		t.Fatal(err)
	}
	open := userDir(t) // all may write to it
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	below := filepath.Join(open, "below") // all may replace it
	if err := os.Rename(userDir(t), below); err != nil {
		t.Fatal(err)
	}
	fakeTree(t, filepath.Join(open, "goroce", "goroced.sock"), "open")
	fakeTree(t, filepath.Join(below, "goroce", "goroced.sock"), "below")
	for env, want := range map[string]string{
		"XDG_RUNTIME_DIR=" + h.dir: "own", "GOROCED_SOCKET=" + named: "named",
		"XDG_RUNTIME_DIR=" + link:                            "own",
		"XDG_RUNTIME_DIR=" + open:                            "", // it is not this user's alone
		"XDG_RUNTIME_DIR=" + below:                           "",
		"XDG_RUNTIME_DIR=/sys/class/infiniband":              "", // where the library looks itself
		"GOROCED_SOCKET=" + own + "-gone":                    "", // a name stands alone
		"GOROCED_SOCKET=":                                    "",
		"GOROCED_SOCKET=" + named + strings.Repeat("x", 108): "", // no socket has a path of that length
	} {
		cmd := exec.Command("cat", "/sys/class/infiniband/blue/node_guid")
		cmd.Env = append(clean(), env, "LD_PRELOAD="+filepath.Join(h.libs, dropin.Sys))
		if got, err := h.launch(t, cmd).wait(t); got != want && (want != "" || err == nil) {
			t.Errorf("%s: %q, %v, want %q", env, got, err, want)
		}
	}
}
