//go:build linux

package dropin

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
)

// TestBesideKernel: on a machine with a device of the kernel, rxe0, programs over the library see the daemon's device,
// and nothing of the kernel's. If a program gets one of the two libraries only, it has no device, or the daemon's, but
// never both.
func TestBesideKernel(t *testing.T) {
	require.Root(t)
	require.Command(t, "unshare")
	besides(t)
	for _, program := range []string{"ibv_devices", "rping"} {
		installed(t, program)
	}
	script, err := filepath.Abs("testdata/beside_kernel.sh")
	if err != nil {
		t.Fatal(err)
	}
	h := &host{addr: linktest.Loopback(), dir: userDir(t), libs: libs(t), root: true}
	h.startDaemon(t, "--addr", h.addr.String())
	machine := []string{"unshare", "--mount", "sh", script}
	bare := func(args ...string) *process { return h.start(t, append(slices.Clone(machine), args...)...) }
	over := func(args ...string) *process {
		return bare(append([]string{goroced, "run", "--socket", h.socket, "--"}, args...)...)
	}

	if got := bare("ls", "/sys/class/infiniband").ok(t); got != "rxe0\n" {
		t.Fatalf("without the library there is %q, want %q", got, "rxe0\n")
	}
	if got := over("ls", "/sys/class/infiniband").ok(t); got != "goroce_lo\n" {
		t.Errorf("over the library there is %q, want %q", got, "goroce_lo\n")
	}
	for _, c := range []struct {
		what string
		args []string
		want bool // the daemon's device
	}{
		{"both libraries", []string{"ibv_devices"}, true},
		{"libibverbs only", []string{"env", "LD_PRELOAD=", "ibv_devices"}, true},
		{"the preload only", []string{"env", "LD_LIBRARY_PATH=", "ibv_devices"}, false},
	} {
		out := over(c.args...).ok(t)
		if strings.Contains(out, "rxe0") || strings.Contains(out, "goroce_lo") != c.want {
			t.Errorf("%s: want goroce_lo %v, and no rxe0: ibv_devices says\n%s", c.what, c.want, out)
		}
	}
	out, err := over("env", "LD_LIBRARY_PATH=", "rping", "-s", "-a", h.addr.String()).wait(t)
	if err == nil || !strings.Contains(out, "No RDMA devices were detected") {
		t.Errorf("rping with the preload only: %v, want no devices\n%s", err, out)
	}
	server := over("rping", "-s", "-a", h.addr.String(), "-C", "5")
	h.awaitListener(t, server)
	over("rping", "-c", "-a", h.addr.String(), "-C", "5", "-V").ok(t)
	server.ok(t)
}
