package rxe

import (
	"context"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/goroce/goroce/roce/daemon/dropin"
	"github.com/goroce/goroce/tests/require"
	"github.com/goroce/goroce/tests/rxe/lab"
)

// dropinRow is one run of a program in C, unmodified, at both ends: on the host over the library of
// roce/daemon/dropin, in a guest on rdma_rxe.
type dropinRow struct {
	program string
	options string // of both ends
	own     string // further options on the host
	theirs  string // further options in the guest
	says    string // what the program on the host prints, beside results
	mtu     int    // of the link, 0 for the default
	long    bool   // takes many seconds: only with -rxe.all
	side    string // of the program on the host
}

// dropinPrograms are the programs with options that change the exchange of parameters or the data path. rdma_rxe has
// no XRC. The tools for WRITE and atomics refuse -e. perftest waits for ever for messages that UC has lost, so those
// are short.
var dropinPrograms = []dropinRow{
	{program: "ib_write_bw", options: "-n 5 -a -b", long: true},
	{program: "ib_write_bw", options: "-n 20 -b -q 4", own: "-W counters/port_xmit_data",
		theirs: "-W hw_counters/sent_pkts", says: "port_xmit_data"},
	{program: "ib_write_bw", options: "-n 10 -q 64 -s 4096"},
	{program: "ib_write_bw", options: "-n 50 -c UC"},
	{program: "ib_write_bw", options: "-n 50 -m 4096", says: "4096[B]", mtu: 9000},
	{program: "ib_read_bw", options: "-n 5 -a", theirs: "-u 14", long: true},
	{program: "ib_read_bw", options: "-n 20 -b -q 4", own: "-e"},
	{program: "ib_read_bw", options: "-n 5 -q 64 -s 4096", theirs: "-u 14"},
	{program: "ib_read_bw", options: "-n 50 -m 2048", says: "2048[B]", mtu: 9000},
	{program: "ib_send_bw", options: "-n 5 -a", long: true},
	{program: "ib_send_bw", options: "-n 50 -b", own: "-e"},
	{program: "ib_send_bw", options: "-n 10 -q 64 -s 4096"},
	{program: "ib_send_bw", options: "-n 20 --use-srq -q 4"},
	{program: "ib_send_bw", options: "-n 50 -c UC -s 1024"},
	{program: "ib_send_bw", options: "-n 5 -a -b -c UD"},
	{program: "ib_send_bw", options: "-n 50 -b -m 4096", says: "4096[B]", mtu: 9000},
	{program: "ib_atomic_bw", options: "-n 20 -b -q 4 -A CMP_AND_SWAP"},
	{program: "ib_atomic_bw", options: "-n 50"},
	{program: "ib_write_lat", options: "-n 5 -a", long: true},
	{program: "ib_write_lat", options: "-n 100"},
	{program: "ib_write_lat", options: "-n 100 -c UC -s 3000"},
	{program: "ib_read_lat", options: "-n 100", own: "-e"},
	{program: "ib_send_lat", options: "-n 100", own: "-e"},
	{program: "ib_send_lat", options: "-n 100 -c UC"},
	{program: "ib_send_lat", options: "-n 100 -c UD"},
	{program: "ib_send_lat", options: "-n 100 --use-srq"},
	{program: "ib_atomic_lat", options: "-n 100"},
	{program: "ibv_rc_pingpong", options: "-c -n 300"},
	{program: "ibv_rc_pingpong", options: "-c -e -n 300"},
	{program: "ibv_rc_pingpong", options: "-c -n 50 -s 100000 -m 4096", mtu: 9000},
	{program: "ibv_uc_pingpong", options: "-c -n 300"},
	{program: "ibv_ud_pingpong", options: "-c -n 300 -s 1024"},
	{program: "ibv_srq_pingpong", options: "-c -e -n 300"},
}

// dropinRows returns every program in both roles.
func dropinRows() []dropinRow {
	var rows []dropinRow
	for _, r := range dropinPrograms {
		for _, r.side = range []string{client, server} {
			if !r.long || *all {
				rows = append(rows, r)
			}
		}
	}
	return rows
}

func (r dropinRow) tool() string { return r.program }

// name is the command line on the host without blanks.
func (r dropinRow) name() string {
	return strings.NewReplacer(" ", "", "/", ".").Replace(r.program + "-" + r.side + r.options + r.own)
}

