package rxe

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/goroce/goroce/roce/daemon/dropin"
	"github.com/goroce/goroce/tests/require"
	"github.com/goroce/goroce/tests/rxe/lab"
)

// libraryTool is a program that runs at both ends: over the machine's librdmacm and the library here, over rdma_rxe in
// the guest. In the command lines $SERVER and $CLIENT are the addresses of the ends.
type libraryTool struct {
	name, server, client string
	port                 int
	says                 string // both ends
	ipv6                 bool   // with IPv6, too
	stays                bool   // the server does not end by itself
	early                string // cmTool.early; only the server is here
	ready                string // shell condition: the server is ready, if it does not listen
	long                 bool   // takes minutes: only with -rxe.all
	unsure               bool   // cmTool.unsure
}

var libraryTools = []libraryTool{
	{name: "rping", port: 7174, server: "rping -s -a $SERVER -C 1000 -V", client: "rping -c -a $SERVER -C 1000 -V",
		ipv6: true},
	{name: "rping-persistent", port: 7174, server: "rping -s -P -a $SERVER", client: "rping -c -a $SERVER -C 20 -V",
		stays: true},
	{name: "ucmatose", port: 7471, server: "ucmatose -f $FAMILY -b $SERVER -c 100",
		client: "ucmatose -f $FAMILY -s $SERVER -c 100", says: "return status 0", ipv6: true},
	{name: "udaddy", port: 7174, server: "udaddy -f $FAMILY -b $SERVER -c 3",
		client: "udaddy -f $FAMILY -s $SERVER -c 3", says: "return status 0", ipv6: true},
	{name: "rdma_client", port: 7471, server: "rdma_server", client: "rdma_client -s $SERVER", says: "end 0"},
	{name: "rdma_xclient", port: 7471, server: "rdma_xserver -c r", client: "rdma_xclient -s $SERVER -c r",
		says: "end 0"},
	{name: "rstream", port: 7471, server: "rstream -f $FAMILY -b $SERVER -S 65536 -C 50 -T v",
		client: "rstream -f $FAMILY -s $SERVER -S 65536 -C 50 -T v", says: "custom", ipv6: true},
	{name: "rstream-all", port: 7471, server: "rstream -b $SERVER", client: "rstream -s $SERVER", says: "1m_bw",
		long: true},
	{name: "riostream", port: 7471, server: "riostream -b $SERVER -S 65536 -C 50 -T v",
		client: "riostream -s $SERVER -S 65536 -C 50 -T v", says: "custom"},
	{name: "mckey", server: "mckey -C 1 -m 224.10.10.10 -b $SERVER", client: "mckey -s -C 1 -m 224.10.10.10 -b $CLIENT",
		says: "return status 0", ready: joined, unsure: true},
	{name: "cmtime", port: 7471, server: "cmtime -b $SERVER -c 100", client: "cmtime -s $SERVER -c 100", stays: true},
}

// perftests returns the tools of perftest. Their server listens after it has asked the client to come; a client that is
// earlier is refused, and crashes. A server in a guest is always too slow, so the clients are there.
func perftests() []libraryTool {
	var list []libraryTool
	for _, name := range []string{"ib_write_bw", "ib_read_bw", "ib_send_bw", "ib_atomic_bw", "ib_write_lat",
		"ib_read_lat", "ib_send_lat", "ib_atomic_lat"} {
		command := name + " -R -F -n 100"
		list = append(list, libraryTool{name: name, port: listenPort, server: command, client: command + " $SERVER",
			early: "RDMA_CM_EVENT_REJECTED; error: 8"})
	}
	return list
}

