//go:build linux

package dropin

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/goroce/goroce/tests/require"
)

var cmSeed = flag.Uint64("rdmacm.seed", 0, "the only seed of TestCMHostile/fuzz")

// cmParts are the parts of testdata/cm_hostile.c.
var cmParts = []string{"lengths", "half_mapped", "unknown", "scope", "membership", "families", "unwritable",
	"no_memory", "many", "forked", "passed", "passed_among", "alike"}

// TestCMHostile: wrong commands to rdma_cm have the kernel's errno, a connection beside them goes on, and the daemon
// keeps nothing of them.
func TestCMHostile(t *testing.T) {
	besides(t)
	installed(t, "rping")
	program := compile(t, "testdata/cm_hostile.c")
	h := newHost(t, nil)
	server, client := h.pings(t)
	descriptors, memory := h.daemon.descriptors(t), h.daemon.resident(t)
	for _, part := range cmParts {
		t.Run(part, func(t *testing.T) {
			repeats(t, part == "many" || part == "unwritable")
			h.run(t, program, part, h.addr.String()).ok(t)
		})
	}
	t.Run("fuzz", func(t *testing.T) { h.fuzzCM(t, program) })
	server.mustRun(t)
	client.mustRun(t)
	require.Until(t, "the daemon has closed what the programs had", func() bool {
		return h.daemon.descriptors(t) <= descriptors
	})
	if now := h.daemon.resident(t); now > memory+128<<10 {
		t.Errorf("the daemon has %d kB, want at most %d kB", now, memory+128<<10)
	}
}

// pings starts a pair of programs, and returns once they are connected.
func (h *host) pings(t *testing.T) (server, client *process) {
	t.Helper()
	server = h.run(t, "stdbuf", "-oL", "rping", "-s", "-P", "-a", h.addr.String(), "-v")
	h.awaitListener(t, server)
	client = h.run(t, "rping", "-c", "-a", h.addr.String())
	require.Until(t, "pings arrive", func() bool {
		server.mustRun(t)
		return strings.Contains(server.out.String(), "rdma-ping-")
	})
	return server, client
}

// fuzzCM writes commands at random.
func (h *host) fuzzCM(t *testing.T, program string) {
	seeds := []uint64{*cmSeed}
	if seeds[0] == 0 {
		seeds = nil
		for i := range rounds(1, 15, 100) {
			seeds = append(seeds, uint64(i+1))
		}
	}
	for _, seed := range seeds {
		p := h.run(t, program, "fuzz", h.addr.String(), strconv.FormatUint(seed, 10), "5000")
		out, err := p.wait(t)
		if err != nil || strings.HasPrefix(out, "0 of") {
			t.Errorf("%v, want more than 0\n%s\ngo test ./tests/dropin -run TestCMHostile/fuzz -rdmacm.seed=%d", err,
				out, seed)
		}
	}
}

// descriptors returns how many descriptors a process has.
func (p *process) descriptors(t testing.TB) int {
	t.Helper()
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// resident returns how much memory a process has, in kB.
func (p *process) resident(t testing.TB) int {
	t.Helper()
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.cmd.Process.Pid), "status"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	var kB int
	if _, err := fmt.Sscan(rest, &kB); err != nil {
		t.Fatal(err)
	}
	return kB
}
