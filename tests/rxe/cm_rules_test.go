package rxe

import (
	"flag"
	"testing"

	"github.com/goroce/goroce/tests/rxe/lab"
)

var cmRules = golden{name: "cm_rules", header: "rdma/rdma_cma.h", of: "librdmacm-dev",
	libs:   []string{"-lrdmacm", "-libverbs"},
	update: flag.Bool("cm.rules.update", false, "write what the kernel does as the golden file")}

// TestCMRules: the kernel's rdma_ucm over rdma_rxe obeys the rules that tests/dropin compares the library with.
func TestCMRules(t *testing.T) {
	lab.Require(t, lab.Kernels()...)
	program := cmRules.build(t)
	lab.ForEachKernel(t, func(t *testing.T, kernel lab.Kernel) {
		vm := lab.Shared(t, kernel).VMs[0]
		// The program gives up root, so it needs the rights that udev gives to everybody.
		cmRules.check(t, kernel, program, "chmod 666 /dev/infiniband/* && exec /bin/cm_rules $0 $1", vm.IPv4.String(),
			vm.IPv6.String())
	})
}
