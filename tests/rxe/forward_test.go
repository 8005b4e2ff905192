package rxe

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/tests/rxe/lab"
)

var (
	forwardFull = flag.Bool("forward.full", false,
		"TestForwarder plays every network, with every tool, both ways and between two guests")
	forwardLoss = flag.Bool("forward.loss", false,
		"TestForwarder measures the rates of 200 messages at losses of 1, 3 and 5 %, instead")
	forwardSeed = flag.Uint64("forward.seed", 1, "seed of the networks of TestForwarder")
)

// forwardRow is a network, the same each way, and how many iterations the tools run over it.
type forwardRow struct {
	name string
	net  wrap.FaultConfig
	// timeout is our local ACK timeout, if the tool has an option for it. An emulated guest
	// on a busy machine may stop for a second, so eight timeouts must take longer than that:
	// they take 1.1 s with 15, 4.3 s with 17. rdma_rxe uses 14, 67 ms, as its tools set it: it
	// retries for ever, but after some losses it waits for a timeout.
	timeout int
	few     bool // run a tenth of the iterations, as the network is slow
	short   bool // included without -forward.full
}

// forwardRows are the networks of TestConditions in package roce, with a bottleneck that
// emulated guests can fill.
var forwardRows = []forwardRow{
	{name: "perfect", timeout: 17},
	{name: "loss=7%", net: wrap.FaultConfig{Drop: 0.07}, timeout: 15, short: true},
	{name: "loss=15%", net: wrap.FaultConfig{Drop: 0.15}, timeout: 15, few: true},
	{name: "bursts", net: wrap.FaultConfig{Burst: wrap.Burst{Begin: 0.005, End: 0.3, Loss: 0.7}}, timeout: 15},
	{name: "duplicates=10%", net: wrap.FaultConfig{Duplicate: 0.1}, timeout: 17},
	{name: "reorder=10%", net: wrap.FaultConfig{Reorder: 0.1}, timeout: 17},
	{name: "late=5%,2ms", net: wrap.FaultConfig{Late: 0.05, LateBy: 2 * time.Millisecond}, timeout: 17},
	{name: "late=30%,5ms", net: wrap.FaultConfig{Late: 0.3, LateBy: 5 * time.Millisecond}, timeout: 17, few: true},
	{name: "jitter=200us", net: wrap.FaultConfig{Latency: time.Millisecond, Jitter: 200 * time.Microsecond},
		timeout: 17,
		few:     true},
	{name: "latency=100ms", net: wrap.FaultConfig{Latency: 100 * time.Millisecond}, timeout: 14, few: true},
	{name: "corrupt=2%", net: wrap.FaultConfig{Corrupt: 0.02}, timeout: 17, short: true},
	{name: "checksum=5%", net: wrap.FaultConfig{BadChecksum: 0.05}, timeout: 15},
	{name: "truncate=5%", net: wrap.FaultConfig{Truncate: 0.05}, timeout: 15},
	{name: "ce=20%", net: wrap.FaultConfig{MarkCE: 0.2}, timeout: 17, short: true},
	{name: "bottleneck", net: wrap.FaultConfig{Rate: 1e8, Buffer: 2 * time.Millisecond}, timeout: 17},
}

// lossRows are the networks of -forward.loss.
var lossRows = []forwardRow{
	{name: "perfect", timeout: 14},
	{name: "loss=1%", net: wrap.FaultConfig{Drop: 0.01}, timeout: 14},
	{name: "loss=3%", net: wrap.FaultConfig{Drop: 0.03}, timeout: 14},
	{name: "loss=5%", net: wrap.FaultConfig{Drop: 0.05}, timeout: 14},
}

// forwardTool is a tool, and the equivalent command of goroced. In the commands $ME and $PEER
// are addresses, $GID the index of $ME in a guest, $T the local ACK timeout, $N the iterations.
type forwardTool struct {
	name                   string
	theirs, ours           string
	theirClient, ourClient string
	count                  int
	port                   int
	byCM, bandwidth        bool
	rate                   *regexp.Regexp // the rate in the client's output; nil if only success counts
	unit                   string
}

