package docs

import (
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goroce/goroce/tests/gobuild"
)

// TestExamplesUsage: an example that is run without arguments says which it takes.
func TestExamplesUsage(t *testing.T) {
	mains, err := filepath.Glob("../../examples/*/main.go")
	if err != nil || len(mains) < 5 {
		t.Fatalf("got examples %v, %v; want at least 5", mains, err)
	}
	for _, main := range mains {
		name := filepath.Base(filepath.Dir(main))
		program, err := filepath.Abs(filepath.Join(t.TempDir(), name))
		if err == nil {
			err = gobuild.Program(program, filepath.Dir(main))
		}
		if err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(t.Context(), program).CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.HasPrefix(string(out), "usage: "+name+" ") {
			t.Errorf("%s: got %v and %q, want exit code 2 and how it is used", name, err, out)
		}
	}
}
