//go:build linux

package dropin

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goroce/goroce/tests/require"
)

// kill is a row of TestConnectionKilled: both ends go as far as a state of testdata/cm_states.c.
type kill struct {
	server, client string // states
	dies           string // which end is killed
	event          string // that the other end gets; "" for none
}

const disconnected, rejected = "RDMA_CM_EVENT_DISCONNECTED", "RDMA_CM_EVENT_REJECTED"

var kills = []kill{
	{server: "bound", dies: "server"},
	{server: "listening", dies: "server"},
	{client: "address", dies: "client"},
	{client: "route", dies: "client"},
	{server: "requested", client: "connecting", dies: "client"}, // rdma_ucm tells nothing of IDs before Accept
	{server: "requested", client: "connecting", dies: "server", event: rejected},
	{server: "accepted", client: "established", dies: "client", event: disconnected},
	{server: "accepted", client: "established", dies: "server", event: disconnected},
	{server: "established", client: "established", dies: "client", event: disconnected},
	{server: "established", client: "established", dies: "server", event: disconnected},
	{server: "established", client: "disconnecting", dies: "client", event: disconnected},
	{server: "disconnecting", client: "established", dies: "server", event: disconnected},
	{server: "established", client: "timewait", dies: "client", event: disconnected},
}

// atOnce is when the other end should hear of it. The test's own limit is patience: the machine may be busy.
const atOnce = time.Second

// TestConnectionKilled: when a program is killed, in whatever state, its peer hears of it at once, and the daemon keeps
// nothing of it.
func TestConnectionKilled(t *testing.T) {
	besides(t)
	if _, err := os.Stat("/usr/include/rdma/rdma_cma.h"); err != nil {
		require.Missing(t, "needs rdma/rdma_cma.h of package librdmacm-dev: %v", err)
	}
	program := compile(t, "testdata/cm_states.c", "-lrdmacm", "-libverbs")
	h := newHost(t, nil)
	for _, k := range kills {
		t.Run(strings.Trim(k.server+"-"+k.client, "-")+"/"+k.dies, func(t *testing.T) { k.run(t, h, program) })
	}
}

func (k *kill) run(t *testing.T, h *host, program string) {
	before := h.daemon.descriptors(t)
	ends := map[string]*process{}
	start := func(role, state, until string) {
		p := h.run(t, program, role, h.addr.String(), state)
		ends[role] = p
		p.reports(t, "state "+until+"\n")
	}
	if k.server != "" {
		until := k.server
		if k.client != "" {
			until = "listening"
		}
		start("server", k.server, until)
	}
	if k.client != "" {
		start("client", k.client, k.client)
	}
	for role, state := range map[string]string{"server": k.server, "client": k.client} {
		if state != "" {
			ends[role].reports(t, "state "+state+"\n")
		}
	}
	victim := ends[k.dies]
	delete(ends, k.dies)
	_, _ = victim.signal(t, syscall.SIGKILL)
	killed := time.Now()
	for _, other := range ends {
		if k.event != "" {
			other.reports(t, "event "+k.event+"\n")
		}
		if late := time.Since(killed); late > atOnce {
			t.Logf("the other end heard of it after %v", late)
		}
		other.mustRun(t)
		_, _ = other.signal(t, syscall.SIGKILL)
	}
	require.Until(t, "the daemon has nothing of the programs", func() bool {
		return h.daemon.descriptors(t) <= before && h.idle(t)
	})
}

// reports waits until a running program has written something.
func (p *process) reports(t testing.TB, what string) {
	t.Helper()
	require.Until(t, what, func() bool {
		if strings.Contains(p.out.String(), what) {
			return true
		}
		p.mustRun(t)
		return false
	})
}
