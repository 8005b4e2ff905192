package rxe

import (
	"flag"
	"testing"

	"github.com/goroce/goroce/tests/rxe/lab"
)

var cmDevices = golden{name: "cm_devices", header: "rdma/rdma_cma.h", of: "librdmacm-dev",
	libs:   []string{"-lrdmacm", "-libverbs"},
	update: flag.Bool("cm.devices.update", false, "write what the kernel does as the golden file")}

// secondDevice runs a program with a second device of rdma_rxe, on an interface of its own.
const secondDevice = `ip link add second type dummy && ip addr add 10.78.0.1/24 dev second && ip link set second up &&
rdma link add rxe1 type rxe netdev second || exit 1
trap 'rdma link delete rxe1; ip link delete second' EXIT
/bin/cm_devices rxe0 $0 rxe1 10.78.0.1`

// TestCMDevices: over two devices of rdma_rxe the kernel's rdma_ucm has IDs where tests/dropin wants the library's.
func TestCMDevices(t *testing.T) {
	lab.Require(t, lab.Kernels()...)
	program := cmDevices.build(t)
	lab.ForEachKernel(t, func(t *testing.T, kernel lab.Kernel) {
		vm := lab.Shared(t, kernel).VMs[0]
		cmDevices.check(t, kernel, program, secondDevice, vm.IPv4.String())
	})
}
