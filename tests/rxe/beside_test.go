package rxe

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/goroce/goroce/roce/daemon/dropin"
	"github.com/goroce/goroce/tests/require"
	"github.com/goroce/goroce/tests/rxe/lab"
)

// besideTimeout bounds TestBeside in a guest.
const besideTimeout = 3 * time.Minute

// TestBeside: where the kernel has ib_core, ib_uverbs, rdma_ucm and a device of its own, programs over the library see
// the daemon's device only, and others the kernel's only. Both work at the same time. tests/dropin's TestBesideKernel
// has the same on machines without these modules.
func TestBeside(t *testing.T) {
	require.FullRun(t, "goroced starts a dozen times in an emulated guest")
	programs := buildCM(t)
	libs := buildLibraries(t)
	lab.ForEachKernel(t, func(t *testing.T, kernel lab.Kernel) {
		lab.Row(t, "devices", func(t testing.TB) {
			ctx, cancel := context.WithTimeout(t.Context(), besideTimeout)
			defer cancel()
			vm := lab.Shared(t, kernel).VMs[0]
			if _, err := vm.Output(ctx, "mkdir", "-p", "/tmp/beside"); err != nil {
				t.Fatal(err)
			}
			for to, from := range map[string]string{
				"goroced": programs["goroced"], "beside.sh": "testdata/beside.sh",
				dropin.Verbs: filepath.Join(libs, dropin.Verbs), dropin.Sys: filepath.Join(libs, dropin.Sys),
			} {
				if err := vm.CopyIn(ctx, from, "/tmp/beside/"+to); err != nil {
					t.Fatal(err)
				}
			}
			got, err := vm.Output(ctx, "env", dropin.Variable+"=/tmp/beside", "/tmp/beside/beside.sh", vm.IPv4.String())
			if err != nil {
				t.Fatal(err)
			}
			if want := besideReport; got != want {
				t.Errorf("it says\n%s\nwant\n%s", got, want)
			}
		})
	})
}

const besideReport = `kernel: rxe0
both libraries: goroce_lo
libibverbs only: goroce_lo
the preload only:
rping over the library: ok
rping over rdma_rxe: ok
rping with libibverbs only: rdma_bind_addr: No such device
rping with the preload only: No RDMA devices were detected
kernel: rxe0
`
