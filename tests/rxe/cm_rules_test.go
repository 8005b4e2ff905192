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

// The program of the rules of rdma_cm, and what it prints. tests/dropin compares the library with it, too.
const (
	rulesProgram = "../dropin/testdata/cm_rules.c"
	rulesGolden  = "../dropin/testdata/cm_rules.txt"
)

var updateRules = flag.Bool("cm.rules.update", false, "write what the kernel does as the golden file")

// TestCMRules: the kernel's rdma_ucm over rdma_rxe obeys the rules that tests/dropin compares the library with.
func TestCMRules(t *testing.T) {
	lab.Require(t, lab.Kernels()...)
	cc := require.Command(t, "cc")
	if _, err := os.Stat("/usr/include/rdma/rdma_cma.h"); err != nil {
		require.Missing(t, "package librdmacm-dev is not installed: %v", err)
	}
	program := filepath.Join(t.TempDir(), "cm_rules")
	if out, err := exec.Command(cc, "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-o", program, rulesProgram,
		"-lrdmacm", "-libverbs").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	lab.ForEachKernel(t, func(t *testing.T, kernel lab.Kernel) { kernelRules(t, kernel, program) })
}

func kernelRules(t *testing.T, kernel lab.Kernel, program string) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*rowTimeout)
	defer cancel()
	vm := lab.Shared(t, kernel).VMs[0]
	if err := vm.CopyIn(ctx, program, "/bin/cm_rules"); err != nil {
		t.Fatal(err)
	}
	// The program gives up root, so it needs the rights that udev gives to everybody.
	result, err := vm.Run(ctx, "sh", "-c", "chmod 666 /dev/infiniband/* && exec /bin/cm_rules $0 $1",
		vm.IPv4.String(), vm.IPv6.String())
	if err != nil || result.ExitCode != 0 {
		t.Fatalf("%v, exit code %d\n%s%s", err, result.ExitCode, result.Stdout, result.Stderr)
	}
	if *updateRules {
		if err := os.WriteFile(rulesGolden, []byte(result.Stdout), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(rulesGolden)
	if err != nil {
		t.Fatal(err)
	}
	if result.Stdout != string(want) {
		t.Errorf("the kernel prints\n%s, and %s has\n%s", result.Stdout, rulesGolden, want)
	}
}