// TestDropin runs perftest and the ping-pongs of libibverbs over the library, as nobody, against the same on rdma_rxe.
func TestDropin(t *testing.T) {
	lab.Require(t, lab.Kernels()...)
	require.Command(t, "cc")
	goroced := build(t)
	libs := buildLibraries(t)
	lab.ForEachKernel(t, func(t *testing.T, kernel lab.Kernel) {
		for _, r := range rowsFor(kernel, dropinRows(), dropinRow.tool, dropinRow.name) {
			lab.Row(t, r.name(), func(t testing.TB) {
				l := lab.Shared(t, kernel)
				p := &dropinPlay{dropinRow: r, libs: libs}
				p.perfRow = perfRow{tool: strings.TrimPrefix(r.program, "ib_"), side: r.side, options: r.options}
				p.pingpong = pingpong{TB: t, lab: l, vm: l.VMs[0], goroced: goroced,
					row: row{side: r.side, link: udp, family: v4}}
				p.run()
			})
		}
	})
}

// dropinPlay runs a row.
type dropinPlay struct {
	dropinRow
	perfPlay
	libs   string // directory of the libraries
	daemon *ourDaemon
}

func (p *dropinPlay) run() {
	limit := rowTimeout
	if p.long {
		limit *= 3
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	quiet(p.TB, p.lab)
	if p.mtu > 0 {
		p.must(p.lab.SetMTU(p.mtu))
	}
	before, err := p.vm.Counters(ctx)
	p.must(err)
	p.daemon = p.startDaemon(ctx)
	var ours, theirs string
	if p.side == client {
		ours, theirs = p.toGuest(ctx)
	} else {
		ours, theirs = p.fromGuest(ctx)
	}
	p.compare(ours, theirs)
	after, err := p.vm.Counters(context.Background())
	p.must(err)
	p.explain(before, after)
}

// toGuest connects the program here to that in the guest, and returns what they have printed.
func (p *dropinPlay) toGuest(ctx context.Context) (ours, theirs string) {
	tool := p.inGuest(ctx)
	peer, err := p.vm.Start(ctx, tool[0], tool[1:]...)
	p.must(err)
	p.must(p.vm.WaitListen(ctx, listenPort))
	out, err := p.here(ctx, p.vm.IPv4.String()).CombinedOutput()
	if err != nil {
		p.Errorf("%s here: %v\n%s", p.program, err, out)
		peer.Kill() // it would wait for ever
	}
	result, err := peer.Wait()
	p.judge(tool, result, err)
	return string(out), result.Stdout
}

// fromGuest connects the program in the guest to that here.
func (p *dropinPlay) fromGuest(ctx context.Context) (ours, theirs string) {
	us := &ourProcess{Cmd: p.here(ctx), t: p.TB, ready: make(chan struct{})}
	us.Stdout, us.Stderr = us, us
	p.must(us.Start())
	p.waitListening(ctx)
	tool := append(p.inGuest(ctx), p.lab.HostIPv4.String())
	result, err := p.vm.Run(ctx, tool[0], tool[1:]...)
	if !p.judge(tool, result, err) {
		us.Process.Kill()
	}
	if err := us.Wait(); err != nil {
		p.Errorf("%s here: %v\n%s", p.program, err, us.output())
	}
	return us.output(), result.Stdout
}

// compare checks what both have printed: perftest its tables, a ping-pong that it has ended.
func (p *dropinPlay) compare(ours, theirs string) {
	if !strings.HasPrefix(p.program, "ibv_") {
		p.sameRows(ours, theirs)
	} else if !strings.Contains(ours, "iters in") || !strings.Contains(theirs, "iters in") {
		p.Errorf("no results here:\n%s\nor in the guest:\n%s", ours, theirs)
	}
	if strings.Contains(ours, "invalid data") {
		p.Errorf("%s here:\n%s", p.program, ours)
	}
	if !strings.Contains(ours, p.says) {
		p.Errorf("nothing here says %q:\n%s", p.says, ours)
	}
}

// here returns the command of the program over the library.
func (p *dropinPlay) here(ctx context.Context, args ...string) *exec.Cmd {
	words := append([]string{"run", "--socket", p.daemon.socket, "--"}, p.command(0)...)
	words = append(append(words, strings.Fields(p.own)...), args...)
	cmd := p.lab.HostCommandAs(ctx, "nobody", p.goroced, words...)
	cmd.Env = append(os.Environ(), "HOME="+p.daemon.dir, dropin.Variable+"="+p.libs)
	cmd.Dir = p.daemon.dir
	return cmd
}

// inGuest returns the command of the program in the guest.
func (p *dropinPlay) inGuest(ctx context.Context) []string {
	index, err := p.vm.GIDIndex(ctx, p.vmAddr())
	p.must(err)
	return append(p.command(index), strings.Fields(p.dropinRow.theirs)...)
}

// command returns what both ends have in common.
func (p *dropinPlay) command(gid int) []string {
	words := []string{p.program, "-F", "-u", patience, "-x", strconv.Itoa(gid)}
	if strings.HasPrefix(p.program, "ibv_") {
		words = []string{p.program, "-g", strconv.Itoa(gid)}
	}
	return append(words, strings.Fields(p.options)...)
}