var forwardTools = []forwardTool{
	{name: "rping", count: 10, port: 7174, byCM: true,
		theirs: "rping -s -a $ME -C $N -S 1000 -V", theirClient: "rping -c -a $PEER -C $N -S 1000 -V",
		ours: "rping -s -a $ME -S 1000", ourClient: "rping -c -a $PEER -C $N -S 1000 -V"},
	perfTool("write"), perfTool("read"), perfTool("send"),
	{name: "pingpong", count: 60, port: listenPort,
		theirs: "ibv_rc_pingpong -d rxe0 -g $GID -c -n $N", theirClient: "ibv_rc_pingpong -d rxe0 -g $GID -c -n $N " +
			"$PEER",
		ours:      "pingpong -c -g 0 -n $N --ack-timeout $T --timeout 60s",
		ourClient: "pingpong -c -g 0 -n $N --ack-timeout $T --timeout 60s $PEER",
		rate:      regexp.MustCompile(`= ([0-9.]+) usec/iter`), unit: "us"},
}

func perfTool(op string) forwardTool {
	theirs := "ib_" + op + "_bw -d rxe0 -x $GID -F -n $N"
	ours := "perf " + op + " bw -x 0 -n $N -u $T --timeout 60s"
	rate := regexp.MustCompile(`(?m)^ *65536 +[0-9]+ +[0-9.]+ +([0-9.]+) `) // the average
	return forwardTool{name: op + "_bw", bandwidth: true, count: 20, port: listenPort, theirs: theirs,
		theirClient: theirs + " $PEER", ours: ours, ourClient: ours + " $PEER", rate: rate, unit: "MB/s"}
}

// forwardPair has the indexes of the client and the server: goroced ("us"), or a guest.
type forwardPair struct{ client, server int }

const us = 0

func (p forwardPair) String() string {
	names := [...]string{"us", "rxe", "rxe2"}
	return names[p.client] + ">" + names[p.server]
}

// cellTimeout bounds one run of a tool.
const cellTimeout = time.Minute

// slowest is the least ratio of goroce's rate with one rdma_rxe to the rate between two rdma_rxe that is not
// mentioned. Guests are emulated, and a run is short: only a quiet machine's ratio means something.
const slowest = 0.2

// TestForwarder runs tools over bad networks between goroce and rdma_rxe, and between two
// rdma_rxe, and prints the outcome of each. If rxe to rxe succeeds goroce must succeed, too;
// where it is much slower, the output says so. The tables without -forward.full have no second guest; there goroce must
// succeed.
func TestForwarder(t *testing.T) {
	kernels := []lab.Kernel{lab.Linux61} // the guest that other tests of a usual run have booted
	pairs := []forwardPair{{us, 1}, {1, us}}
	if *forwardFull {
		kernels = []lab.Kernel{lab.Linux612, lab.Linux612}
		pairs = append(pairs, forwardPair{1, 2}, forwardPair{2, 1})
	}
	lab.Require(t, kernels...)
	goroced := build(t)
	lab.Shared(t, kernels...) // boot the lab before the rows
	var lines []*forwardPlay
	short := 0 // networks of the short table
	rows, tools := forwardRows, forwardTools
	if *forwardLoss {
		rows, tools = lossRows, slices.DeleteFunc(slices.Clone(tools), func(t forwardTool) bool { return !t.bandwidth })
	}
	for _, row := range rows {
		if !row.short && !*forwardFull && !*forwardLoss {
			continue
		}
		short++ // the short table has a cell for each tool and pair
		t.Run(row.name, func(t *testing.T) {
			p := &forwardPlay{T: t, kernels: kernels, goroced: goroced, row: row, cells: map[string]outcome{}}
			lines = append(lines, p)
			for j, tool := range tools {
				if *forwardLoss {
					tool.count = 200
				}
				for k, pair := range pairs {
					if *forwardFull || *forwardLoss || (j*len(pairs)+k)%3 == short%3 {
						p.cells[tool.name+" "+pair.String()] = p.cell(tool, pair)
					}
				}
			}
			p.judge()
		})
	}
	t.Logf("seed %d\n%s", *forwardSeed, forwardTable(lines, pairs))
}

// outcome is the result of a run.
type outcome struct {
	rate string
	err  error
}

func (o outcome) String() string {
	switch {
	case errors.Is(o.err, context.DeadlineExceeded):
		return "too slow"
	case o.err != nil:
		return "FAILS"
	}
	return o.rate
}

// part returns the ratio of o's rate to other's; 1 for tools that print no rate.
func (o outcome) part(other outcome, tool forwardTool) float64 {
	ours, err := strconv.ParseFloat(o.rate, 64)
	theirs, err2 := strconv.ParseFloat(other.rate, 64)
	switch {
	case err != nil || err2 != nil:
		return 1
	case tool.unit == "us": // the time of one iteration
		return theirs / ours
	}
	return ours / theirs
}

