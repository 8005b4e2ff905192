//go:build linux

package dropin

import (
	"regexp"
	"strings"
	"testing"

	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
)

// TestWide: programs with a path MTU of their own that is above the port's run as over rdma_rxe: short messages pass,
// one that does not fit a frame fails. A line says so, once.
func TestWide(t *testing.T) {
	require.Root(t)
	installed(t, "ibv_rc_pingpong")
	ns, _ := linktest.NewVeth(t, 1500)
	h := blueHost(t, ns)
	const note = "goroce: path_mtu of a QP is 4096, active_mtu of the port 1024:"
	play := func(size string) (out string, err error) {
		words := []string{"ibv_rc_pingpong", "-g", "0", "-n", "5", "-m", "4096", "-s", size}
		server := h.run(t, words...)
		server.listens(t, 18515)
		out, err = h.run(t, append(words, ns.Addr4.String())...).wait(t)
		if err != nil {
			_ = server.cmd.Process.Kill()
		}
		_, _ = server.wait(t)
		return out, err
	}
	out, err := play("1400")
	if err != nil || !regexp.MustCompile(pong).MatchString(out) || strings.Count(out, note) != 1 {
		t.Errorf("with 1400 bytes: %v\n%s\nwant a ping-pong, and once %q", err, out, note)
	}
	if out, err := play("4000"); err == nil || !strings.Contains(out, "Failed status local length error") {
		t.Errorf("with 4000 bytes: %v\n%s\nwant a local length error", err, out)
	}
}
