package main

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goroce/goroce/tests/require"
)

// TestCourse: a chapter's commands run as they are printed, and its answer is checked.
func TestCourse(t *testing.T) {
	require.Command(t, "sed")
	list := success(t, "explain", "--course")
	for n := 1; n <= 12; n++ {
		if !strings.Contains(list, fmt.Sprintf("\n  %2d  ", n)) {
			t.Errorf("chapter %d is not listed:\n%s", n, list)
		}
		text := success(t, "explain", "--course", fmt.Sprint(n))
		_, commands, found := strings.Cut(text, "\n  goroced explain --source ")
		commands, _, ended := strings.Cut(commands, "\n\n")
		if !found || !ended {
			t.Fatalf("chapter %d has no commands:\n%s", n, text)
		}
		sh := exec.Command("sh", "-c", "goroced explain --source "+commands)
		sh.Dir, sh.Env = t.TempDir(), append(sh.Environ(), "PATH="+filepath.Dir(program)+":/usr/bin:/bin")
		out, err := sh.CombinedOutput()
		failed := new(exec.ExitError)
		if !errors.As(err, &failed) || !strings.Contains(string(out), "goroced: my.txt:") {
			t.Errorf("chapter %d: %v, want a wrong claim:\n%s\n%s", n, err, commands, out)
		}
	}
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"explain --course 6 --answer 67", 0, "Right: "},
		{"explain --course 6 --answer 66", exitFailure, "that is not it"},
		{"explain --course six", exitUsage, "a number from 1 to 12"},
		{"explain --answer 67", exitUsage, "--course"},
		{"explain --play", exitUsage, "--course"},
		{"explain --course --glossary", exitUsage, "--glossary"},
		{"explain --course 13", exitUsage, "1 to 12"},
		{"explain --glossary rnr nak", 0, "receiver not ready"},
		{"explain --glossary nosuch", exitFailure, `no word "nosuch"`},
		{"explain --source lost-ack", 0, "# A lost ACK"},
	} {
		p, code := goroced(t, strings.Fields(c.args)...)
		if code != c.code || !strings.Contains(p.out.String()+p.err.String(), c.want) {
			t.Errorf("%s: exit code %d, want %d and %q:\n%s%s", c.args, code, c.code, c.want, p.out.String(),
				p.err.String())
		}
	}
}
