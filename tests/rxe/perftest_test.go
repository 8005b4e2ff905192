package rxe

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/goroce/goroce/tests/rxe/lab"
)

// perfRow is one run of goroced perf against the C tool of the same operation and
// test, OP_TEST, with the same options.
type perfRow struct {
	tool, side, link, family string
	options                  string // of both ends
	own                      string // further options of goroced
}

// perfRows returns every tool in both roles, and in either role the options that change the
// exchange of parameters or the data path. Two kinds of options are left out because they hang
// with rdma_rxe at both ends, too: -e of the C tools (ib_send_lat, 6.12), and -c UC with several
// QPs and -b (`ib_send_bw -c UC -n 50 -q 7 -b -s 9999`, 6.1), as the C tool waits for ever for
// messages that UC has lost.
func perfRows() []perfRow {
	sides := []string{client, server}
	var rows []perfRow
	for _, side := range sides {
		for _, tool := range []string{"send_bw", "write_bw", "read_bw", "atomic_bw", "send_lat", "write_lat",
			"read_lat", "atomic_lat"} {
			rows = append(rows, perfRow{tool, side, udp, v4, "-n 100", ""})
		}
		for _, tool := range []string{"send_bw", "write_bw", "read_bw", "send_lat", "write_lat", "read_lat"} {
			rows = append(rows, perfRow{tool, side, udp, v4, "-R -n 100", ""})
		}
		rows = append(rows, perfRow{"send_lat", side, udp, v4, "-R -n 50 -c UD", ""})
	}
	for i, r := range []perfRow{
		{"send_bw", "", udp, v4, "-n 50 -b -q 3", ""},
		{"write_bw", "", udp, v4, "-n 50 -b -q 3", ""},
		{"read_bw", "", udp, v6, "-n 50 -q 2 -s 10000 -b", ""},
		{"write_bw", "", rawsock, v6, "-n 50 -c UC", ""},
		{"send_bw", "", udp, v4, "-n 5 -a -c UD", ""},
		{"send_bw", "", udp, v4, "-n 5 -a -b -c UD", ""},
		{"send_lat", "", udp, v4, "-n 100 -c UD", ""},
		{"send_lat", "", udp, v4, "-n 5 -a -c UD", ""},
		{"write_lat", "", udp, v4, "-n 300 -c UC -s 3000", ""},
		{"send_lat", "", udp, v4, "-n 100", "-e"},
		{"send_bw", "", udp, v4, "-n 50 -m 512 -s 4000", "-e"},
		{"atomic_bw", "", udp, v4, "-n 50 -A CMP_AND_SWAP -o 4", ""},
		{"send_bw", "", udp, v4, "-D 2", ""},
		{"write_bw", "", udp, v4, "-D 2 --report_gbits", ""},
		{"send_lat", "", udp, v4, "-D 2", ""},
		{"write_bw", "", rawsock, v4, "-R -n 50 -b -q 3", ""},
		{"send_bw", "", udp, v4, "-R -n 5 -a -b -c UD", ""},
		{"read_bw", "", udp, v4, "-R -D 2 -o 4", ""},
	} {
		r.side = sides[i%2]
		rows = append(rows, r)
	}
	// All sizes up to 8 MiB, which takes long.
	return append(rows, perfRow{"write_bw", client, udp, v4, "-n 5 -a", ""},
		perfRow{"write_bw", server, udp, v4, "-n 5 -a -b", ""})
}

// command is the tool, by address or by socket.
func (r perfRow) command() string {
	return r.tool + strings.Repeat(" -R", strings.Count(r.options, "-R "))
}

func (r perfRow) name() string {
	return fmt.Sprintf("%s-%s-%s-%s-%s", r.tool, r.side, r.link, r.family, strings.ReplaceAll(r.options+r.own, " ", ""))
}

// TestPerftest runs goroced perf against the real perftest.
func TestPerftest(t *testing.T) {
	lab.Require(t, lab.Kernels()...)
	goroced := build(t)
	lab.ForEachKernel(t, func(t *testing.T, kernel lab.Kernel) {
		for _, r := range rowsFor(kernel, perfRows(), perfRow.command, perfRow.name) {
			lab.Row(t, r.name(), func(t testing.TB) {
				l := lab.Shared(t, kernel)
				p := &perfPlay{perfRow: r}
				p.pingpong = pingpong{TB: t, lab: l, vm: l.VMs[0], goroced: goroced,
					row: row{side: r.side, link: r.link, family: r.family}}
				p.run()
			})
		}
	})
}

type perfPlay struct {
	perfRow
	pingpong
}

