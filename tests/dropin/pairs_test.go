//go:build linux

package dropin

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
)

// pong is the last line of a ping-pong.
const pong = ` iters in .* seconds = .* usec/iter`

// routed are programs that send with a hop limit of 1, as most do. tests/programs has them, and others, without
// routers.
var routed = []string{"ibv_rc_pingpong -c -e", "ibv_uc_pingpong", "ibv_ud_pingpong -s 1024", "ibv_srq_pingpong -c -e"}

// TestRouted: programs reach a host behind routers, whatever hop limit they set.
func TestRouted(t *testing.T) {
	require.Root(t)
	nsA, _, _, nsB := linktest.NewRouted(t, 1500, 1500)
	for _, family := range []string{"IPv4", "IPv6"} {
		hosts := [2]*host{}
		for i, ns := range []*linktest.Namespace{nsA, nsB} {
			addr := ns.Addr4
			if family == "IPv6" {
				addr = ns.Addr6
			}
			hosts[i] = &host{addr: addr, dir: userDir(t), in: ns, libs: libs(t)}
			hosts[i].startDaemon(t, "--addr", addr.String())
		}
		for _, line := range routed {
			t.Run(family+" "+line, func(t *testing.T) { pingpong(t, hosts[0], hosts[1], line) })
		}
	}
}

// pingpong runs a ping-pong of ibverbs-utils between two hosts.
func pingpong(t *testing.T, server, client *host, line string) {
	words := append(strings.Fields(line), "-g", "0")
	installed(t, words[0])
	s := server.run(t, words...)
	s.listens(t, 18515)
	if out := client.run(t, append(words,
		server.in.Addr4.String())...).ok(t); !regexp.MustCompile(pong).MatchString(out) {
		t.Error(out)
	}
	s.ok(t)
}

// TestLoopbackOnly: the two lines of README.md, as a user with no network and no configuration has them.
func TestLoopbackOnly(t *testing.T) {
	require.Root(t)
	installed(t, "ibv_rc_pingpong")
	ns, _ := linktest.NewVeth(t, 1500)
	ns.Command(t, "ip", "link", "del", ns.IfName)
	h := &host{dir: userDir(t), in: ns, libs: libs(t)}
	do := func(args ...string) *process {
		cmd := exec.Command(goroced, append([]string{"run", "--", "ibv_rc_pingpong", "-g", "0"}, args...)...)
		cmd.Env = append(h.env(), "XDG_RUNTIME_DIR="+h.dir, "GOROCED_IDLE_EXIT=1s")
		return h.launch(t, cmd)
	}
	server := do()
	server.listens(t, 18515)
	if out := do("localhost").ok(t); !regexp.MustCompile(pong).MatchString(out) {
		t.Error(out)
	}
	server.ok(t)
}
