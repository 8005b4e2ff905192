//go:build linux

package dropin

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
)

// TestSingle: programs that look at the device and at nothing else.
func TestSingle(t *testing.T) { newHost(t, nil).look(t, "goroce_lo") }

// TestSingleTwoHosts: in two network namespaces with a daemon each, they see the device of their own.
func TestSingleTwoHosts(t *testing.T) {
	a, b := linktest.NewVeth(t, 1500)
	newHost(t, a).look(t, "blue")
	newHost(t, b).look(t, "blue")
}

// look runs the programs, which see the host's device.
func (h *host) look(t *testing.T, device string) {
	gid := fmt.Sprintf("::ffff:%v", h.addr)
	for _, c := range []struct {
		line string
		says []string // regular expressions
	}{
		{"ibv_devices", []string{device + `\s+[0-9a-f]{16}`}},
		{"ibv_devinfo -v", []string{`hca_id:\s+` + device, `PORT_ACTIVE`, `link_layer:\s+Ethernet`,
			regexp.QuoteMeta(gid) + `, RoCE v2`, `phys_state:\s+LINK_UP`}},
		{"ibv_devinfo -d " + device + " -i 1", []string{`port:\s+1`}},
		{"ibv_devinfo -l", []string{`1 HCA found`, device}},
		{"ibstat", []string{`CA '` + device + `'`, `State: Active`, `Physical state: LinkUp`, `Link layer: Ethernet`,
			`Rate: (2.5|10)\b`}},
		{"ibstat -l", []string{`(?m)^` + device + `$`}},
		{"ucx_info -d", []string{`Transport: rc_verbs`, `Device: ` + device + `:1`}},
		{"ls -l /sys/class/infiniband/" + device + "/ports/1/gid_attrs/types/0 /dev/infiniband/uverbs0",
			[]string{`types/0\n`, `uverbs0 -> /dev/null`}},
	} {
		t.Run(c.line, func(t *testing.T) {
			words := strings.Fields(c.line)
			installed(t, words[0])
			out := h.run(t, words...).ok(t)
			for _, want := range c.says {
				if !regexp.MustCompile(want).MatchString(out) {
					t.Errorf("nothing says %q:\n%s", want, out)
				}
			}
		})
	}
}

// TestAsyncWatch: a device can be watched, to which nothing happens.
func TestAsyncWatch(t *testing.T) {
	installed(t, "ibv_asyncwatch")
	h := newHost(t, nil)
	p := h.run(t, "stdbuf", "-oL", "ibv_asyncwatch", "-d", "goroce_lo")
	require.Until(t, "the device is watched", func() bool {
		p.mustRun(t)
		return strings.Contains(p.out.String(), "async event FD")
	})
	if out, _ := p.signal(t, syscall.SIGTERM); strings.Contains(out, "IBV_EVENT") {
		t.Errorf("events of a device that nothing happens to:\n%s", out)
	}
}

// TestCounters: a counter that is opened has the present value.
func TestCounters(t *testing.T) {
	h := newHost(t, nil)
	const counter = "/sys/class/infiniband/goroce_lo/ports/1/hw_counters/sent_pkts"
	if got := h.run(t, "cat", counter).ok(t); got != "0\n" {
		t.Errorf("at first it is %q", got)
	}
	const packets = "100"
	s := h.start(t, goroced, "pingpong", "--socket", h.socket, "-p", "18599", "-n", packets)
	s.listens(t, 18599)
	h.start(t, goroced, "pingpong", "--socket", h.socket, "-p", "18599", "-n", packets, "127.0.0.1").ok(t)
	s.ok(t)
	got := strings.TrimSpace(h.run(t, "cat", counter).ok(t))
	if len(got) < len(packets) {
		t.Errorf("after a ping-pong it is %s", got)
	}
	out, err := h.run(t, "sh", "-c", "echo 0 >"+counter).wait(t)
	if err == nil || !strings.Contains(out, "ermission denied") {
		t.Errorf("written to: %v, %s", err, out)
	}
	if got := h.run(t, "cat", path.Join(path.Dir(counter), "lifespan")).ok(t); got != "0\n" {
		t.Errorf("counters are kept for %q ms, want not at all", got)
	}
	if out, err := h.run(t, "cat", counter+"s").wait(t); err == nil {
		t.Errorf("one that is not there: %s", out)
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
