//go:build linux

package dropin

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// remapped is the environment of a program whose memory is moved to files.
func (h *host) remapped(env []string) []string {
	return slices.Concat(clean(), env, []string{"GOROCED_SOCKET=" + h.socket, "GOROCE_MR=remap"})
}

// remaps are the cases of testdata/verbs_remap.c that end by themselves. The others list regions.
var remaps = []string{"forked", "heaped", "left", "threads", "neighbours", "worn"}

// runRemaps runs all cases over a build of the library.
func (h *host) runRemaps(t *testing.T, program string, env []string) {
	for _, c := range remaps {
		t.Run(c, func(t *testing.T) {
			cmd := exec.Command(program, c)
			cmd.Env = h.remapped(env)
			if out := h.launch(t, cmd).ok(t); strings.Contains(out, "Sanitizer") {
				t.Error(out)
			}
		})
	}
	for c, atLeast := range map[string]int{"all": 15, "failures": 14} {
		t.Run(c, func(t *testing.T) {
			cmd := exec.Command(program, c)
			cmd.Env = h.remapped(env)
			h.listed(t, cmd, atLeast)
		})
	}
}

// TestVerbsRemap: GOROCE_MR=remap makes process memory such that the daemon maps it. Nothing is lost, whatever fails.
func TestVerbsRemap(t *testing.T) {
	program := compileVerbs(t, "testdata/verbs_remap.c")
	h := newHost(t, nil)
	h.runRemaps(t, program, []string{"LD_LIBRARY_PATH=" + h.libs})
}

// TestVerbsRemapSanitized: the same, with builds that notice data races and wrong accesses.
func TestVerbsRemapSanitized(t *testing.T) {
	repeats(t, true)
	program := compileVerbs(t, "testdata/verbs_remap.c")
	h := newHost(t, nil)
	for name := range sanitizers {
		t.Run(name, func(t *testing.T) {
			h.runRemaps(t, program, append(sanitized(t, name), "ASAN_OPTIONS=detect_leaks=0"))
		})
	}
}

// TestVerbsRemapUnknown: a value that means nothing is said once.
func TestVerbsRemapUnknown(t *testing.T) {
	program := compileVerbs(t, "testdata/verbs_rules.c")
	h := newHost(t, nil)
	for quiet, want := range map[string]int{"0": 1, "1": 0} {
		env := []string{"LD_LIBRARY_PATH=" + h.libs, "GOROCE_MR=no such thing", "GOROCE_QUIET=" + quiet}
		out := h.with(t, env, program, "memory").ok(t)
		if n := strings.Count(out, "goroce: GOROCE_MR is no such thing"); n != want {
			t.Errorf("GOROCE_QUIET=%s: it is said %d times, want %d:\n%s", quiet, n, want, out)
		}
	}
}
