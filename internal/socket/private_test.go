package socket

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/goroce/goroce/tests/require"
)

// runtimeDir makes a directory that is this user's alone.
func runtimeDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(t.TempDir(), "run") // mode 0700
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// makeDir makes a directory with a mode, whatever the umask is.
func makeDir(t *testing.T, path string, mode os.FileMode) string {
	t.Helper()
	if err := errors.Join(os.Mkdir(path, 0o700), os.Chmod(path, mode)); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestRuntime: a directory in XDG_RUNTIME_DIR is used only if nobody but this user and root can put a socket there, or
// another directory in its place.
func TestRuntime(t *testing.T) {
	top, me := runtimeDir(t), os.Geteuid()
	below := func(name string, mode os.FileMode) string {
		return makeDir(t, filepath.Join(makeDir(t, filepath.Join(top, name), mode), "run"), 0o700)
	}
	own := makeDir(t, filepath.Join(top, "own"), 0o700)
	link, file := filepath.Join(top, "link"), filepath.Join(top, "file")
	if err := errors.Join(os.Symlink(own, link), os.WriteFile(file, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	foreign, under := "/", below("under", 0o755) // "/" is root's
	if me == 0 {
		foreign = makeDir(t, filepath.Join(top, "foreign"), 0o700)
		if err := errors.Join(os.Chown(foreign, 1, 1), os.Chown(filepath.Dir(under), 1, 1)); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		what, named, want string
		err               error
	}{
		{"one of one's own", own, own, nil},
		{"a link to it", link, own, nil},
		{"one below a sticky directory", below("sticky", 0o777|fs.ModeSticky), top + "/sticky/run", nil},
		{"none", "", "", nil},
		{"a relative path", "own", "", nil},
		{"one that is not there", filepath.Join(top, "gone"), "", fs.ErrNotExist},
		{"a file", file, "", fs.ErrPermission},
		{"one to which all may write", makeDir(t, filepath.Join(top, "open"), 0o777), "", fs.ErrPermission},
		{"one to which a group may write", makeDir(t, filepath.Join(top, "group"), 0o770), "", fs.ErrPermission},
		{"one that all may replace", below("replaceable", 0o777), "", fs.ErrPermission},
		{"another user's", foreign, "", fs.ErrPermission},
		{"one below another user's", under, "", fs.ErrPermission},
	} {
		if c.named == under && me != 0 {
			continue // only root can give directories away
		}
		getenv := env(map[string]string{"XDG_RUNTIME_DIR": c.named})
		got, err := Runtime(me, getenv)
		if got != c.want || !errors.Is(err, c.err) || err != nil && !strings.Contains(err.Error(), "is ignored") {
			t.Errorf("%s: got %q, %v; want %q, %v", c.what, got, err, c.want, c.err)
		}
		path := filepath.Join(c.named, "goroce", "goroced.sock")
		if found := Candidates(Client, "", getenv); slices.Contains(found, path) && c.want == "" {
			t.Errorf("%s: clients look for a daemon at %v, want not at %s", c.what, found, path)
		}
		const other = 54321
		if got := Default(other, getenv).Client; got != filepath.Join(Private(other), "goroced.sock") {
			t.Errorf("%s: user %d's daemon has the socket %s, want it in %s", c.what, other, got, Private(other))
		}
	}
}

// TestIgnored: root that was made by `su` without `-` is told that it does not look where the variable says.
func TestIgnored(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", makeDir(t, filepath.Join(runtimeDir(t), "open"), 0o777))
	defer func(tmp string, paths Paths) { Tmp, system = tmp, paths }(Tmp, system)
	Tmp, system = t.TempDir(), in(t.TempDir())
	for _, k := range []Kind{Client, Admin} {
		t.Setenv(ClientVariable, "")
		t.Setenv(AdminVariable, "")
		if _, err := Dial(k, ""); err == nil || !strings.Contains(err.Error(), "XDG_RUNTIME_DIR is ignored: others") {
			t.Errorf("kind %d: got %v, want a word about the variable", k, err)
		}
		if _, err := Dial(k, "/nowhere"); err == nil || strings.Contains(err.Error(), "XDG_RUNTIME_DIR") {
			t.Errorf("kind %d, with a name: got %v, want no word about the variable", k, err)
		}
	}
}

// TestRuntimeUnmapped: in a user namespace, which maps this user only, the parents of the user's directory seem to be
// user 65534's. The directory is used all the same, but none that is 65534's itself.
func TestRuntimeUnmapped(t *testing.T) {
	const variable = "GOROCE_TEST_RUNTIME"
	if dir := os.Getenv(variable); dir != "" {
		for named, want := range map[string]string{dir: dir, "/": ""} {
			got, err := Runtime(os.Geteuid(), env(map[string]string{"XDG_RUNTIME_DIR": named}))
			if got != want {
				t.Errorf("%s: got %q, %v; want %q", named, got, err, want)
			}
		}
		return
	}
	top, err := os.MkdirTemp("/tmp", "goroce-runtime") // an ordinary user may not enter that of root's test
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(top)
	dir, user := makeDir(t, filepath.Join(top, "run"), 0o700), os.Geteuid()
	group := os.Getegid()
	if user == 0 {
		user, group = 12345, 12345
		if err := errors.Join(os.Chmod(top, 0o755), os.Chown(dir, user, group)); err != nil {
			t.Fatal(err)
		}
	}
	const inside = 1000
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestRuntimeUnmapped$")
	cmd.Dir, cmd.Env = "/", append(os.Environ(), variable+"="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: inside, HostID: user, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: inside, HostID: group, Size: 1}},
		Credential:  &syscall.Credential{Uid: inside, Gid: inside, NoSetGroups: true}}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		require.Missing(t, "this needs user namespaces: %v", err)
	}
	if err != nil {
		t.Errorf("in the namespace: %v\n%s", err, out)
	}
}
