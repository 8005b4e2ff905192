//go:build linux

package dropin

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
)

// TestConnectionsDevices: if a daemon has two devices, IDs bind to the first one only. The other's address is refused,
// as the kernel refuses one of an interface without RDMA.
func TestConnectionsDevices(t *testing.T) {
	besides(t)
	if _, err := os.Stat("/usr/include/rdma/rdma_cma.h"); err != nil {
		require.Missing(t, "needs rdma/rdma_cma.h of package librdmacm-dev: %v", err)
	}
	program := compile(t, "testdata/cm_devices.c", "-lrdmacm", "-libverbs")
	h := &host{dir: userDir(t), libs: libs(t)}
	first, second := linktest.Loopback(), linktest.Loopback()
	config := filepath.Join(h.dir, "goroced.toml")
	text := fmt.Sprintf("[[device]]\nname = 'one'\naddresses = ['%v']\n[[device]]\nname = 'two'\naddresses = ['%v']\n",
		first, second)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	h.startDaemon(t, "--config", config)
	got := h.run(t, program, first.String(), second.String(), "0.0.0.0", "192.0.2.1").ok(t)
	want := fmt.Sprintf("%v: ok, device one\n%v: ENODEV, device none\n0.0.0.0: ok, device none\n"+
		"192.0.2.1: EADDRNOTAVAIL, device none\n", first, second)
	if got != want {
		t.Errorf("it says\n%s, want\n%s", got, want)
	}
}
