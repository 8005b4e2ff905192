//go:build linux

package dropin

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
)

// twoDevices returns a host whose daemon has devices one and two, with an address each.
func twoDevices(t *testing.T) (h *host, first, second string) {
	t.Helper()
	h = &host{dir: userDir(t), libs: libs(t)}
	first, second = linktest.Loopback().String(), linktest.Loopback().String()
	config := filepath.Join(h.dir, "goroced.toml")
	text := fmt.Sprintf("[[device]]\nname = 'one'\naddresses = ['%v']\n[[device]]\nname = 'two'\naddresses = ['%v']\n",
		first, second)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	h.startDaemon(t, "--config", config)
	return h, first, second
}

// compileCM compiles a program of testdata that uses librdmacm.
func compileCM(t *testing.T, source string) string {
	t.Helper()
	if _, err := os.Stat("/usr/include/rdma/rdma_cma.h"); err != nil {
		require.Missing(t, "needs rdma/rdma_cma.h of package librdmacm-dev: %v", err)
	}
	return compile(t, source, "-lrdmacm", "-libverbs")
}

// deviceDeviations are the lines of testdata/cm_devices.txt where the library differs.
var deviceDeviations = map[string]deviation{
	"resolve second from first: ADDR_ERROR status -110, device none, local other, port 0": {
		"resolve second from first: ADDR_RESOLVED status 0, device first, local first, port 1",
		"the kernel asks the network of the first for an address of its own; the daemon's devices reach each other"},
}

// TestConnectionsDevices: if a daemon has two devices, IDs are on the one that their address or the destination says,
// and those of requests to a listener without an address where the request came in, as over two devices of rdma_rxe.
func TestConnectionsDevices(t *testing.T) {
	besides(t)
	program := compileCM(t, "testdata/cm_devices.c")
	h, first, second := twoDevices(t)
	out, err := h.run(t, program, "one", first, "two", second).wait(t)
	compareWithKernel(t, "testdata/cm_devices.txt", out, err, deviceDeviations, wildcardInUse)
}

// TestConnectionsAcrossDevices: an ID on one device connects to a listener on the other one.
func TestConnectionsAcrossDevices(t *testing.T) {
	besides(t)
	program := compileCM(t, "testdata/cm_devices.c")
	h, first, second := twoDevices(t)
	out := h.run(t, program, "one", first, "two", second, "across").ok(t)
	for _, want := range []string{
		`connect to second from first: active on first, passive on second, local second, sent "hi!", ` +
			"on another channel DISCONNECTED status 0\n",
		`connect to first from second: active on second, passive on first, local first, sent "hi!", ` +
			"on another channel DISCONNECTED status 0\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("got\n%swant the line\n%s", out, want)
		}
	}
}
