package rxe

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/goroce/goroce/tests/require"
	"github.com/goroce/goroce/tests/rxe/lab"
)

// golden is a program of tests/dropin/testdata, and the file that has what it prints on a kernel: tests/dropin compares
// the library with it.
type golden struct {
	name   string   // of both, without .c and .txt
	header string   // that it includes, below /usr/include
	of     string   // package of the header
	libs   []string // linker flags
	update *bool    // write the file
}

func (g *golden) file(suffix string) string {
	return filepath.Join("../dropin/testdata", g.name+suffix)
}

// build compiles the program. A plain run skips the test, as the guests' kernels stay what they are.
func (g *golden) build(t *testing.T) (path string) {
	t.Helper()
	if !*g.update {
		require.FullRun(t, "only another kernel, or another program, prints anything else")
	}
	cc := require.Command(t, "cc")
	if _, err := os.Stat(filepath.Join("/usr/include", g.header)); err != nil {
		require.Missing(t, "package %s is not installed: %v", g.of, err)
	}
	path = filepath.Join(t.TempDir(), g.name)
	args := append([]string{"-std=gnu11", "-Wall", "-Wextra", "-Werror", "-o", path, g.file(".c")}, g.libs...)
	if out, err := exec.Command(cc, args...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// check runs the program in a guest, by a shell's command, and compares what it prints with the file.
func (g *golden) check(t *testing.T, kernel lab.Kernel, program, command string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*rowTimeout)
	defer cancel()
	vm := lab.Shared(t, kernel).VMs[0]
	if err := vm.CopyIn(ctx, program, "/bin/"+g.name); err != nil {
		t.Fatal(err)
	}
	result, err := vm.Run(ctx, "sh", append([]string{"-c", command}, args...)...)
	if err != nil || result.ExitCode != 0 {
		t.Fatalf("%v, exit code %d\n%s%s", err, result.ExitCode, result.Stdout, result.Stderr)
	}
	if *g.update {
		if err := os.WriteFile(g.file(".txt"), []byte(result.Stdout), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(g.file(".txt"))
	if err != nil {
		t.Fatal(err)
	}
	if result.Stdout != string(want) {
		t.Errorf("the kernel prints\n%s, and %s has\n%s", result.Stdout, g.file(".txt"), want)
	}
}
