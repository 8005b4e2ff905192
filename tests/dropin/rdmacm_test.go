//go:build linux

package dropin

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	daemon "github.com/goroce/goroce/roce/daemon/server"
	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
)

// cmIDs returns what `goroced cm` shows of the host's daemon.
func (h *host) cmIDs(t testing.TB) (list []daemon.CMInfo) {
	t.Helper()
	h.view(t, "cm", &list)
	return list
}

// idle reports whether the host's daemon has neither IDs nor queue pairs nor memory of programs.
func (h *host) idle(t testing.TB) bool {
	t.Helper()
	for _, path := range []string{"cm", "qps", "mrs"} {
		var list []any
		if h.view(t, path, &list); len(list) > 0 {
			return false
		}
	}
	return true
}

// view asks the daemon's admin socket.
func (h *host) view(t testing.TB, path string, list any) {
	t.Helper()
	web := http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(h.dir, "a"))
		}}}
	answer, err := web.Get("http://goroced/v1/" + path)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if err := json.NewDecoder(answer.Body).Decode(list); err != nil {
		t.Fatal(err)
	}
}

// awaitListener waits until a program listens.
func (h *host) awaitListener(t testing.TB, p *process) {
	t.Helper()
	require.Until(t, "the server listens", func() bool {
		p.mustRun(t)
		return slices.ContainsFunc(h.cmIDs(t), func(id daemon.CMInfo) bool {
			return id.State == "LISTEN" && int(id.PID) == p.cmd.Process.Pid
		})
	})
}

// runRsockets runs a program whose sockets of TCP become rsockets.
func (h *host) runRsockets(t testing.TB, args ...string) *process {
	t.Helper()
	list, _ := filepath.Glob("/usr/lib/*/rsocket/librspreload.so.1")
	if len(list) == 0 {
		require.Missing(t, "librspreload.so.1 of package librdmacm1 is not installed")
	}
	return h.start(t, append([]string{"env", "LD_PRELOAD=" + list[0], goroced, "run", "--socket", h.socket, "--"},
		args...)...)
}

// TestUnequalMTU: a program whose host has jumbo frames connects to one of a host that has not, and vice versa.
func TestUnequalMTU(t *testing.T) {
	require.Root(t)
	installed(t, "rping")
	nsA, nsB := linktest.NewVeth(t, 9000)
	nsB.Command(t, "ip", "link", "set", nsB.IfName, "mtu", "1500")
	a, b := newHost(t, nsA), newHost(t, nsB)
	ping := func(server, client *host) func(*testing.T) {
		return func(t *testing.T) {
			args := []string{"-a", server.addr.String(), "-C", "3", "-S", "20000", "-v", "-V"}
			s := server.run(t, append([]string{"rping", "-s"}, args...)...)
			server.awaitListener(t, s)
			out := client.run(t, append([]string{"rping", "-c"}, args...)...).ok(t)
			if !strings.Contains(out, "ping data: rdma-ping-2") {
				t.Errorf("got\n%s\nwant three pings", out)
			}
			s.ok(t)
		}
	}
	t.Run("jumbo client", ping(b, a))
	t.Run("jumbo server", ping(a, b))
}

// TestManyClients: a server has several clients at a time.
func TestManyClients(t *testing.T) {
	besides(t)
	manyClients(t, newHost(t, nil), require.Rounds(5, 20))
}

// manyClients has one server and n clients at the same time. They connect one after the other: the server
// (rping.c of rdma-core 44) forgets a request if the next one comes before its thread has taken it.
func manyClients(t *testing.T, h *host, n int) {
	installed(t, "rping")
	server := h.run(t, "rping", "-s", "-P", "-a", h.addr.String())
	h.awaitListener(t, server)
	clients := make([]*process, n)
	for i := range clients {
		clients[i] = h.run(t, "stdbuf", "-oL", "rping", "-c", "-a", h.addr.String(), "-v", "-V")
		clients[i].reports(t, "ping data")
	}
	for _, c := range clients {
		c.mustRun(t)
		_, _ = c.signal(t, syscall.SIGTERM)
	}
	server.mustRun(t)
	_, _ = server.signal(t, syscall.SIGTERM)
	require.Until(t, "the daemon has nothing of the programs", func() bool { return h.idle(t) })
}
