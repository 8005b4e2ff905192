package rxe

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path"
	"slices"
	"testing"
	"time"

	"github.com/goroce/goroce/tests/conformance"
	"github.com/goroce/goroce/tests/require"
	"github.com/goroce/goroce/tests/rxe/lab"
)

// suiteTimeout bounds one run of the suite against a guest, which is emulated.
const suiteTimeout = 15 * time.Minute

// caseLimit bounds each half of a case. Between a retry and the next ACK rxe ignores NAKs
// (rxe_comp.c, started_retry), so if a busy machine loses another packet then, rxe waits for a
// whole timeout, more than a second.
const caseLimit = time.Minute

// suitePort is the port of the server in a guest.
const suitePort = 7471

// suitePairs are the links and families for each kernel. Together they cover every pair of
// kernel, link and family. In full each takes its part of the cases, so that each case is played with each kernel, and
// with each link; -rxe.all plays all cases with each pair, and a plain run a third of what a full one does.
var suitePairs = map[lab.Kernel][][2]string{
	lab.Linux61:  {{"udp", "IPv4"}, {"rawsock", "IPv6"}},
	lab.Linux612: {{"rawsock", "IPv4"}, {"udp", "IPv6"}},
}

// choice is the cases of a run: those of a pattern, or of a part ("0/2": each second one, from the first on).
type choice struct{ cases, part string }

// TestConformance runs the suite of tests/conformance with rdma_rxe: goroce on the host against a guest's, whose device
// is driven by package rnic. In full also with loss of connection managers' messages, and, with the newest kernel, two
// halves in one guest, which shows that the suite asks for what rdma_rxe does.
func TestConformance(t *testing.T) {
	lab.Require(t, lab.Kernels()...)
	software, withRNIC := buildConformance(t)
	lab.ForEachKernel(t, func(t *testing.T, kernel lab.Kernel) {
		r := &suite{kernel: kernel, software: software, guest: withRNIC}
		if kernel == lab.Linux612 {
			r.user = lab.Debian13(t) // FLUSH also needs a provider that supports it
		}
		chosen := choice{cases: os.Getenv("GOROCE_CASES")}
		pairs := suitePairs[kernel]
		if *all {
			pairs = slices.Concat(slices.Collect(maps.Values(suitePairs))...)
		}
		for i, pair := range pairs {
			link, family, part := pair[0], pair[1], chosen
			if !*all && chosen.cases == "" {
				part.part = fmt.Sprintf("%d/%d", i, require.Rounds(3, 1)*len(pairs))
			}
			t.Run(fmt.Sprintf("%s-to-rxe/%s", link, family), func(t *testing.T) {
				r.run(t, family, part, r.host(link, family))
			})
		}
		if !*all && !require.Full() {
			return
		}
		if kernels := lab.Kernels(); *all || kernel == kernels[len(kernels)-1] {
			t.Run("rxe-to-itself", func(t *testing.T) { r.run(t, "IPv4", chosen, r.inside) })
		}
		t.Run("cm-loss", func(t *testing.T) { r.loseCM(t, suitePairs[kernel][0]) })
	})
}

var lossFull = flag.Bool("cm.loss.full", false,
	"play all cases with loss of connection managers' messages: 2 minutes a kernel")

// cmLoss is the percentage of the connection managers' messages that are lost.
const cmLoss = 20

// lossCases pass although messages of connection managers are lost, but take seconds: Linux
// retransmits a REQ after 4.6 s. They do not include refusals, which are not repeated, and
// connections ended by Close, of which the kernel notifies the peer only once.
var lossCases = []string{"cm/connect/rc", "cm/connect/data-instead-of-rtu", "cm/disconnect/by-the-passive",
	"cm/disconnect/by-both", "cm/reject/nobody-listens"}

// loseCM runs cases that connect and disconnect while messages to QP 1 are lost, both ways.
func (r *suite) loseCM(t *testing.T, pair [2]string) {
	if os.Getenv("GOROCE_CASES") != "" {
		t.Skip("skipped: needs GOROCE_CASES to be unset: it names the cases of the other runs")
	}
	l := lab.Shared(t, r.kernel)
	if err := l.SetCMLoss(cmLoss); err != nil {
		t.Fatal(err)
	}
	list := lossCases
	if !*lossFull {
		list = list[:1]
	}
	for range 20 { // one connection may be lucky
		for _, cases := range list {
			r.run(t, pair[1], choice{cases: cases}, r.host(pair[0], pair[1]))
		}
		dropped, err := l.Dropped()
		if err != nil {
			t.Fatal(err)
		}
		if dropped > 0 || t.Failed() {
			t.Logf("%d messages were lost", dropped)
			return
		}
	}
	t.Error("no message was lost")
}

type suite struct {
	kernel          lab.Kernel
	software, guest string // the command, for each side
	user            lab.Userland
}

// leader runs cases against the server in a guest. It returns the output of the command.
type leader func(ctx context.Context, l *lab.Lab, cases choice) ([]byte, error)

