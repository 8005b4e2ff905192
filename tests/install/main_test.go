package install

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/goroce/goroce/tests/require"
)

// version is what is released here.
const version = "0.9.1"

// work is a folder for all tests, and blocks the commands of the document.
var (
	work   string
	blocks map[string]string
)

func TestMain(m *testing.M) {
	var err error
	if blocks, err = document(); err == nil {
		work, err = os.MkdirTemp("", "goroce-install")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(work)
	os.Exit(code)
}

// head is the last commit when the tests began.
var head = sync.OnceValue(func() string {
	out, err := exec.Command("git", "rev-parse", "HEAD").Output()
	if err != nil {
		return "HEAD" // git says what is wrong when the release is made
	}
	return strings.TrimSpace(string(out))
})

// release makes a release from the repository in a folder by the document's command, and returns where it is.
func release(repository, name string) (string, error) {
	out := filepath.Join(work, name)
	command := strings.Replace(strings.TrimSpace(blocks["making-a-release-1"]), "/tmp/release", out, 1)
	cmd := exec.Command("sh", "-c", command+" -revision "+head())
	cmd.Dir = repository
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, text)
	}
	return out, nil
}

var first = sync.OnceValues(func() (string, error) { return release("../..", "first") })

// released returns the folder of a release of the last commit.
func released(t *testing.T) string {
	t.Helper()
	require.FullRun(t, "it makes a release")
	for _, tool := range []string{"git", "x86_64-linux-gnu-gcc", "aarch64-linux-gnu-gcc"} {
		require.Command(t, tool)
	}
	dir, err := first()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// output runs a program that must succeed, and returns what it prints.
func output(t *testing.T, program string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), require.Command(t, program), args...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	return string(out)
}
