package rxe

import (
	"context"
	"strings"
	"testing"

	"github.com/goroce/goroce/tests/rxe/lab"
)

// TestPortTaken starts goroced where the kernel's rdma_rxe owns UDP port 4791: the error must
// say so, and what to do.
func TestPortTaken(t *testing.T) {
	lab.Require(t, lab.Kernels()...)
	goroced := build(t)
	lab.ForEachKernel(t, func(t *testing.T, kernel lab.Kernel) {
		lab.Row(t, "serve", func(t testing.TB) { portTaken(t, lab.Shared(t, kernel).VMs[0], goroced) })
	})
}

func portTaken(t testing.TB, vm *lab.VM, goroced string) {
	ctx, cancel := context.WithTimeout(t.Context(), rowTimeout)
	defer cancel()
	if err := vm.CopyIn(ctx, goroced, "/bin/goroced"); err != nil {
		t.Fatal(err)
	}
	result, err := vm.Run(ctx, "/bin/goroced", "pingpong", "--addr", vm.IPv4.String())
	if err != nil {
		t.Fatal(err)
	}
	if result.ExitCode == 0 {
		t.Error("goroced shared the port with rdma_rxe")
	}
	for _, word := range []string{"4791", "rdma_rxe", "namespace"} {
		if !strings.Contains(result.Stderr, word) {
			t.Errorf("the error does not name %q, want it to: %s", word, result.Stderr)
		}
	}
}
