package install

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/goroce/goroce/tests/require"
)

// TestGoInstall: `go install MODULE@VERSION` makes a program that says its version, from a clone that stands for the
// public repository. What else it needs comes from this machine's module cache.
func TestGoInstall(t *testing.T) {
	require.FullRun(t, "it installs the program by go install")
	clone := filepath.Join(t.TempDir(), "public")
	output(t, "git", "clone", "--quiet", "../..", clone)
	output(t, "git", "-C", clone, "tag", "v"+version)
	cache := strings.TrimSpace(output(t, "go", "env", "GOMODCACHE"))
	const module = "github.com/goroce/goroce"
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", "install", module+"/cmd/goroced@v"+version)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOBIN="+dir, "GOMODCACHE="+filepath.Join(dir, "mod"), "GOPRIVATE="+module,
		"GOFLAGS=-modcacherw -trimpath", "GOPROXY=file://"+cache+"/cache/download", "GONOSUMDB=*", "GOWORK=off",
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url."+clone+".insteadOf", "GIT_CONFIG_VALUE_0=https://"+module)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	line := regexp.MustCompile(`^goroced v0\.9\.1, module h1:[^ ]{44}, go1\S+, linux/`)
	if out := output(t, filepath.Join(dir, "goroced"), "version"); !line.MatchString(out) {
		t.Error(out)
	}
}
