//go:build linux

package dropin

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	daemon "github.com/goroce/goroce/roce/daemon/server"
	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
)

// connection is a row: programs that connect by address, over the machine's own librdmacm. {server} and {client} are
// the addresses of the devices of both ends, {file} is a file.
type connection struct {
	name   string
	server string
	client string
	says   string // a regular expression that the client's output has
	fails  bool   // the client must fail, and one end print what says, as between two hosts with rdma_rxe
	stays  bool   // the server does not end by itself
	twice  bool   // over two daemons, too
	hosts  bool   // over two daemons only: the program wants an interface that is not the loopback one
	ipv6   bool   // with addresses of IPv6; hosts only
	port   int    // of TCP or UDP, where the server waits for the program's own purposes; 0: it listens by rdma_cm
	full   bool   // only with GOROCE_FULL=1
	long   bool   // takes minutes on a busy machine: only with -dropin.all
	socket bool   // its sockets of TCP become rsockets (librspreload)
}

// connections are the programs that must work. docs/dropin.md has them, too.
var connections = []connection{
	{name: "rping", server: "rping -s -a {server} -C 20 -v -V", client: "rping -c -a {server} -C 20 -v -V",
		says: `(?m)^ping data: rdma-ping-19: `, twice: true},
	{name: "rping long", server: "rping -s -a {server} -C 1000 -V", client: "rping -c -a {server} -C 1000 -V",
		twice: true, full: true},
	{name: "rping persistent", server: "rping -s -P -a {server}", client: "rping -c -a {server} -C 5 -v -V",
		says: `(?m)^ping data: rdma-ping-4: `, stays: true, twice: true},
	{name: "rping any address", server: "rping -s -C 5", client: "rping -c -a {server} -I {client} -C 5 -v",
		says: `(?m)^ping data: rdma-ping-4: `},
	{name: "ucmatose", server: "ucmatose -c 100 -b {server}", client: "ucmatose -c 100 -s {server} -b {client}",
		says: `return status 0`, twice: true},
	{name: "ucmatose migrate", server: "ucmatose -c 5 -m", client: "ucmatose -c 5 -s {server} -m",
		says: `return status 0`},
	{name: "rdma_client", server: "rdma_server", client: "rdma_client -s {server}", says: `end 0`, twice: true},
	{name: "rdma_xclient SRQ", server: "rdma_xserver -c r", client: "rdma_xclient -s {server} -c r", says: `end 0`,
		twice: true},
	{name: "rdma_xclient XRC", server: "rdma_xserver -c x", client: "rdma_xclient -s {server} -c x", says: `end 0`,
		twice: true},
	{name: "udaddy", server: "udaddy -c 3 -b {server}", client: "udaddy -c 3 -s {server} -b {client}",
		says: `return status 0`, twice: true},
	{name: "cmtime", server: "cmtime -b {server} -c 200", client: "cmtime -s {server} -c 200", says: `(?m)^destroy `,
		stays: true, twice: true},
	{name: "cmtime long", server: "cmtime -b {server} -c 1000", client: "cmtime -s {server} -c 1000",
		says: `(?m)^destroy `, stays: true, twice: true, full: true},
	{name: "rstream", server: "rstream -b {server} -S 65536 -C 200 -T v",
		client: "rstream -s {server} -S 65536 -C 200 -T v", says: `(?m)^custom +64k +200 `, twice: true},
	{name: "rstream all sizes", server: "rstream -b {server}", client: "rstream -s {server}", says: `(?m)^4m_bw|1m_bw`,
		long: true},
	{name: "rstream nonblocking", server: "rstream -b {server} -S 65536 -C 100 -T n -T v",
		client: "rstream -s {server} -S 65536 -C 100 -T n -T v", says: `(?m)^custom +64k +100 `},
	{name: "riostream", server: "riostream -b {server} -S 65536 -C 100",
		client: "riostream -s {server} -S 65536 -C 100", says: `(?m)^custom +64k +100 `, twice: true},
	{name: "ib_write_bw -R", server: "ib_write_bw -R -F -n 200", client: "ib_write_bw -R -F -n 200 {server}",
		says: `(?m)^ *65536 `, twice: true},
	{name: "ib_read_bw -R", server: "ib_read_bw -R -F -n 100", client: "ib_read_bw -R -F -n 100 {server}",
		says: `(?m)^ *65536 `, full: true},
	{name: "ib_send_lat -R", server: "ib_send_lat -R -F -n 200", client: "ib_send_lat -R -F -n 200 {server}",
		says: `(?m)^ *2 `, twice: true},
	{name: "ib_write_lat -R", server: "ib_write_lat -R -F -n 200", client: "ib_write_lat -R -F -n 200 {server}",
		says: `(?m)^ *2 `, twice: true, full: true},
	{name: "ib_read_lat -R", server: "ib_read_lat -R -F -n 100", client: "ib_read_lat -R -F -n 100 {server}",
		says: `(?m)^ *2 `, twice: true, full: true},
	{name: "ib_send_bw -R", server: "ib_send_bw -R -F -n 200", client: "ib_send_bw -R -F -n 200 {server}",
		says: `(?m)^ *65536 `, twice: true, full: true},
	{name: "ib_atomic_bw -R", server: "ib_atomic_bw -R -F -n 100", client: "ib_atomic_bw -R -F -n 100 {server}",
		says: `(?m)^ *8 `, twice: true, full: true},
	{name: "ib_atomic_lat -R", server: "ib_atomic_lat -R -F -n 100", client: "ib_atomic_lat -R -F -n 100 {server}",
		says: `(?m)^ *8 `, twice: true, full: true},
	{name: "ib_send_bw -R -c UD", server: "ib_send_bw -R -F -n 200 -c UD -s 1024",
		client: "ib_send_bw -R -F -n 200 -c UD -s 1024 {server}", says: `(?m)^ *1024 `},
	{name: "rping IPv6", server: "rping -s -a {server} -C 20 -v -V", client: "rping -c -a {server} -C 20 -v -V",
		says: `(?m)^ping data: rdma-ping-19: `, ipv6: true},
	{name: "ucmatose IPv6", server: "ucmatose -f ip6 -c 20 -b {server}", client: "ucmatose -f ip6 -c 20 -s {server}",
		says: `return status 0`, ipv6: true},
	{name: "udaddy IPv6", server: "udaddy -f ip6 -c 3 -b {server}", client: "udaddy -f ip6 -c 3 -s {server}",
		says: `return status 0`, ipv6: true},
	{name: "rstream IPv6", server: "rstream -f ip6 -b {server} -S 65536 -C 100",
		client: "rstream -f ip6 -s {server} -S 65536 -C 100", says: `(?m)^custom +64k +100 `, ipv6: true},
	{name: "fi_pingpong", server: "fi_pingpong -p verbs -e msg -I 100 -S 4096",
		client: "fi_pingpong -p verbs -e msg -I 100 -S 4096 {server}", says: `(?m)^4k +100 +=100 `, hosts: true, port: 47592},
	{name: "qperf", server: "qperf",
		client: "qperf {server} -cm 1 -t 1 rc_lat rc_bw rc_rdma_read_bw rc_rdma_write_bw", hosts: true,
		says: `(?s)rc_lat:.*rc_bw:.*rc_rdma_read_bw:.*rc_rdma_write_bw:\n +bw += `, stays: true, port: 19765, full: true},
	// Address handles without a GRH, which RoCE has not: these tests of qperf exchange LIDs by TCP, whatever -cm is.
	{name: "qperf uc", server: "qperf", client: "qperf {server} -cm 1 -t 1 uc_lat", hosts: true, fails: true,
		says: `failed to modify QP to RTR: Invalid argument`, stays: true, port: 19765, full: true},
	{name: "qperf ud", server: "qperf", client: "qperf {server} -cm 1 -t 1 ud_bw", hosts: true, fails: true,
		says: `failed to create address handle: Invalid argument`, stays: true, port: 19765, full: true},
	{name: "udpong", server: "udpong -b {server}", client: "udpong -s {server} -C 10", hosts: true, fails: true,
		says: `rconnect: No such file or directory`, stays: true, port: 7174, full: true},
	{name: "iperf", server: "iperf -s", client: "iperf -c {server} -n 1G", says: `1\.00 GBytes`, stays: true, hosts: true,
		socket: true, full: true},
}

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

