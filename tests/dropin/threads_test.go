//go:build linux

package dropin

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
)

// threads are the cases of testdata/verbs_threads.c.
var threads = []string{"own", "shared", "devices"}

// TestVerbsThreads: eight threads have each their own queues, or all one completion queue, and lose nothing, or open
// devices. The program has more thread-local variables than the stack of the library's own thread holds.
func TestVerbsThreads(t *testing.T) {
	program := compileVerbs(t, "testdata/verbs_threads.c")
	h := newHost(t, nil)
	rounds := fmt.Sprint(require.Rounds(50, 500))
	for _, name := range threads {
		t.Run(name, func(t *testing.T) { h.run(t, program, name, rounds).ok(t) })
	}
}

// TestVerbsAlone: a program whose first thread has ended registers memory with the daemon of another user. The daemon
// takes the memory of another thread from a program that has a procfs of its own only.
func TestVerbsAlone(t *testing.T) {
	require.Root(t)
	program := compileVerbs(t, "testdata/verbs_threads.c")
	h := &host{addr: linktest.Loopback(), dir: userDir(t), libs: libs(t)}
	h.startDaemon(t, "--addr", h.addr.String(), "--set", "memory.other_processes=true")
	h.root = true // the programs
	h.run(t, program, "own", "10").ok(t)
	for _, name := range []string{"own", "alone"} {
		h.start(t, require.Command(t, "unshare"), "--pid", "--fork", "--kill-child", "--mount-proc", goroced, "run",
			"--socket", h.socket, "--", program, name, "10").ok(t)
	}
}

// TestVerbsCancelled: a thread that is cancelled in the library leaves no lock locked, and wakes the daemon.
func TestVerbsCancelled(t *testing.T) {
	besides(t)
	program := compileVerbs(t, "testdata/verbs_cancel.c")
	h := newHost(t, nil)
	for _, name := range []string{"posting", "creating", "destroying", "opening"} {
		t.Run(name, func(t *testing.T) { h.run(t, program, name).ok(t) })
	}
}

// TestVerbsThreadsSanitized: the same, with builds that notice data races and wrong accesses.
func TestVerbsThreadsSanitized(t *testing.T) {
	repeats(t, true)
	program := compileVerbs(t, "testdata/verbs_threads.c")
	h := newHost(t, nil)
	for name := range sanitizers {
		env := sanitized(t, name)
		for _, c := range threads {
			t.Run(name+"/"+c, func(t *testing.T) {
				if out := h.with(t, env, program, c, "100").ok(t); strings.Contains(out, "Sanitizer") {
					t.Error(out)
				}
			})
		}
	}
}

// TestVerbsEnds: a thread that waits for events of what is closed is told so, has no event, and touches no freed
// memory.
func TestVerbsEnds(t *testing.T) {
	program := compileVerbs(t, "testdata/verbs_ends.c")
	h := newHost(t, nil)
	env := []string{"LD_LIBRARY_PATH=" + h.libs}
	if require.Full() {
		env = sanitized(t, "address")
	}
	for _, name := range []string{"async", "completion", "reference", "handler"} {
		t.Run(name, func(t *testing.T) {
			env := env
			if name == "handler" { // what it destroys cannot be freed
				env = append(slices.Clone(env), "ASAN_OPTIONS=detect_leaks=0")
			}
			out := h.with(t, env, program, name, fmt.Sprint(require.Rounds(30, 300))).ok(t)
			if strings.Contains(out, "Sanitizer") {
				t.Error(out)
			}
		})
	}
}
