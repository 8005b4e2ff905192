package launch

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/goroce/goroce/tests/require"
)

// TestNeeds: a library that a program is linked with is missed where the dynamic linker does not find it, and nowhere
// else.
func TestNeeds(t *testing.T) {
	if _, err := exec.LookPath("cc"); err != nil {
		require.Missing(t, "needs a C compiler")
	}
	const library = "libneeded.so.1"
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	compile := func(args ...string) {
		if out, err := exec.Command("cc", args...).CombinedOutput(); err != nil {
			t.Fatalf("cc %q: %v\n%s", args, err, out)
		}
	}
	needed, program, other := filepath.Join(dir, library), filepath.Join(dir, "program"), filepath.Join(dir, "other")
	code := write("needed.c", "int needed(void) { return 0; }\n")
	compile("-shared", "-fPIC", "-Wl,-soname,"+library, "-o", needed, code)
	compile("-o", program, write("program.c", "int needed(void); int main(void) { return needed(); }\n"), needed)
	compile("-o", other, write("other.c", "int main(void) { return 0; }\n"))

	for _, c := range []struct {
		name, program string
		environ       []string
		missed        bool
	}{
		{"linked, not there", program, nil, true},
		{"linked, in LD_LIBRARY_PATH", program, []string{"LD_LIBRARY_PATH=" + dir}, false},
		{"not linked", other, nil, false},
		{"a script", write("script", "#!/bin/sh\n"), nil, false},
		{"no such file", filepath.Join(dir, "absent"), nil, false},
	} {
		var missing *MissingLibraryError
		err := needs(c.program, library, c.environ)
		if errors.As(err, &missing) != c.missed || (err != nil) != c.missed {
			t.Errorf("%s: %v, want one: %v", c.name, err, c.missed)
		}
	}
}