// libraryRows returns each program in both roles.
func libraryRows() []cmRow {
	var rows []cmRow
	for _, l := range slices.Concat(libraryTools, perftests()) {
		if l.long && !*all {
			continue
		}
		families := []string{v4}
		if l.ipv6 {
			families = append(families, v6)
		}
		for _, family := range families {
			number := map[string]string{v4: "ip", v6: "ip6"}[family]
			words := func(command, server, client string) string {
				return strings.NewReplacer("$SERVER", server, "$CLIENT", client, "$FAMILY", number).Replace(command)
			}
			tool := &cmTool{name: l.name, port: l.port, said: l.says, weSay: l.says, stays: l.stays, early: l.early,
				ready: l.ready, ourReady: l.ready, long: l.long, unsure: l.unsure,
				server: words(l.server, "$VM", "$HOST"), ourClient: words(l.client, "$VM", "$HOST"),
				client: words(l.client, "$HOST", "$VM"), ourServer: words(l.server, "$HOST", "$VM")}
			rows = append(rows, cmRow{tool, server, udp, family, 0})
			if l.early == "" {
				rows = append(rows, cmRow{tool, client, udp, family, 0})
			}
		}
	}
	return rows
}

// newLibraryPlay returns a play whose programs at our end run over the library and a daemon of its own.
func newLibraryPlay(t testing.TB, programs cmPrograms, libs string, kernel lab.Kernel, family string) *cmPlay {
	t.Helper()
	p := newCMPlay(t, programs, kernel, udp, family)
	p.goroced, p.libs = programs["goroced"], libs
	p.daemon = p.startDaemon(t.Context())
	return p
}

// TestDropinCM runs programs that connect by address over the library, as nobody, against the same on rdma_rxe.
func TestDropinCM(t *testing.T) {
	programs := buildCM(t)
	libs := buildLibraries(t)
	lab.ForEachKernel(t, func(t *testing.T, kernel lab.Kernel) {
		for _, r := range rowsFor(kernel, libraryRows(), cmRow.tool, cmRow.line) {
			lab.Row(t, r.line(), func(t testing.TB) {
				newLibraryPlay(t, programs, libs, kernel, r.family).run(&r)
			})
		}
	})
}

// TestDropinRstreamSizes transfers data of each size of rstream's series over the library, checked at both ends.
func TestDropinRstreamSizes(t *testing.T) {
	require.FullRun(t, "rows of the tool show most of it, too")
	programs := buildCM(t)
	libs := buildLibraries(t)
	rows := libraryRows()
	row := rows[slices.IndexFunc(rows, func(r cmRow) bool { return r.name == "rstream" && r.family == v4 })]
	lab.ForEachKernel(t, func(t *testing.T, kernel lab.Kernel) {
		if !runs(kernel, row.name) {
			return
		}
		lab.Row(t, string(kernel), func(t testing.TB) {
			newLibraryPlay(t, programs, libs, kernel, v4).allSizes(row.cmTool, "-S 65536 -C 50")
		})
	})
}

// overLibrary returns the command of a program over the library.
func (p *cmPlay) overLibrary(ctx context.Context, words []string) *exec.Cmd {
	cmd := p.lab.HostCommandAs(ctx, "nobody", p.goroced, append([]string{"run", "--socket", p.daemon.socket, "--"},
		words...)...)
	cmd.Env = append(os.Environ(), "HOME="+p.daemon.dir, dropin.Variable+"="+p.libs)
	cmd.Dir = p.daemon.dir
	return cmd
}

// awaitHost waits until a shell condition holds in the host's network.
func (p *cmPlay) awaitHost(ctx context.Context, us *ourProcess, condition string) {
	p.Helper()
	require.Until(p, fmt.Sprintf("%v is ready: %s", us.Args, condition), func() bool {
		if ctx.Err() != nil {
			p.Fatalf("%v is not ready (%s): %v\n%s", us.Args, condition, ctx.Err(), us.output())
		}
		return p.lab.HostCommand(ctx, "sh", "-c", condition).Run() == nil
	})
}

// awaitListener waits until a program over the library listens.
func (p *cmPlay) awaitListener(ctx context.Context, us *ourProcess) {
	p.Helper()
	require.Until(p, fmt.Sprintf("%v listens", us.Args), func() bool {
		out, err := p.lab.HostCommandAs(ctx, "nobody", p.goroced, "cm", "--admin", p.daemon.admin).CombinedOutput()
		if ctx.Err() != nil {
			p.Fatalf("%v does not listen: %v\n%s\n%s", us.Args, err, out, us.output())
		}
		return strings.Contains(string(out), "state LISTEN")
	})
}
