package require

import (
	"os"
	"path/filepath"
	"testing"
)

// TestRecorded: what is skipped is in the file that GOROCE_SKIPPED names, as .ci/run wants it: the package, and the
// test that `go test -run` takes.
func TestRecorded(t *testing.T) {
	t.Setenv("GOROCE_REQUIRE", "")
	file := filepath.Join(t.TempDir(), "skipped")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOROCE_SKIPPED", file)
	for range 2 {
		t.Run("a row", func(t *testing.T) {
			t.Run("of a table", func(t *testing.T) { Missing(t, "needs %s", "nothing: this shows how it is recorded") })
		})
	}
	const line = "github.com/goroce/goroce/tests/require TestRecorded\n"
	if got, err := os.ReadFile(file); string(got) != line+line || err != nil {
		t.Errorf("%q, %v; want %q twice", got, err, line)
	}
}