// forwardPlay is a line of the table.
type forwardPlay struct {
	*testing.T
	kernels []lab.Kernel
	lab     *lab.Lab
	goroced string
	row     forwardRow
	cells   map[string]outcome // by the names of tool and pair
}

// judge compares goroce's outcomes with those of two rdma_rxe.
func (p *forwardPlay) judge() {
	for name, o := range p.cells {
		if isDown(o.err) {
			p.Errorf("%s: there is no result: %v", name, o.err)
			return
		}
	}
	for _, tool := range forwardTools {
		for _, pair := range []forwardPair{{us, 1}, {1, us}} {
			o, played := p.cells[tool.name+" "+pair.String()]
			theirs, compared := p.cells[tool.name+" rxe>rxe2"]
			switch {
			case !played:
			case o.err != nil && compared && theirs.err != nil:
				p.Logf("%s %v: rdma_rxe does not get through either: %v", tool.name, pair, theirs.err)
			case o.err != nil:
				p.Errorf("%s %v: %v", tool.name, pair, o.err)
			case compared && theirs.err == nil && o.part(theirs, tool) < slowest:
				p.Logf("%s %v is slow: %v, and %v between two rdma_rxe", tool.name, pair, o, theirs)
			}
		}
	}
}

// forwardTable has a line for each network, and a column for each tool and pair.
func forwardTable(lines []*forwardPlay, pairs []forwardPair) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	first, second := "tool", "client>server"
	for _, tool := range forwardTools {
		for _, pair := range pairs {
			first += "\t" + strings.TrimSpace(tool.name+" "+tool.unit)
			second += "\t" + pair.String()
		}
	}
	fmt.Fprintf(w, "%s\n%s\n", first, second)
	for _, p := range lines {
		fmt.Fprint(w, p.row.name)
		for _, tool := range forwardTools {
			for _, pair := range pairs {
				cell := "-"
				if o, ok := p.cells[tool.name+" "+pair.String()]; ok {
					cell = o.String()
				}
				fmt.Fprint(w, "\t"+cell)
			}
		}
		fmt.Fprintln(w)
	}
	w.Flush()
	return b.String()
}

// isDown reports whether a guest has died, so that the run has no result.
func isDown(err error) bool {
	var down *lab.DownError
	return errors.As(err, &down)
}

// cell runs a tool. It repeats the run up to three times if a bug of the emulator has ended a
// guest, which is then booted again, and once more if goroce has failed and lab.TryAgain permits.
func (p *forwardPlay) cell(tool forwardTool, pair forwardPair) outcome {
	o := p.play(tool, pair)
	for tries := 1; lab.EmulatorFault(o.err) && tries < 4; tries++ {
		p.Logf("%s %v: the emulator broke a guest", tool.name, pair)
		o = p.play(tool, pair)
	}
	if o.err != nil && (pair.client == us || pair.server == us) {
		p.Logf("%s %v: %v", tool.name, pair, o.err)
		if lab.TryAgain(p.T, fmt.Sprintf("%s/%s/%v", p.Name(), tool.name, pair)) {
			o = p.play(tool, pair)
		}
	}
	return o
}

// play runs a tool once, with a new forwarder.
func (p *forwardPlay) play(tool forwardTool, pair forwardPair) (o outcome) {
	p.lab = lab.Shared(p.T, p.kernels...) // boots the lab again if a guest has died
	net := p.row.net
	net.Seed = *forwardSeed
	if err := p.lab.Forward(1, net); err != nil {
		p.Fatal(err)
	}
	defer func() {
		from, to := p.lab.Forwarded()
		p.Logf("%s %v: %v; suffered from the guest %d of %d packets, to it %d of %d", tool.name, pair, o,
			suffered(from), suffered(from)+from.Passed, suffered(to), suffered(to)+to.Passed)
		if o.err == nil && !net.Perfect() && (from.Passed == 0 || to.Passed == 0) {
			o.err = errors.New("nothing has gone through the forwarder")
		}
	}()
	ctx, cancel := context.WithTimeout(p.Context(), cellTimeout)
	defer cancel()
	server, err := p.start(ctx, tool, pair.server, pair.client, false)
	if err != nil {
		return outcome{err: err}
	}
	out, err := "", server.listening(ctx, tool)
	if err == nil {
		var client forwardEnd
		if client, err = p.start(ctx, tool, pair.client, pair.server, true); err == nil {
			out, err = client.wait()
		}
	}
	if err != nil {
		server.kill()
	}
	said, serverErr := server.wait()
	if err == nil && pair.server == us && tool.byCM && missesDREQ(said) {
		serverErr = nil
	}
	if err != nil || serverErr != nil {
		return outcome{err: fmt.Errorf("%w\nclient:\n%s\nserver:\n%s", errors.Join(err, serverErr, ctx.Err()), out,
			said)}
	}
	if tool.rate == nil {
		return outcome{rate: "ok"}
	}
	rate := tool.rate.FindStringSubmatch(out)
	if rate == nil {
		return outcome{err: fmt.Errorf("the client does not print %v:\n%s", tool.rate, out)}
	}
	return outcome{rate: rate[1]}
}

