package rxe

import (
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/goroce/goroce/tests/require"
	"github.com/goroce/goroce/tests/rxe/lab"
)

// The program of what calls of libibverbs accept and refuse, and what it prints. tests/dropin compares the library with
// it, too.
const (
	callsProgram = "../dropin/testdata/verbs_calls.c"
	callsGolden  = "../dropin/testdata/verbs_calls.txt"
)

var updateCalls = flag.Bool("verbs.calls.update", false, "write what Linux 6.12 does as the golden file")

// TestVerbsCalls: rdma_rxe accepts and refuses what tests/dropin compares the library with. Linux 6.1 lacks some of it.
func TestVerbsCalls(t *testing.T) {
	lab.Require(t, lab.Linux612)
	cc := require.Command(t, "cc")
	if _, err := os.Stat("/usr/include/infiniband/verbs.h"); err != nil {
		require.Missing(t, "package libibverbs-dev is not installed: %v", err)
	}
	program := filepath.Join(t.TempDir(), "verbs_calls")
	if out, err := exec.Command(cc, "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-o", program, callsProgram,
		"-libverbs").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*rowTimeout)
	defer cancel()
	vm := lab.Shared(t, lab.Linux612).VMs[0]
	if err := vm.CopyIn(ctx, program, "/bin/verbs_calls"); err != nil {
		t.Fatal(err)
	}
	result, err := vm.Run(ctx, "/bin/verbs_calls")
	if err != nil || result.ExitCode != 0 {
		t.Fatalf("%v, exit code %d\n%s%s", err, result.ExitCode, result.Stdout, result.Stderr)
	}
	if *updateCalls {
		if err := os.WriteFile(callsGolden, []byte(result.Stdout), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(callsGolden)
	if err != nil {
		t.Fatal(err)
	}
	if result.Stdout != string(want) {
		t.Errorf("the kernel prints\n%s, and %s has\n%s", result.Stdout, callsGolden, want)
	}
}
