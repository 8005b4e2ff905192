//go:build linux

package dropin

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
)

// TestFiles: a program that lists files sees those of the device.
func TestFiles(t *testing.T) {
	h := newHost(t, nil)
	out := h.run(t, "ls", "-l", "/sys/class/infiniband/goroce_lo/ports/1/gid_attrs/types/0",
		"/dev/infiniband/uverbs0").ok(t)
	for _, want := range []string{"types/0\n", "uverbs0 -> /dev/null"} {
		if !strings.Contains(out, want) {
			t.Errorf("nothing says %q:\n%s", want, out)
		}
	}
}

// TestCounters: a counter that is opened has the present value.
func TestCounters(t *testing.T) {
	h := newHost(t, nil)
	const counter = "/sys/class/infiniband/goroce_lo/ports/1/hw_counters/sent_pkts"
	if got := h.run(t, "cat", counter).ok(t); got != "0\n" {
		t.Errorf("at first it is %q, want %q", got, "0\n")
	}
	const packets = "100"
	s := h.start(t, goroced, "pingpong", "--socket", h.socket, "-p", "18599", "-n", packets)
	s.listens(t, 18599)
	h.start(t, goroced, "pingpong", "--socket", h.socket, "-p", "18599", "-n", packets, "127.0.0.1").ok(t)
	s.ok(t)
	got := strings.TrimSpace(h.run(t, "cat", counter).ok(t))
	if len(got) < len(packets) {
		t.Errorf("after a ping-pong it is %s, want more than %s", got, packets)
	}
	out, err := h.run(t, "sh", "-c", "echo 0 >"+counter).wait(t)
	if err == nil || !strings.Contains(out, "ermission denied") {
		t.Errorf("written to: %v, %s, want permission denied", err, out)
	}
	if got := h.run(t, "cat", path.Join(path.Dir(counter), "lifespan")).ok(t); got != "0\n" {
		t.Errorf("counters are kept for %q ms, want not at all", got)
	}
	if out, err := h.run(t, "cat", counter+"s").wait(t); err == nil {
		t.Errorf("one that is not there: %s, want an error", out)
	}
}

// TestPortFollows: programs see the port go down and up, and addresses come, in files and by events.
func TestPortFollows(t *testing.T) {
	require.Root(t)
	installed(t, "ibv_asyncwatch")
	ns, _ := linktest.NewVeth(t, 1500)
	h := &host{dir: userDir(t), in: ns, libs: libs(t)}
	h.startDaemon(t, "--netif", ns.IfName, "--set", "device.name=blue")
	const port = "/sys/class/infiniband/blue/ports/1/"
	becomes := func(file, want string) {
		t.Helper()
		require.Until(t, fmt.Sprintf("%s is %q", file, want), func() bool {
			text, _ := os.ReadFile(h.socket + ".d" + port + file)
			return string(text) == want
		})
		if got := h.run(t, "cat", port+file).ok(t); got != want {
			t.Errorf("a program reads %q in %s, want %q", got, file, want)
		}
	}
	watch := h.run(t, "stdbuf", "-oL", "ibv_asyncwatch", "-d", "blue")
	says := func(want string) {
		t.Helper()
		require.Until(t, "ibv_asyncwatch says "+want, func() bool {
			watch.mustRun(t)
			return strings.Contains(watch.out.String(), want)
		})
	}
	says("async event FD")
	becomes("state", "4: ACTIVE\n")
	ns.Command(t, "ip", "link", "set", ns.IfName, "down")
	becomes("state", "1: DOWN\n")
	says("IBV_EVENT_PORT_ERR")
	ns.Command(t, "ip", "link", "set", ns.IfName, "up")
	becomes("state", "4: ACTIVE\n")
	says("IBV_EVENT_PORT_ACTIVE")
	ns.Command(t, "ip", "addr", "add", "10.99.7.7/24", "dev", ns.IfName)
	require.Until(t, "the address has a row", func() bool {
		rows, _ := filepath.Glob(h.socket + ".d" + port + "gids/*")
		return slices.ContainsFunc(rows, func(row string) bool {
			text, _ := os.ReadFile(row)
			return string(text) == "0000:0000:0000:0000:0000:ffff:0a63:0707\n"
		})
	})
}