// missesDREQ reports whether our server, whose client has verified all its pings, waits only for the client's DREQ.
// rping destroys its ID right after rdma_disconnect, and then the kernel repeats the DREQ no more (cm_destroy_id): if
// the network has lost it, any server waits in vain.
func missesDREQ(said string) bool { return strings.Contains(said, "the peer fell silent") }

// suffered returns how many packets were affected by a fault, apart from effects of the path.
func suffered(c wrap.FaultCounts) uint64 {
	return c.Dropped + c.Duplicated + c.Reordered + c.Delayed + c.BadChecksums + c.Marked + c.Corrupted + c.Truncated
}

// forwardEnd is one end of a run.
type forwardEnd interface {
	listening(ctx context.Context, tool forwardTool) error
	wait() (output string, err error)
	kill()
}

// start starts one end: goroced, or the tool in a guest.
func (p *forwardPlay) start(ctx context.Context, tool forwardTool, at, peer int, isClient bool) (forwardEnd, error) {
	command := map[[2]bool]string{{true, true}: tool.ourClient, {true, false}: tool.ours,
		{false, true}: tool.theirClient, {false, false}: tool.theirs}[[2]bool{at == us, isClient}]
	count := tool.count
	if p.row.few {
		count = max(count/10, 5) // perftest needs at least 5
	}
	gid := 0
	if at != us {
		var err error
		if gid, err = p.lab.VMs[at-1].GIDIndex(ctx, p.addr(at)); err != nil {
			return nil, err
		}
	}
	words := strings.Fields(strings.NewReplacer("$ME", p.addr(at).String(), "$PEER", p.addr(peer).String(),
		"$GID", strconv.Itoa(gid), "$N", strconv.Itoa(count), "$T", strconv.Itoa(p.row.timeout)).Replace(command))
	if at != us {
		vm := p.lab.VMs[at-1]
		process, err := vm.Start(ctx, words[0], words[1:]...)
		return guestEnd{vm, process}, err
	}
	words = append(words[:len(words):len(words)], "--link", udp, "--addr", p.addr(us).String())
	o := &ourProcess{t: p.T, ready: make(chan struct{})}
	o.Cmd = p.lab.HostCommandAs(ctx, "nobody", p.goroced, words...)
	o.Stdout, o.Stderr = o, o
	return ourEnd{o}, o.Start()
}

func (p *forwardPlay) addr(at int) netip.Addr {
	if at == us {
		return p.lab.HostIPv4
	}
	return p.lab.VMs[at-1].IPv4
}

type guestEnd struct {
	vm *lab.VM
	*lab.Process
}

func (e guestEnd) listening(ctx context.Context, tool forwardTool) error {
	if tool.byCM {
		return e.vm.WaitListenCM(ctx, tool.port)
	}
	return e.vm.WaitListen(ctx, tool.port)
}

func (e guestEnd) wait() (string, error) {
	result, err := e.Wait()
	if err == nil && result.ExitCode != 0 {
		err = fmt.Errorf("exit code %d", result.ExitCode)
	}
	return result.Stdout + result.Stderr, err
}

func (e guestEnd) kill() { _ = e.Kill() }

type ourEnd struct{ *ourProcess }

func (e ourEnd) listening(ctx context.Context, _ forwardTool) error {
	select {
	case <-e.ready:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%v does not listen: %w", e.Args, ctx.Err())
	}
}

func (e ourEnd) wait() (string, error) {
	err := e.Wait()
	return e.output(), err
}

func (e ourEnd) kill() { _ = e.Process.Kill() }
