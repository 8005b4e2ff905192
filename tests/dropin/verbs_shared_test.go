//go:build linux

package dropin

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
)

// kinds asks the daemon for the kind of each memory region, by key.
func (h *host) kinds(t testing.TB) map[string]string {
	t.Helper()
	var list []struct {
		Key  uint32 `json:"lkey"`
		Kind string
	}
	out := h.start(t, goroced, "mr", "--json", "--admin", filepath.Join(h.dir, "a")).ok(t)
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	kinds := map[string]string{}
	for _, m := range list {
		kinds[fmt.Sprintf("%#x", m.Key)] = m.Kind
	}
	return kinds
}

// diskDir makes a directory of the ordinary user that is on a disk.
func diskDir(t testing.TB) string {
	t.Helper()
	dir := userDir(t)
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil || fs.Type == unix.TMPFS_MAGIC {
		require.Missing(t, "%s is not on a disk (%v); set TMPDIR", dir, err)
	}
	return dir
}

// registered matches a line of testdata/verbs_shared.c: key, kind, name.
var registered = regexp.MustCompile(`(?m)^(0x[0-9a-f]+) (\w+) (.*)$`)

// ready starts a program that says when it has registered all, and ends with its input.
func (h *host) ready(t *testing.T, cmd *exec.Cmd) (p *process, in io.Closer) {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p = h.launch(t, cmd)
	require.Until(t, "the program has registered all", func() bool {
		p.mustRun(t)
		return strings.Contains(p.out.String(), "ready\n")
	})
	return p, in
}

// listed checks that the daemon lists what the program says, maps nothing that the program has unmapped, and has the
// program end.
func (h *host) listed(t *testing.T, cmd *exec.Cmd, atLeast int) {
	t.Helper()
	p, in := h.ready(t, cmd)
	kinds := h.kinds(t)
	lines := registered.FindAllStringSubmatch(p.out.String(), -1)
	if len(lines) < atLeast {
		t.Errorf("only %d regions, want at least %d:\n%s", len(lines), atLeast, p.out.String())
	}
	for _, l := range lines {
		if key, want, name := l[1], l[2], l[3]; kinds[key] != want {
			t.Errorf("%s: the daemon lists %q, want %q", name, kinds[key], want)
		}
	}
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", h.daemon.cmd.Process.Pid))
	if err != nil || strings.Contains(string(maps), "memfd:unmapped") {
		t.Errorf("the daemon maps memory that the program has deregistered and unmapped (%v)", err)
	}
	if err := in.Close(); err != nil {
		t.Error(err)
	}
	p.ok(t)
}

// TestVerbsShared: memory that is shared from a file which the daemon can have is mapped by it, other memory is not,
// and both are written and read.
func TestVerbsShared(t *testing.T) {
	program := compileVerbs(t, "testdata/verbs_shared.c")
	h := newHost(t, nil)
	for name, env := range map[string][]string{"plain": {"LD_LIBRARY_PATH=" + h.libs}, "address": nil} {
		t.Run(name, func(t *testing.T) {
			if env == nil {
				require.FullRun(t, "it takes a build of the library")
			}
			if env == nil {
				env = append(sanitized(t, name), "ASAN_OPTIONS=detect_leaks=0") // what it registers stays
			}
			cmd := exec.Command(program, "all", diskDir(t))
			cmd.Env = slices.Concat(clean(), env, []string{"GOROCED_SOCKET=" + h.socket})
			h.listed(t, cmd, 35)
		})
	}
}

// TestVerbsSharedRoot: a privileged program's memory is found by its mapping, if its descriptor is closed.
func TestVerbsSharedRoot(t *testing.T) {
	require.Root(t)
	program := compileVerbs(t, "testdata/verbs_shared.c")
	h := &host{addr: linktest.Loopback(), dir: userDir(t), libs: libs(t), root: true}
	h.startDaemon(t, "--addr", h.addr.String())
	cmd := exec.Command(program, "privileged", diskDir(t))
	cmd.Env = slices.Concat(clean(), []string{"LD_LIBRARY_PATH=" + h.libs, "GOROCED_SOCKET=" + h.socket})
	h.listed(t, cmd, 35)
}

// TestVerbsShrink: a program that truncates memory which is registered gets an error, and nobody else does.
func TestVerbsShrink(t *testing.T) {
	program, other := compileVerbs(t, "testdata/verbs_shared.c"), compileVerbs(t, "testdata/verbs_rules.c")
	h := newHost(t, nil)
	for range 3 {
		h.run(t, program, "shrink", "/").ok(t)
		h.run(t, other, "requests").ok(t)
	}
}

// TestVerbsRefused: where the daemon maps no more memory, the memory is the process's.
func TestVerbsRefused(t *testing.T) {
	program := compileVerbs(t, "testdata/verbs_shared.c")
	h := &host{addr: linktest.Loopback(), dir: userDir(t), libs: libs(t)}
	h.startDaemon(t, "--addr", h.addr.String(), "--set", "limits.connection.pinned=200KiB")
	cmd := exec.Command(program, "refused", diskDir(t))
	cmd.Env = slices.Concat(clean(), []string{"LD_LIBRARY_PATH=" + h.libs, "GOROCED_SOCKET=" + h.socket})
	h.listed(t, cmd, 2)
}

// TestVerbsMaps: mappings are found on kernels before Linux 6.11, too.
func TestVerbsMaps(t *testing.T) {
	runInside(t, "testdata/verbs_maps.c")
}

// TestVerbsYield: a thread that polls yields, and sleeps where others compute.
func TestVerbsYield(t *testing.T) { runInside(t, "testdata/verbs_yield.c") }

// runInside runs a program that includes a source of the library.
func runInside(t *testing.T, source string) {
	t.Helper()
	program := compile(t, source, "-I", sources, "-I", clientSources)
	h := &host{dir: userDir(t)}
	cmd := exec.Command(program)
	cmd.Env = clean()
	h.launch(t, cmd).ok(t)
}