// awaitServer waits until the row's server listens.
func (c *connection) awaitServer(t testing.TB, h *host, p *process) {
	t.Helper()
	if c.port != 0 {
		p.listens(t, c.port)
		return
	}
	h.awaitListener(t, p)
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

// tooEarly is what clients of perftest and qperf say when they come before their servers listen, which ask them to come
// by a handshake of their own. perftest's client then uses what it has freed, and its server waits for ever.
var tooEarly = regexp.MustCompile(`RDMA CM event error|Event rejected`)

// run runs the row between two hosts. Nothing of it is left at their daemons.
func (c *connection) run(t *testing.T, server, client *host) {
	repeats(t, c.full)
	if c.long && !*all {
		t.Skip("skipped: needs -dropin.all, as tens of thousands of round trips take minutes on a busy machine")
	}
	program, _, _ := strings.Cut(c.server, " ")
	installed(t, program)
	args := func(line string) []string {
		to, from := server.addr, client.addr
		if c.ipv6 {
			to, from = server.in.Addr6, client.in.Addr6
		}
		return strings.Fields(strings.NewReplacer("{server}", to.String(), "{client}", from.String()).Replace(line))
	}
	run := (*host).run
	if c.socket {
		run = (*host).runRsockets
	}
	s := run(server, t, args(c.server)...)
	c.awaitServer(t, server, s)
	out, err := run(client, t, args(c.client)...).wait(t)
	for tries := 10; tries > 0 && err != nil && tooEarly.MatchString(out); tries-- {
		_, _ = s.signal(t, syscall.SIGKILL)
		s = run(server, t, args(c.server)...)
		c.awaitServer(t, server, s)
		out, err = run(client, t, args(c.client)...).wait(t)
	}
	says := regexp.MustCompile(c.says)
	if (err != nil) != c.fails || !c.fails && !says.MatchString(out) {
		t.Fatalf("client: %v\n%s\nserver:\n%s", err, out, s.out.String())
	}
	if c.fails { // an end of qperf that has the other one's error as urgent data of TCP may lose the text
		require.Until(t, "one end says why it fails:\n"+out,
			func() bool { return says.MatchString(out + s.out.String()) })
	}
	if c.stays {
		s.mustRun(t)
		_, _ = s.signal(t, syscall.SIGTERM)
	} else if out, err := s.wait(t); err != nil {
		t.Errorf("server: %v\n%s", err, out)
	}
	for _, h := range []*host{server, client} {
		require.Until(t, "the daemon has nothing of the programs", func() bool { return h.idle(t) })
	}
}

// TestUnequalMTU: a program whose host has jumbo frames connects to one of a host that has not, and vice versa.
func TestUnequalMTU(t *testing.T) {
	require.Root(t)
	nsA, nsB := linktest.NewVeth(t, 9000)
	nsB.Command(t, "ip", "link", "set", nsB.IfName, "mtu", "1500")
	a, b := newHost(t, nsA), newHost(t, nsB)
	row := connection{name: "rping", server: "rping -s -a {server} -C 3 -S 20000 -v -V",
		client: "rping -c -a {server} -C 3 -S 20000 -v -V", says: `(?m)^ping data: rdma-ping-2`}
	t.Run("jumbo client", func(t *testing.T) { row.run(t, b, a) })
	t.Run("jumbo server", func(t *testing.T) { row.run(t, a, b) })
}

// TestConnectionsFile: a file goes through rcopy, and through programs whose sockets are rsockets. It is the same at
// the other end.
func TestConnectionsFile(t *testing.T) {
	besides(t)
	h := newHost(t, nil)
	data := make([]byte, rounds(10<<20, 128<<20, 1<<30))
	_, _ = rand.NewChaCha8([32]byte{}).Read(data)
	file, got := filepath.Join(h.dir, "file"), filepath.Join(h.dir, "got")
	if err := os.WriteFile(file, data, 0o644); err != nil {
		t.Fatal(err)
	}
	same := func(t *testing.T) {
		t.Helper()
		if there, err := os.ReadFile(got); err != nil || !bytes.Equal(there, data) {
			t.Errorf("%d of %d bytes, or others: %v", len(there), len(data), err)
		}
	}
	t.Run("rcopy", func(t *testing.T) {
		installed(t, "rcopy")
		server := h.run(t, "rcopy")
		h.awaitListener(t, server)
		h.run(t, "rcopy", file, fmt.Sprintf("%v:%s", h.addr, got)).ok(t)
		same(t)
		server.mustRun(t) // for the next file
		_, _ = server.signal(t, syscall.SIGTERM)
	})
	_ = os.Remove(got)
	t.Run("netcat", func(t *testing.T) {
		installed(t, "nc.traditional")
		server := h.runRsockets(t, "sh", "-c", "exec nc.traditional -l -p 7777 >"+got)
		h.awaitListener(t, server)
		h.runRsockets(t, "sh", "-c", fmt.Sprintf("exec nc.traditional -q 0 %v 7777 <%s", h.addr, file)).ok(t)
		server.ok(t)
		same(t)
	})
	_ = os.Remove(got)
	t.Run("web", func(t *testing.T) {
		repeats(t, true)
		installed(t, "civetweb")
		installed(t, "wget")
		server := h.runRsockets(t, "civetweb", "-listening_ports", "7780", "-document_root", h.dir)
		h.awaitListener(t, server)
		h.runRsockets(t, "wget", "-q", "-O", got, fmt.Sprintf("http://%v:7780/file", h.addr)).ok(t)
		same(t)
		server.mustRun(t)
		_, _ = server.signal(t, syscall.SIGKILL) // at its own end it waits for a thread that librdmacm keeps in rpoll
	})
}

// TestConnections: both programs over one daemon. Each leaves nothing behind.
func TestConnections(t *testing.T) {
	besides(t)
	h := newHost(t, nil)
	for _, c := range connections {
		if !c.hosts && !c.ipv6 {
			t.Run(c.name, func(t *testing.T) { c.run(t, h, h) })
		}
	}
	t.Run("mckey", func(t *testing.T) { multicast(t, h, h) })
	t.Run("rping many clients", func(t *testing.T) { manyClients(t, h, require.Rounds(5, 20)) })
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

// TestConnectionsTwoHosts: each program over a daemon of its own, in a network of its own.
func TestConnectionsTwoHosts(t *testing.T) {
	require.Root(t)
	nsA, nsB := linktest.NewVeth(t, 1500)
	a, b := blueHost(t, nsA), blueHost(t, nsB)
	for _, c := range connections {
		if c.twice || c.hosts || c.ipv6 {
			t.Run(c.name, func(t *testing.T) { c.run(t, a, b) })
		}
	}
	t.Run("mckey", func(t *testing.T) { multicast(t, a, b) })
}

// multicast has one host receive what another one sends to a group, again until the receiver has joined.
func multicast(t *testing.T, to, from *host) {
	installed(t, "mckey")
	r := to.run(t, "mckey", "-m", "239.1.2.3", "-b", to.addr.String(), "-C", "5")
	for end := time.Now().Add(patience); time.Now().Before(end); {
		from.run(t, "mckey", "-m", "239.1.2.3", "-b", from.addr.String(), "-C", "5", "-s").ok(t)
		select {
		case <-r.done:
			if r.err != nil {
				t.Errorf("receiver: %v\n%s", r.err, r.out.String())
			}
			return
		case <-time.After(50 * time.Millisecond):
		}
	}
	t.Errorf("nothing received:\n%s", r.out.String())
}
