package rxe

import (
	"flag"
	"testing"

	"github.com/goroce/goroce/tests/rxe/lab"
)

var verbsCalls = golden{name: "verbs_calls", header: "infiniband/verbs.h", of: "libibverbs-dev",
	libs:   []string{"-libverbs"},
	update: flag.Bool("verbs.calls.update", false, "write what Linux 6.12 does as the golden file")}

// TestVerbsCalls: rdma_rxe accepts and refuses what tests/dropin compares the library with. Linux 6.1 lacks some of it.
func TestVerbsCalls(t *testing.T) {
	lab.Require(t, lab.Linux612)
	verbsCalls.check(t, lab.Linux612, verbsCalls.build(t), "exec /bin/verbs_calls")
}
