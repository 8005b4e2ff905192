package dropin

import (
	"maps"
	"os/exec"
	"strings"
	"testing"

	"github.com/goroce/goroce/tests/require"
)

// TestVerbsFaults: whatever call of the C library fails in a verb, descriptor, mapping, memory, request or reply, the
// verb changes both the program's side and the daemon's, or none, or the connection ends. Nothing is left at the daemon
// that the program cannot close.
func TestVerbsFaults(t *testing.T) {
	program := compileVerbs(t, "testdata/verbs_faults.c")
	h := newHost(t, nil)
	list := h.run(t, program).ok(t)
	without := h.heldAfter(t, program, "none")
	for verb := range strings.Lines(list) {
		verb = strings.TrimSpace(verb)
		if strings.Contains(verb, " ") { // the last line
			continue
		}
		t.Run(verb, func(t *testing.T) {
			if held := h.heldAfter(t, program, verb); !maps.Equal(held, without) {
				t.Errorf("got at the daemon %v when all is closed, want %v", held, without)
			}
		})
	}
}

// heldAfter runs the program with a verb, and returns what the daemon has for it when it has closed all but its device.
func (h *host) heldAfter(t *testing.T, program, verb string) map[string]int64 {
	t.Helper()
	cmd := exec.Command(goroced, "run", "--socket", h.socket, "--", program, verb)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p := h.launch(t, cmd)
	require.Until(t, "all is closed", func() bool {
		p.mustRun(t)
		return strings.Contains(p.out.String(), "all is closed")
	})
	var status struct {
		Users []struct{ Amount map[string]int64 }
	}
	h.view(t, "status", &status)
	if err := stdin.Close(); err != nil {
		t.Error(err)
	}
	t.Log(p.ok(t))
	if len(status.Users) != 1 {
		t.Fatalf("got %d users of the daemon, want 1", len(status.Users))
	}
	return status.Users[0].Amount
}
