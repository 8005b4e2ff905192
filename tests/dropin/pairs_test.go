//go:build linux

package dropin

import (
	"fmt"
	"net/netip"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
)

// pair is a row: the command line of a server and of its client. In both {port} is a TCP port of the row's own, in
// the client's {host} is the server's address. Variables may precede the program. Where the client has no command
// line of its own it is the server's, with {host}.
type pair struct {
	name   string
	server string
	client string
	says   string // a regular expression that the client's output has
	full   bool   // only with GOROCE_FULL=1: like another row
	twice  bool   // over two daemons, too
}

// pairs are the programs that must work. docs/dropin.md has them, too.
var pairs = []pair{
	// {pp} are the options of every ping-pong.
	{name: "rc events", server: "ibv_rc_pingpong {pp} -c -e", says: pong, twice: true},
	{name: "rc", server: "ibv_rc_pingpong {pp} -c", says: pong, full: true},
	{name: "rc new post send", server: "ibv_rc_pingpong {pp} -c -N", says: pong},
	{name: "rc timestamps", server: "ibv_rc_pingpong {pp} -t", says: pong},
	// No row has both -e and -t: with both, the program takes an event whose completion it has polled already for an
	// error (rdma-core 44, rc_pingpong.c: a completion between ibv_req_notify_cq and ibv_start_poll).
	{name: "rc ODP, large", server: "ibv_rc_pingpong {pp} -N -t -o -P -s 1048576 -n 50", says: pong, twice: true},
	{name: "rc implicit ODP", server: "ibv_rc_pingpong {pp} -O -n 100", says: pong, full: true},
	{name: "uc", server: "ibv_uc_pingpong {pp}", says: pong, twice: true},
	{name: "ud", server: "ibv_ud_pingpong {pp} -s 1024", says: pong, twice: true},
	{name: "ud events", server: "ibv_ud_pingpong {pp} -s 1024 -e", says: pong, full: true},
	{name: "srq events", server: "ibv_srq_pingpong {pp} -c -e", says: pong, twice: true},
	{name: "xsrq", server: "ibv_xsrq_pingpong -g 0 -p {port} -c 1", says: `(?m)^success$`, twice: true},

	// {pt} are the options of every tool of perftest.
	{name: "write bw -a", server: "ib_write_bw {pt} -a -n 5", says: `(?m)^ *8388608 +5 `, full: true},
	{name: "read bw -a", server: "ib_read_bw {pt} -a -n 5", says: `(?m)^ *8388608 +5 `, full: true},
	{name: "send bw -a", server: "ib_send_bw {pt} -a -n 5", says: `(?m)^ *8388608 +5 `, full: true},
	{name: "write bw counters", server: "ib_write_bw {pt} -n 200 -W counters/port_xmit_data", says: `port_xmit_data`,
		twice: true},
	{name: "write bw -b", server: "ib_write_bw {pt} -b -n 200", says: `(?m)^ *65536 `, full: true},
	{name: "write bw 4 QPs", server: "ib_write_bw {pt} -q 4 -n 100", says: `(?m)^ *65536 +400 `, full: true},
	{name: "write bw 64 QPs", server: "ib_write_bw {pt} -q 64 -n 100 -s 4096", says: `(?m)^ *4096 +6400 `},
	{name: "write bw UC", server: "ib_write_bw {pt} -c UC -n 100", says: `(?m)^ *65536 `, full: true},
	{name: "read bw", server: "ib_read_bw {pt} -n 100", says: `(?m)^ *65536 `, twice: true},
	{name: "send bw -b -e", server: "ib_send_bw {pt} -b -e -n 200", says: `(?m)^ *65536 `, twice: true},
	{name: "send bw UD", server: "ib_send_bw {pt} -c UD -s 1024 -n 500", says: `(?m)^ *1024 `},
	{name: "send bw XRC", server: "ib_send_bw {pt} -c XRC -n 100", says: `(?m)^ *65536 `, twice: true},
	{name: "send bw SRQ", server: "ib_send_bw {pt} --use-srq -q 4 -n 100", says: `(?m)^ *65536 `, full: true},
	{name: "atomic bw", server: "ib_atomic_bw {pt} -n 200", says: `(?m)^ *8 `, twice: true},
	{name: "write lat", server: "ib_write_lat {pt} -n 200", says: `(?m)^ *2 `, twice: true},
	{name: "write lat UC", server: "ib_write_lat {pt} -c UC -n 200", says: `(?m)^ *2 `, full: true},
	{name: "read lat", server: "ib_read_lat {pt} -n 200", says: `(?m)^ *2 `, full: true},
	{name: "send lat", server: "ib_send_lat {pt} -n 200", says: `(?m)^ *2 `, twice: true},
	{name: "send lat -e", server: "ib_send_lat {pt} -n 2000 -e", says: `(?m)^ *2 `},
	{name: "send lat UD", server: "ib_send_lat {pt} -n 200 -c UD", says: `(?m)^ *2 `, full: true},
	{name: "send lat XRC", server: "ib_send_lat {pt} -n 200 -c XRC", says: `(?m)^ *2 `, full: true},
	{name: "atomic lat", server: "ib_atomic_lat {pt} -n 200", says: `(?m)^ *8 `, full: true},

	{name: "ucx tag_lat", server: "UCX_TLS=rc_v ucx_perftest -p {port}",
		client: "UCX_TLS=rc_v ucx_perftest -p {port} {host} -t tag_lat -n 1000 -w 10 -f", says: `(?m)^ +1000 `,
		twice: true},
	{name: "ucx put_bw", server: "UCX_TLS=rc_v ucx_perftest -p {port}",
		client: "UCX_TLS=rc_v ucx_perftest -p {port} {host} -t ucp_put_bw -s 65536 -n 500 -w 10 -f",
		says:   `(?m)^ +500 `, twice: true},
	{name: "ucx get", server: "UCX_TLS=rc_v ucx_perftest -p {port}",
		client: "UCX_TLS=rc_v ucx_perftest -p {port} {host} -t ucp_get -s 65536 -n 500 -w 10 -f",
		says:   `(?m)^ +500 `, twice: true},
}