func (p *perfPlay) run() {
	ctx, cancel := context.WithTimeout(context.Background(), rowTimeout)
	defer cancel()
	quiet(p.TB, p.lab)
	before, err := p.vm.Counters(ctx)
	p.must(err)
	if p.side == client {
		p.toTool(ctx)
	} else {
		p.fromTool(ctx)
	}
	after, err := p.vm.Counters(context.Background())
	p.must(err)
	p.explain(before, after)
}

// toTool connects goroced to the C tool.
func (p *perfPlay) toTool(ctx context.Context) {
	tool := p.theirs(ctx)
	peer, err := p.vm.Start(ctx, tool[0], tool[1:]...)
	p.must(err)
	if p.byCM() {
		err = p.vm.WaitListenCM(ctx, listenPort)
	} else {
		err = p.vm.WaitListen(ctx, listenPort)
	}
	p.must(err)
	out, err := p.ours(ctx, p.vm.IPv4.String()).CombinedOutput()
	if err != nil {
		p.Errorf("goroced perf: %v\n%s", err, out)
		peer.Kill() // it would wait for ever
	}
	result, err := peer.Wait()
	p.judge(tool, result, err)
	p.sameRows(string(out), result.Stdout)
}

// fromTool connects the C tool to goroced.
func (p *perfPlay) fromTool(ctx context.Context) {
	us := &ourProcess{Cmd: p.ours(ctx), t: p.TB, ready: make(chan struct{})}
	us.Stdout, us.Stderr = us, us
	p.must(us.Start())
	us.waitReady(ctx)
	tool := append(p.theirs(ctx), p.lab.HostIPv4.String())
	result, err := p.vm.Run(ctx, tool[0], tool[1:]...)
	if !p.judge(tool, result, err) {
		us.Process.Kill()
	}
	if err := us.Wait(); err != nil {
		p.Errorf("goroced perf: %v\n%s", err, us.output())
	}
	p.sameRows(us.output(), result.Stdout)
}

// byCM reports whether the ends connect by rdma_cm.
func (p *perfPlay) byCM() bool { return strings.Contains(p.options, "-R") }

// sameRows checks that the tables of both ends have the same sizes, unless the server of a
// one-sided test prints none of its own.
func (p *perfPlay) sameRows(ours, theirs string) {
	our, their := sizes(ours), sizes(theirs)
	fromServer, fromClient := their, our
	if p.side == server {
		fromServer, fromClient = our, their
	}
	alone := !strings.Contains(p.options, "-b") && !strings.HasPrefix(p.perfRow.tool, "send") &&
		p.perfRow.tool != "write_lat"
	switch {
	case len(fromClient) == 0:
		p.Error("no results")
	case alone && strings.HasSuffix(p.perfRow.tool, "lat"):
		fromServer = fromClient
	case alone: // the last row, as the client reports it
		fromClient = fromClient[len(fromClient)-1:]
	}
	if fmt.Sprint(fromServer) != fmt.Sprint(fromClient) {
		p.Errorf("the server has rows of %v, the client of %v\ngoroced perf:\n%s\nC tool:\n%s", fromServer, fromClient,
			ours, theirs)
	}
	if p.Failed() {
		return
	}
	p.Logf("%s", lastRow(ours))
	p.Logf("%s", lastRow(theirs))
}

// sizes returns the first column of the table of results.
func sizes(out string) (list []int) {
	for _, line := range table(out) {
		if f := strings.Fields(line); len(f) >= 4 {
			if n, err := strconv.Atoi(f[0]); err == nil {
				list = append(list, n)
			}
		}
	}
	return list
}

// table returns the lines below the last heading.
func table(out string) []string {
	_, rows, _ := strings.Cut(out, " #bytes")
	return strings.Split(rows, "\n")
}

func lastRow(out string) string {
	last := ""
	for _, line := range table(out) {
		if f := strings.Fields(line); len(f) >= 4 {
			last = line
		}
	}
	return last
}

func (p *perfPlay) ours(ctx context.Context, args ...string) *exec.Cmd {
	op, test, _ := strings.Cut(p.perfRow.tool, "_")
	list := append([]string{"perf", op, test, "--link", p.perfRow.link, "--addr", p.hostAddr().String(), "-x", "0",
		"-u", patience,
		"--timeout", (rowTimeout / 2).String()}, strings.Fields(p.options)...)
	list = append(append(list, strings.Fields(p.own)...), args...)
	if p.perfRow.link == udp {
		return p.lab.HostCommandAs(ctx, "nobody", p.goroced, list...)
	}
	return p.lab.HostCommand(ctx, p.goroced, list...)
}

func (p *perfPlay) theirs(ctx context.Context) []string {
	index, err := p.vm.GIDIndex(ctx, p.vmAddr())
	p.must(err)
	return append([]string{"ib_" + p.perfRow.tool, "-d", lab.RxeDev, "-x", strconv.Itoa(index), "-F", "-u", patience},
		strings.Fields(p.options)...)
}
