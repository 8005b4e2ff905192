//go:build linux

package dropin

import (
	"os"
	"strings"
	"testing"

	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
)

// ucxConnect runs a pair of UCX programs that connect by rdma_cm.
func ucxConnect(t *testing.T, server, client *host) {
	if _, err := os.Stat("/usr/include/ucp/api/ucp.h"); err != nil {
		require.Missing(t, "needs ucp/api/ucp.h of package libucx-dev: %v", err)
	}
	program := compile(t, "testdata/ucx_connect.c", "-lucp", "-lucs")
	args := func(role string) []string {
		return []string{"env", "UCX_TLS=rc_v", "UCX_SOCKADDR_TLS_PRIORITY=rdmacm", program, role, server.addr.String()}
	}
	s := server.run(t, args("server")...)
	server.awaitListener(t, s)
	if out := client.run(t, args("client")...).ok(t); !strings.Contains(out, "1048576 bytes came back\n") {
		t.Errorf("the client, want %q, says\n%s", "1048576 bytes came back\n", out)
	}
	s.ok(t)
	for _, h := range []*host{server, client} {
		require.Until(t, "the daemon has nothing of the programs", func() bool { return h.idle(t) })
	}
}

// TestConnectionsUCX: programs of UCX connect by address over rdma_cm, over one daemon and over two.
func TestConnectionsUCX(t *testing.T) {
	t.Run("one daemon", func(t *testing.T) {
		besides(t)
		h := newHost(t, nil)
		ucxConnect(t, h, h)
	})
	t.Run("two hosts", func(t *testing.T) {
		repeats(t, true)
		require.Root(t)
		nsA, nsB := linktest.NewVeth(t, 1500)
		ucxConnect(t, blueHost(t, nsA), blueHost(t, nsB))
	})
}