// run runs the suite by lead with a server in the guest, and makes a subtest of each outcome.
// If a bug of the emulator has ended the guest, the suite is run once more.
func (r *suite) run(t *testing.T, family string, cases choice, lead leader) {
	outcomes, err := r.play(t, family, lead, cases)
	if lab.EmulatorFault(err) {
		t.Logf("the emulator broke the guest: %v", err)
		if lab.TryAgain(t, t.Name()) {
			outcomes, err = r.play(t, family, lead, cases)
		}
	}
	failed := false
	for _, o := range outcomes {
		failed = failed || o.Err != ""
		t.Run(o.Name, func(t *testing.T) {
			if o.Err != "" {
				t.Logf("after %d ms: %s", o.Millis, o.Err)
				if lab.TryAgain(t, t.Name()) {
					o = r.again(t, family, lead, o.Name)
				}
			}
			switch {
			case o.Err != "":
				t.Errorf("after %d ms: %s", o.Millis, o.Err)
			case o.Skip != "":
				t.Skip("skipped: " + o.Skip)
			case o.Note != "":
				t.Log(o.Note)
			}
		})
	}
	if err != nil && !failed || len(outcomes) == 0 {
		t.Errorf("after %d items: %v", len(outcomes), err)
	}
}

// again runs only the case of one item, and returns the outcome of that item.
func (r *suite) again(t *testing.T, family string, lead leader, item string) conformance.Outcome {
	outcomes, err := r.play(t, family, lead, choice{cases: path.Dir(item)})
	for _, o := range outcomes {
		if o.Name == item {
			return o
		}
	}
	return conformance.Outcome{Name: item, Err: fmt.Sprintf("the second try printed no such item: %v", err)}
}

// play starts a server in the guest and calls lead.
func (r *suite) play(t *testing.T, family string, lead leader, cases choice) (outcomes []conformance.Outcome,
	err error) {
	ctx, cancel := context.WithTimeout(t.Context(), suiteTimeout)
	defer cancel()
	l := lab.Shared(t, r.kernel)
	vm := l.VMs[0]
	if err := errors.Join(vm.CopyIn(ctx, r.guest, "/bin/conformance"), r.user.CopyIn(ctx, vm)); err != nil {
		return nil, err
	}
	serving, stop := context.WithCancel(ctx)
	command := r.user.Command(nil, "/bin/conformance", "serve", "-device", "rnic:"+lab.RxeDev, "-gid",
		guestAddr(vm, family).String(),
		"-listen", fmt.Sprintf(":%d", suitePort))
	p, err := vm.Start(serving, command[0], command[1:]...)
	if err != nil {
		stop()
		return nil, err
	}
	defer func() {
		stop()
		if result, ended := p.Wait(); !errors.Is(ended, context.Canceled) {
			err = errors.Join(err, fmt.Errorf("the server in the guest ended: %w, exit code %d\n%s%s", ended,
				result.ExitCode, result.Stdout, result.Stderr))
		}
	}()
	if err := vm.WaitListen(ctx, suitePort); err != nil {
		return nil, err
	}
	out, err := lead(ctx, l, cases)
	outcomes, malformed := conformance.ReadOutcomes(out)
	return outcomes, errors.Join(err, malformed)
}

func guestAddr(vm *lab.VM, family string) netip.Addr {
	if family == "IPv4" {
		return vm.IPv4
	}
	return vm.IPv6
}

// host returns a leader in the host's namespace. Over udp it runs as an ordinary user.
func (r *suite) host(link, family string) leader {
	return func(ctx context.Context, l *lab.Lab, cases choice) ([]byte, error) {
		addr := l.HostIPv4
		if family == "IPv6" {
			addr = l.HostIPv6
		}
		device := "udp:" + addr.String()
		if link == "rawsock" {
			device = "rawsock:" + l.HostDev
		}
		args := append(leadArgs(fmt.Sprintf("%v:%d", l.VMs[0].IPv4, suitePort), cases),
			"-device", device, "-gid", addr.String(), "-flush-rxe")
		cmd := l.HostCommand(ctx, r.software, args...)
		if link == "udp" {
			cmd = l.HostCommandAs(ctx, "nobody", r.software, args...)
		}
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		err := cmd.Run()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, stderr.Bytes())
		}
		return stdout.Bytes(), err
	}
}

func leadArgs(peer string, c choice) []string {
	args := []string{"run", "-json", "-case", c.cases, "-limit", caseLimit.String(), "-peer", peer}
	if c.part != "" {
		args = append(args, "-part", c.part)
	}
	return args
}

// inside is a leader in the guest, on the same device as the server.
func (r *suite) inside(ctx context.Context, l *lab.Lab, cases choice) ([]byte, error) {
	vm := l.VMs[0]
	args := append(leadArgs(fmt.Sprintf("127.0.0.1:%d", suitePort), cases), "-device", "rnic:"+lab.RxeDev, "-gid",
		vm.IPv4.String())
	command := r.user.Command(nil, "/bin/conformance", args...)
	result, err := vm.Run(ctx, command[0], command[1:]...)
	if err == nil && result.ExitCode != 0 {
		err = fmt.Errorf("exit code %d: %s", result.ExitCode, result.Stderr)
	}
	return []byte(result.Stdout), err
}