// pong is the last line of a ping-pong.
const pong = ` iters in .* seconds = .* usec/iter`

// common are options that rows name in short.
var common = strings.NewReplacer("{pp}", "-g 0 -p {port}", "{pt}", "-F -x 0 -p {port}")

// firstPort is the TCP port of the first row, by which programs find each other.
const firstPort = 18600

// command returns the words of a row's command line, as a program for `env`.
func (p *pair) command(line string, port int, host netip.Addr) []string {
	line = strings.NewReplacer("{port}", fmt.Sprint(port), "{host}", host.String()).Replace(common.Replace(line))
	return append([]string{"env"}, strings.Fields(line)...)
}

// program returns the program of a row.
func (p *pair) program() string {
	for _, word := range strings.Fields(p.server) {
		if !strings.Contains(word, "=") {
			return word
		}
	}
	return ""
}

// run runs the row between two hosts.
func (p *pair) run(t *testing.T, server, client *host, port int) {
	installed(t, p.program())
	line := p.client
	if line == "" {
		line = p.server + " {host}"
	}
	meet := netip.MustParseAddr("127.0.0.1") // where they find each other, whatever the device's address
	if server.in != nil {
		meet = server.in.Addr4
	}
	s := server.run(t, p.command(p.server, port, meet)...)
	s.listens(t, port)
	out, err := client.run(t, p.command(line, port, meet)...).wait(t)
	if err != nil || !regexp.MustCompile(p.says).MatchString(out) {
		t.Errorf("client: %v\n%s\nserver:\n%s", err, out, s.out.String())
	}
	if p.program() != "ucx_perftest" || err == nil {
		if out, err := s.wait(t); err != nil {
			t.Errorf("server: %v\n%s", err, out)
		}
	}
}

// TestPairs: both programs over one daemon.
func TestPairs(t *testing.T) {
	besides(t)
	h := newHost(t, nil)
	for i, p := range pairs {
		t.Run(p.name, func(t *testing.T) {
			repeats(t, p.full)
			t.Parallel() // programs of perftest wait for a second, and measure the processor's clock for 0.2 s
			p.run(t, h, h, firstPort+i)
		})
	}
}

// TestPairsTwoHosts: each program over a daemon of its own, in a network of its own.
func TestPairsTwoHosts(t *testing.T) {
	require.Root(t)
	nsA, nsB := linktest.NewVeth(t, 1500)
	a, b := newHost(t, nsA), newHost(t, nsB)
	for i, p := range pairs {
		if p.twice {
			t.Run(p.name, func(t *testing.T) { p.run(t, a, b, firstPort+i) })
		}
	}
}

// routedPairs name the pairs that send with a hop limit of 1, as most programs do.
var routedPairs = []string{"rc events", "uc", "ud", "srq events"}

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
		for i, p := range pairs {
			if slices.Contains(routedPairs, p.name) {
				t.Run(family+" "+p.name, func(t *testing.T) { p.run(t, hosts[0], hosts[1], firstPort+i) })
			}
		}
	}
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
