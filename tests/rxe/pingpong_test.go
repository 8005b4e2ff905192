// Package rxe tests goroce against Linux's rdma_rxe, in guests of the lab.
package rxe

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goroce/goroce/tests/rxe/lab"
)

// rowTimeout bounds one row, both tools.
const rowTimeout = 60 * time.Second

// TestPingpong runs the table: goroced pingpong at one end, ibv_rc_pingpong with its own
// check of the data at the other, over the link and the wire of the row. With the udp link
// goroced runs as a user without any capability.
func TestPingpong(t *testing.T) {
	lab.Require(t, lab.Kernels()...)
	goroced := build(t)
	lab.ForEachKernel(t, func(t *testing.T, kernel lab.Kernel) {
		for _, r := range rowsFor(kernel, rows, row.tool, row.name) {
			lab.Row(t, r.name(), func(t testing.TB) {
				l := lab.Shared(t, kernel)
				p := &pingpong{TB: t, lab: l, vm: l.VMs[0], goroced: goroced, row: r}
				p.run()
			})
		}
	})
}

type pingpong struct {
	testing.TB
	lab     *lab.Lab
	vm      *lab.VM
	goroced string
	row
}

func (p *pingpong) run() {
	p.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), rowTimeout)
	defer cancel()
	p.must(p.lab.SetMTU(p.mtu))
	p.must(p.lab.SetOffload(p.offload))
	p.must(p.lab.SetLoss(p.loss))
	before, err := p.vm.Counters(ctx)
	p.must(err)

	if p.side == client {
		p.asClient(ctx)
	} else {
		p.asServer(ctx)
	}

	after, err := p.vm.Counters(context.Background())
	p.must(err)
	p.explain(before, after)
}

func (p *pingpong) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

// iterations returns a number of iterations with which a row takes seconds: the guest is
// emulated, and each loss that is recovered by a timeout costs 67 ms.
func (p *pingpong) iterations() int {
	switch {
	case p.size == 1<<20 && p.loss > 0:
		return 3
	case p.size == 1<<20:
		return 10
	case p.loss > 0:
		return 60
	}
	return 300
}

func (p *pingpong) asClient(ctx context.Context) {
	tool := p.vmTool(ctx)
	peer, err := p.vm.Start(ctx, tool[0], tool[1:]...)
	p.must(err)
	p.must(p.vm.WaitListen(ctx, listenPort))
	out, err := p.ours(ctx, p.vm.IPv4.String()).CombinedOutput()
	if err != nil {
		p.Errorf("goroced pingpong: %v\n%s", err, out)
	}
	result, err := peer.Wait()
	p.judge(tool, result, err)
}

// judge reports whether the C tool succeeded. As a server it prints errors in the data, but
// exits with code 0 all the same.
func (p *pingpong) judge(tool []string, result lab.Result, err error) bool {
	p.Helper()
	if err == nil && result.ExitCode == 0 && !strings.Contains(result.Stdout, "invalid data") {
		return true
	}
	p.Errorf("%v: %v, exit code %d\n%s%s", tool, err, result.ExitCode, result.Stdout, result.Stderr)
	return false
}

func (p *pingpong) asServer(ctx context.Context) {
	var out bytes.Buffer
	cmd := p.ours(ctx)
	cmd.Stdout, cmd.Stderr = &out, &out
	p.must(cmd.Start())
	p.waitListening(ctx)
	tool := append(p.vmTool(ctx), p.lab.HostIPv4.String())
	result, err := p.vm.Run(ctx, tool[0], tool[1:]...)
	if !p.judge(tool, result, err) {
		cmd.Process.Kill()
	}
	if err := cmd.Wait(); err != nil {
		p.Errorf("goroced pingpong: %v\n%s", err, out.Bytes())
	}
}

// patience is our ACK timeout in rows without loss, a second: a guest that has to wait for
// the processor answers late, and a retransmission would count as an error.
const patience = "18"

// ours returns the command of goroced pingpong in the host's namespace; over udp it runs as
// nobody. The out-of-band exchange is always over IPv4, as ibv_rc_pingpong listens only
// there; the family of the row is that of the GIDs.
func (p *pingpong) ours(ctx context.Context, args ...string) *exec.Cmd {
	args = append([]string{"pingpong", "-c", "--link", p.link, "-s", strconv.Itoa(p.size), "-m",
		strconv.Itoa(p.pathMTU),
		"-n", strconv.Itoa(p.iterations()), "--addr", p.hostAddr().String(), "-g", "0", "--timeout",
		rowTimeout.String()}, args...)
	if p.loss == 0 {
		args = append(args, "--ack-timeout", patience)
	}
	if p.link == udp {
		return p.lab.HostCommandAs(ctx, "nobody", p.goroced, args...)
	}
	return p.lab.HostCommand(ctx, p.goroced, args...)
}

func (p *pingpong) vmTool(ctx context.Context) []string {
	index, err := p.vm.GIDIndex(ctx, p.vmAddr())
	p.must(err)
	return []string{"ibv_rc_pingpong", "-d", lab.RxeDev, "-g", strconv.Itoa(index), "-c", "-s", strconv.Itoa(p.size),
		"-m", strconv.Itoa(p.pathMTU), "-n", strconv.Itoa(p.iterations())}
}

func (p *pingpong) vmAddr() netip.Addr {
	if p.family == v4 {
		return p.vm.IPv4
	}
	return p.vm.IPv6
}

func (p *pingpong) hostAddr() netip.Addr {
	if p.family == v4 {
		return p.lab.HostIPv4
	}
	return p.lab.HostIPv6
}

const listenPort = 18515

// waitListening waits until goroced listens for the out-of-band exchange.
func (p *pingpong) waitListening(ctx context.Context) {
	p.Helper()
	for ctx.Err() == nil {
		out, err := p.lab.HostCommand(ctx, "ss", "-Hltn").Output()
		p.must(err)
		if strings.Contains(string(out), fmt.Sprintf(":%d ", listenPort)) {
			return
		}
	}
	p.Fatalf("goroced does not listen on port %d", listenPort)
}

// explain checks rxe's error counters: in a row without loss nothing may be out of order, and
// retries may never be exhausted.
func (p *pingpong) explain(before, after map[string]uint64) {
	const (
		never = iota
		whenLossy
		always
	)
	for _, c := range []struct {
		name string
		may  int // count
	}{
		{"out_of_seq_request", whenLossy}, {"rcvd_seq_err", whenLossy},
		// Our tail probes count here, if the emulated guest takes long to answer.
		{"duplicate_request", always},
		// rxe's retransmission timer is imprecise and expires now and then without
		// need, as slow emulated guests show.
		{"completer_retry_err", always},
		// The receiver may be slower than its peer.
		{"send_rnr_err", always}, {"rcvd_rnr_err", always},
		{"retry_exceeded_err", never}, {"retry_rnr_exceeded_err", never}, {"send_err", never},
	} {
		n := after[c.name] - before[c.name]
		if n == 0 {
			continue
		}
		p.Logf("rxe counted %s: %d", c.name, n)
		if c.may == never || c.may == whenLossy && p.loss == 0 {
			p.Errorf("rxe's %s went up by %d with %g %% loss", c.name, n, p.loss)
		}
	}
	if p.loss > 0 {
		dropped, err := p.lab.Dropped()
		p.must(err)
		p.Logf("the bridge dropped %d packets or runs", dropped)
	}
}
