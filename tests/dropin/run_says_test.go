//go:build linux

package dropin

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
)

// TestRunSays: what people would wonder about is said: that the libraries are built, that the daemon is on loopback,
// and which interfaces there are if it is not clear which is meant.
func TestRunSays(t *testing.T) {
	t.Parallel()
	require.Root(t)
	ns, _ := linktest.NewVeth(t, 1500)
	do := func(env ...string) (string, error) {
		h := host{dir: userDir(t), libs: libs(t), in: ns}
		cmd := exec.Command(goroced, "run", "--", "echo", "runs")
		cmd.Env = append(append(h.env(), "XDG_RUNTIME_DIR="+h.dir, "GOROCED_IDLE_EXIT=1s"), env...)
		return h.launch(t, cmd).wait(t)
	}
	want := func(what, out string, err error, ends bool, words ...string) {
		t.Helper()
		for _, w := range words {
			if (err == nil) != ends || !strings.Contains(out, w) {
				t.Errorf("%s: %v, want %q, and that it ends well is %v:\n%s", what, err, w, ends, out)
			}
		}
	}
	const addr = "GOROCED_DEVICE_ADDRESSES="
	out, err := do(addr+ownAddr(t), "GOROCE_LIB=")
	want("without libraries", out, err, true, "goroced: run: two libraries for programs in C are being built", "runs\n")
	if out, err = do(addr + ownAddr(t)); out != "runs\n" || err != nil {
		t.Errorf("with libraries and an address: %v, want no word:\n%s", err, out)
	}

	ns.Command(t, "ip", "link", "add", "other", "type", "veth", "peer", "name", "end")
	ns.Command(t, "sh", "-c", "ip address add 10.98.0.1/24 dev other; ip link set end up; ip link set other up")
	out, err = do()
	want("several interfaces", out, err, false, ns.IfName+" ("+ns.Addr4.String()+")", "other (10.98.0.1)",
		"set GOROCED_DEVICE_NETIF")
	ns.Command(t, "sh", "-c", "ip link del other; ip link del "+ns.IfName)
	out, err = do()
	want("loopback only", out, err, true, "no network interface besides loopback is up", "runs\n")
}
