package rxe

import (
	"context"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/goroce/goroce/tests/require"
	"github.com/goroce/goroce/tests/rxe/lab"
)

// router is an address of the wire's namespace, which forwards packets between the host and a guest.
const router = "10.77.0.200"

// beginRouting has the packets between the host and a guest pass a router.
func (p *pingpong) beginRouting(ctx context.Context) {
	p.Helper()
	ours, theirs := p.lab.HostIPv4.String()+"/32", p.vm.IPv4.String()+"/32"
	for _, set := range []string{"ip_forward=1", "conf.all.send_redirects=0", "conf.br0.send_redirects=0"} {
		p.tool(p.lab.WireCommand(ctx, "sysctl", "-q", "-w", "net.ipv4."+set))
	}
	p.tool(p.lab.WireCommand(ctx, "ip", "addr", "add", router+"/24", "dev", "br0"))
	p.tool(p.lab.HostCommand(ctx, "ip", "route", "add", theirs, "via", router))
	_, err := p.vm.Run(ctx, "ip", "route", "add", ours, "via", router)
	p.must(err)
	p.Cleanup(func() {
		ctx := context.Background()
		_, err := p.vm.Run(ctx, "ip", "route", "del", ours)
		p.must(err)
		p.tool(p.lab.HostCommand(ctx, "ip", "route", "del", theirs))
		p.tool(p.lab.WireCommand(ctx, "ip", "addr", "del", router+"/24", "dev", "br0"))
		p.tool(p.lab.WireCommand(ctx, "sysctl", "-q", "-w", "net.ipv4.ip_forward=0"))
	})
}

// tool runs a command on the host.
func (p *pingpong) tool(cmd *exec.Cmd) {
	p.Helper()
	if out, err := cmd.CombinedOutput(); err != nil {
		p.Fatalf("%q: %v\n%s", cmd.Args, err, out)
	}
}

// forwarded returns how many packets the router has forwarded.
func (p *pingpong) forwarded(ctx context.Context) int {
	p.Helper()
	out, err := p.lab.WireCommand(ctx, "sh", "-c", "grep ^Ip: /proc/net/snmp").Output()
	p.must(err)
	names, values, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	for i, name := range strings.Fields(names) {
		if name == "ForwDatagrams" {
			n, err := strconv.Atoi(strings.Fields(values)[i])
			p.must(err)
			return n
		}
	}
	p.Fatalf("no ForwDatagrams in\n%s", out)
	return 0
}

// TestRouted: programs that set a hop limit of 1, as the ping-pongs of libibverbs do, reach rdma_rxe behind a router.
func TestRouted(t *testing.T) {
	lab.Require(t, lab.Kernels()...)
	require.Command(t, "cc")
	goroced := build(t)
	libs := buildLibraries(t)
	lab.ForEachKernel(t, func(t *testing.T, kernel lab.Kernel) {
		for _, program := range []string{"ibv_rc_pingpong", "ibv_ud_pingpong"} {
			lab.Row(t, program, func(t testing.TB) {
				const messages = 100
				l := lab.Shared(t, kernel)
				p := &dropinPlay{libs: libs, dropinRow: dropinRow{program: program, side: client,
					options: "-s 1024 -n " + strconv.Itoa(messages)}}
				p.pingpong = pingpong{TB: t, lab: l, vm: l.VMs[0], goroced: goroced,
					row: row{side: client, link: udp, family: v4}}
				p.beginRouting(t.Context())
				before := p.forwarded(t.Context())
				p.run()
				if n := p.forwarded(t.Context()) - before; n < 2*messages {
					t.Errorf("the router has forwarded %d packets, want at least %d", n, 2*messages)
				}
			})
		}
	})
}
