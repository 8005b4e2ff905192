//go:build linux

package dropin

import (
	"slices"
	"strings"
	"testing"
)

// shorts are the cases of testdata/verbs_short.c.
var shorts = []string{"opcodes", "keys", "regions", "moments", "room", "threads"}

// TestVerbsShort: short payloads of process memory travel in the work request, and nobody can tell.
func TestVerbsShort(t *testing.T) {
	program := compileVerbs(t, "testdata/verbs_short.c")
	h := newHost(t, nil)
	for _, name := range shorts {
		t.Run(name, func(t *testing.T) { h.run(t, "env", "GOROCE_MR=process", program, name).ok(t) })
	}
}

// TestVerbsShortSanitized: the same, with builds that notice data races and wrong accesses.
func TestVerbsShortSanitized(t *testing.T) {
	repeats(t, true)
	program := compileVerbs(t, "testdata/verbs_short.c")
	h := newHost(t, nil)
	for name := range sanitizers {
		env := slices.Concat(sanitized(t, name), []string{"GOROCE_MR=process",
			"ASAN_OPTIONS=detect_leaks=0"}) // objects stay open
		for _, c := range shorts {
			t.Run(name+"/"+c, func(t *testing.T) {
				if out := h.with(t, env, program, c).ok(t); strings.Contains(out, "Sanitizer") {
					t.Error(out)
				}
			})
		}
	}
}
