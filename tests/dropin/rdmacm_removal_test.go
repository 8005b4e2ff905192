//go:build linux

package dropin

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goroce/goroce/tests/require"
)

// TestDeviceRemoval: when the daemon ends, a program hears of it by an event for each ID that is bound to a device,
// then by errors. The wildcard listener, the ID that is not bound, and the request that is not accepted have no event.
// A daemon that is started then serves it, and knows nothing of the channels of the former one.
func TestDeviceRemoval(t *testing.T) {
	besides(t)
	if _, err := os.Stat("/usr/include/rdma/rdma_cma.h"); err != nil {
		require.Missing(t, "needs rdma/rdma_cma.h of package librdmacm-dev: %v", err)
	}
	program := compile(t, "testdata/cm_removal.c", "-lrdmacm", "-libverbs")
	h := newHost(t, nil)
	p := h.run(t, "env", "GOROCE_QUIET=1", program, h.addr.String())
	p.reports(t, "ready\n")
	h.killDaemon(t)
	p.reports(t, "destroyed\n")
	h.startDaemon(t, "--addr", h.addr.String())
	const want = "ready\npassive: accepted listener migrated\nactive: connected connecting\ndestroyed\n" +
		"another daemon\n"
	if got := p.ok(t); got != want {
		t.Errorf("it says\n%s, want\n%s", got, want)
	}
}

// TestDeviceRemovalRping: a program that has never met our daemon says that the device is gone, and ends.
func TestDeviceRemovalRping(t *testing.T) {
	besides(t)
	installed(t, "rping")
	h := newHost(t, nil)
	p := h.run(t, "rping", "-s", "-P", "-a", h.addr.String())
	h.awaitListener(t, p)
	// The daemon shows a listener before the program has its answer. The program has it once a client is served.
	h.run(t, "rping", "-c", "-C", "1", "-a", h.addr.String()).ok(t)
	h.killDaemon(t)
	if out, err := p.wait(t); err == nil || !strings.Contains(strings.ToLower(out), "device removal") {
		t.Errorf("%v, want the device's removal; it says\n%s", err, out)
	}
}

// TestDeviceRemovalRsockets: streams of rsockets end with the daemon. A program that waits for a connection goes on to
// do so, as librdmacm tells it nothing, but no thread of librdmacm spins.
func TestDeviceRemovalRsockets(t *testing.T) {
	besides(t)
	installed(t, "nc.traditional")
	h := newHost(t, nil)
	idle := h.runRsockets(t, "nc.traditional", "-l", "-p", "7778")
	h.awaitListener(t, idle)
	server := h.runRsockets(t, "nc.traditional", "-l", "-p", "7777")
	h.awaitListener(t, server)
	client := h.runRsockets(t, "sh", "-c", fmt.Sprintf("echo hello | exec nc.traditional %v 7777", h.addr))
	server.reports(t, "hello\n")
	h.killDaemon(t)
	_, _ = server.wait(t)
	_, _ = client.wait(t)
	idle.sleeps(t)
}

// sleeps waits until all threads of a program wait for something.
func (p *process) sleeps(t testing.TB) {
	t.Helper()
	require.Until(t, fmt.Sprintf("all threads of %q sleep", p.cmd.Args), func() bool {
		p.mustRun(t)
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.cmd.Process.Pid))
		for _, stat := range threads {
			if text, err := os.ReadFile(stat); err == nil && !strings.Contains(string(text), ") S ") {
				return false
			}
		}
		return true
	})
}
