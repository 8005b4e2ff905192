package rxe

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/goroce/goroce/tests/require"
	"github.com/goroce/goroce/tests/rxe/lab"
)

// rnicTimeout bounds the tests of package rnic in a guest, which take seconds.
const rnicTimeout = 3 * time.Minute

// TestRnic runs the tests of package rnic, which drives the kernel's rdma_rxe, in
// guests: on the guest's own rdma-core and, where the kernel has FLUSH, on that of
// Debian 13, which has it too.
func TestRnic(t *testing.T) {
	lab.Require(t, lab.Kernels()...)
	binary := buildRnicTest(t)
	lab.ForEachKernel(t, func(t *testing.T, kernel lab.Kernel) {
		lab.Row(t, "debian12", func(t testing.TB) { runRnic(t, kernel, binary, lab.Userland{}) })
		if kernel != lab.Linux612 {
			return
		}
		debian13 := lab.Debian13(t)
		lab.Row(t, "debian13", func(t testing.TB) {
			if report := runRnic(t, kernel, binary, debian13); !strings.Contains(report, "--- PASS: TestFlush ") {
				t.Error("FLUSH was not tested")
			}
		})
	})
}

// buildRnicTest compiles the tests of package rnic.
func buildRnicTest(t *testing.T) string {
	t.Helper()
	require.Command(t, "gcc")
	if _, err := os.Stat("/usr/include/infiniband/verbs.h"); err != nil {
		require.Missing(t, "package rnic needs libibverbs-dev (.ci/packages installs it): %v", err)
	}
	path := filepath.Join(t.TempDir(), "rnic.test")
	cmd := exec.Command("go", "test", "-c", "-tags", "rnic", "-o", path, "../../roce/rnic")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go test -c -tags rnic: %v\n%s", err, out)
	}
	return path
}

// skips finds what the guest's tests left out, and why.
var skips = regexp.MustCompile(`.*skipped: .*`)

// runRnic runs the tests in a guest and returns their report.
func runRnic(t testing.TB, kernel lab.Kernel, binary string, user lab.Userland) string {
	vm := lab.Shared(t, kernel).VMs[0]
	ctx, cancel := context.WithTimeout(t.Context(), rnicTimeout)
	defer cancel()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(vm.CopyIn(ctx, binary, "/bin/rnic.test"))
	must(user.CopyIn(ctx, vm))
	_, err := vm.Output(ctx, "dmesg", "-c")
	must(err)
	command := user.Command([]string{"GOROCE_RNIC=" + lab.RxeDev}, "/bin/rnic.test", "-test.v")
	result, err := vm.Run(ctx, command[0], command[1:]...)
	must(err)
	report := result.Stdout + result.Stderr
	if result.ExitCode != 0 || !strings.Contains(report, "--- PASS: TestReliableSend ") {
		t.Errorf("exit code %d\n%s", result.ExitCode, report)
	}
	for _, skip := range skips.FindAllString(report, -1) {
		t.Log(strings.TrimSpace(skip))
	}
	log, err := vm.Output(ctx, "dmesg")
	must(err)
	if strings.Contains(log, "WARNING: ") || strings.Contains(log, "BUG: ") {
		t.Errorf("the kernel complains:\n%s", log)
	}
	return report
}
