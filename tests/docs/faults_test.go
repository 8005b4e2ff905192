package docs

import (
	"os/exec"
	"regexp"
	"testing"
)

// TestForgottenRetry: the command of examples/README.md for a protocol that does not ask again fails, and prints a
// command that fails in the same way.
func TestForgottenRetry(t *testing.T) {
	mistake := "-tries=1"
	failure := regexp.MustCompile(`the square of \d+: got 0, no answer to \d+`)
	repeat := regexp.MustCompile(`repeat it: go test (\S+) -run '(\S+)' (-simtest\.seed=\d+)`)
	try := func(args ...string) []byte {
		t.Helper()
		cmd := exec.Command("go", append([]string{"test"}, args...)...)
		cmd.Dir = root
		out, err := cmd.CombinedOutput()
		if err == nil || !failure.Match(out) {
			t.Fatalf("go %q: %v, want a failure that matches %v; it printed\n%s", cmd.Args[1:], err, failure, out)
		}
		return out
	}
	out := try("./examples/faults/ask", mistake)
	again := repeat.FindSubmatch(out)
	if again == nil {
		t.Fatalf("no line matches %v in\n%s", repeat, out)
	}
	second := try(string(again[1]), "-run", string(again[2]), string(again[3]), mistake)
	if a, b := failure.Find(out), failure.Find(second); string(a) != string(b) {
		t.Errorf("%s failed with %q, want %q as before", again[0], b, a)
	}
}
