//go:build linux

package dropin

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/goroce/goroce/roce/daemon/server"
	"github.com/goroce/goroce/tests/require"
)

// exacts are the cases of testdata/verbs_exact.c.
var exacts = []string{"pages", "others", "storers", "handlers", "kernel", "placed", "advised", "forked", "shared",
	"grown", "often"}

// TestVerbsExact: memory is moved to a file only if no store is lost by that, and nobody can notice.
func TestVerbsExact(t *testing.T) {
	program := compileVerbs(t, "testdata/verbs_exact.c")
	h := newHost(t, nil)
	for _, name := range exacts {
		t.Run(name, func(t *testing.T) { h.run(t, program, name).ok(t) })
	}
}

// rootHost starts a daemon of root, whose programs are root's, too: they may make threads wait by userfaultfd.
func rootHost(t *testing.T) *host {
	if os.Geteuid() != 0 {
		require.Missing(t, "needs root, for a userfaultfd that sees faults of the kernel")
	}
	h := &host{dir: userDir(t), libs: libs(t), root: true}
	h.startDaemon(t, "--addr", ownAddr(t))
	return h
}

// TestVerbsExactFrozen: threads wait while memory is moved that they use, where userfaultfd can make them.
func TestVerbsExactFrozen(t *testing.T) {
	program := compileVerbs(t, "testdata/verbs_exact.c")
	rootHost(t).run(t, program, "frozen").ok(t)
}

// TestVerbsExactReasons: `goroced mr` says of each region why it is memory of the process.
func TestVerbsExactReasons(t *testing.T) {
	program := compileVerbs(t, "testdata/verbs_exact.c")
	h := newHost(t, nil)
	p, in := h.ready(t, exec.Command(goroced, "run", "--socket", h.socket, "--", program, "reasons"))
	var list []server.MRInfo
	out := h.start(t, goroced, "mr", "--json", "--admin", filepath.Join(h.dir, "a")).ok(t)
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	got := map[string]string{}
	for _, m := range list {
		got[fmt.Sprintf("%#x", m.Key)] = m.Kind + " " + m.Why
	}
	lines := regexp.MustCompile(`(?m)^(0x[0-9a-f]+) (.*)$`).FindAllStringSubmatch(p.out.String(), -1)
	if len(lines) < 10 {
		t.Errorf("%d regions, want at least 10:\n%s", len(lines), p.out.String())
	}
	for _, l := range lines {
		if got[l[1]] != l[2] {
			t.Errorf("region %s is listed as %q, want %q", l[1], got[l[1]], l[2])
		}
	}
	if err := in.Close(); err != nil {
		t.Error(err)
	}
	p.ok(t)
}

// TestVerbsExactSanitized: TestVerbsExact with builds that notice data races and wrong accesses. That of threads has a
// thread of its own, with which nothing is moved.
func TestVerbsExactSanitized(t *testing.T) {
	repeats(t, true)
	program := compileVerbs(t, "testdata/verbs_exact.c")
	for name := range sanitizers {
		env := append(sanitized(t, name), "ASAN_OPTIONS=detect_leaks=0") // objects stay open
		run := func(h *host, c string) {
			t.Run(name+"/"+c, func(t *testing.T) {
				if out := h.with(t, env, program, c, "any").ok(t); strings.Contains(out, "Sanitizer") {
					t.Error(out)
				}
			})
		}
		h := newHost(t, nil)
		for _, c := range exacts {
			run(h, c)
		}
		run(rootHost(t), "frozen")
	}
}
