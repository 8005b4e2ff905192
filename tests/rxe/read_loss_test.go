package rxe

import (
	"context"
	"testing"

	"github.com/goroce/goroce/tests/rxe/lab"
)

// badNetworks are faults for `goroced fault add`, which apply both ways, and the options of
// both ends. The seeds decide which packets are affected, if the order of packets is the same
// again. perftest needs at least -n 5.
//
// A guest on a busy machine may stop for a second, so eight ACK timeouts, after which the
// retries are exhausted, must take longer: they take 1.1 s with -u 15, 4.3 s with 17.
var badNetworks = []badNetwork{
	{"drop-7", "drop -p 0.07 --seed 7", "-u 15 -n 60"},
	{"drop-15", "drop -p 0.15 --seed 15", "-u 15 -n 6 -q 4"},
	{"corrupt-2", "corrupt -p 0.02 --seed 2", "-u 17 -n 300"},
	{"late-5", "delay -p 0.05 --delay 2ms --seed 5", "-u 17 -n 300"},
}

type badNetwork struct{ name, fault, options string }

// TestReadThroughLoss reads from ib_read_bw over bad networks, over which READs between two
// rdma_rxe succeed: the retries, 7 by default, must not be exhausted.
func TestReadThroughLoss(t *testing.T) {
	lab.Require(t, lab.Kernels()...)
	goroced := build(t)
	lab.ForEachKernel(t, func(t *testing.T, kernel lab.Kernel) {
		tool := func(badNetwork) string { return "read_bw" }
		name := func(n badNetwork) string { return n.name }
		for _, n := range rowsFor(kernel, badNetworks, tool, name) {
			lab.Row(t, n.name, func(t testing.TB) {
				l := lab.Shared(t, kernel)
				quiet(t, l)
				p := &perfPlay{perfRow: perfRow{tool: "read_bw", side: client, link: udp, family: v4,
					options: n.options}}
				p.pingpong = pingpong{TB: t, lab: l, vm: l.VMs[0], goroced: goroced,
					row: row{side: client, link: udp, family: v4}}
				p.readThrough(n.fault)
			})
		}
	})
}

// readThrough runs one row: the client uses the device of a daemon, to which the fault is added.
func (p *perfPlay) readThrough(fault string) {
	ctx, cancel := context.WithTimeout(p.Context(), rowTimeout)
	defer cancel()
	d := p.startDaemon(ctx)
	d.do(ctx, "fault add "+fault+" --admin "+d.admin)
	tool := p.theirs(ctx)
	peer, err := p.vm.Start(ctx, tool[0], tool[1:]...)
	p.must(err)
	p.must(p.vm.WaitListen(ctx, listenPort))
	d.do(ctx, "perf read bw -x 0 --timeout 30s "+p.options+" --socket "+d.socket+" "+p.vm.IPv4.String())
	if p.Failed() {
		peer.Kill() // it would wait for ever
	}
	result, err := peer.Wait()
	p.judge(tool, result, err)
	d.do(ctx, "fault list --admin "+d.admin)
}
