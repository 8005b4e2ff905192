package conformance

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/goroce/goroce/tests/require"
	"github.com/goroce/goroce/tests/rxe/lab"
)

// rxeTimeout bounds one run of the suite against a guest, which is emulated.
const rxeTimeout = 15 * time.Minute

// rxeLimit bounds each half of a case. Between a retry and the next ACK rxe heeds no NAK
// (rxe_comp.c, started_retry), so another packet that a busy machine loses then costs it a
// whole timeout, more than a second.
const rxeLimit = time.Minute

// rxePort is where a guest serves.
const rxePort = 7471

// all runs every combination; without it kernels, links and families come in pairs.
var all = flag.Bool("rxe.all", false, "run each link and family against each kernel of the rxe lab")

// rxePairs are the links and families of each kernel: between them every two of the
// three meet.
var rxePairs = map[lab.Kernel][][2]string{
	lab.Linux61:  {{"udp", "IPv4"}, {"rawsock", "IPv6"}},
	lab.Linux612: {{"udp", "IPv6"}, {"rawsock", "IPv4"}},
}

// TestRxe runs the suite with rdma_rxe: goroce on the host against a guest's, and
// two halves in one guest. In a guest the device is driven by package rnic.
func TestRxe(t *testing.T) {
	lab.Require(t, lab.Kernels()...)
	withRNIC, software := buildCommand(t, "rnic"), buildCommand(t, "")
	lab.ForEachKernel(t, func(t *testing.T, kernel lab.Kernel) {
		r := &rxeRun{kernel: kernel, software: software, guest: withRNIC}
		if kernel == lab.Linux612 {
			r.user = lab.Debian13(t) // FLUSH takes a provider that has it, too
		}
		pairs := rxePairs[kernel]
		if *all {
			pairs = slices.Concat(slices.Collect(maps.Values(rxePairs))...)
		}
		for _, pair := range pairs {
			link, family := pair[0], pair[1]
			t.Run(fmt.Sprintf("%s-to-rxe/%s", link, family), func(t *testing.T) {
				r.run(t, family, func(ctx context.Context, l *lab.Lab) ([]byte, error) { return r.host(ctx, l, link, family) })
			})
		}
		t.Run("rxe-to-itself", func(t *testing.T) { r.run(t, "IPv4", r.inside) })
	})
}

// buildCommand compiles the command where any user can run it.
func buildCommand(t *testing.T, tag string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "goroce-conformance-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "conformance")
	cmd := exec.Command("go", "build", "-tags", tag, "-o", path, "./cmd/conformance")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if tag != "" {
		if _, err := os.Stat("/usr/include/infiniband/verbs.h"); err != nil {
			require.Missing(t, "no libibverbs-dev (.ci/packages installs it): %v", err)
		}
		cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return path
}

type rxeRun struct {
	kernel          lab.Kernel
	software, guest string // the command, for each side
	user            lab.Userland
}

// run has lead play the suite with a server in the guest, and reports what came of it.
// A guest that the emulator has broken is no result: there is one more try.
func (r *rxeRun) run(t *testing.T, family string, lead func(context.Context, *lab.Lab) ([]byte, error)) {
	out, err := r.play(t, family, lead)
	if lab.EmulatorFault(err) {
		t.Logf("once more, for the emulator broke the guest: %v", err)
		out, err = r.play(t, family, lead)
	}
	if n := outcomes(t, out); err != nil && !t.Failed() || n == 0 {
		t.Errorf("after %d items: %v", n, err)
	}
}

// play starts a server in the guest and leads. It returns what the leader printed.
func (r *rxeRun) play(t *testing.T, family string, lead func(context.Context, *lab.Lab) ([]byte, error)) (out []byte, err error) {
	ctx, cancel := context.WithTimeout(t.Context(), rxeTimeout)
	defer cancel()
	l := lab.Shared(t, r.kernel)
	vm := l.VMs[0]
	if err := errors.Join(vm.CopyIn(ctx, r.guest, "/bin/conformance"), r.user.CopyIn(ctx, vm)); err != nil {
		return nil, err
	}
	serving, stop := context.WithCancel(ctx)
	command := r.user.Command(nil, "/bin/conformance", "serve", "-device", "rnic:"+lab.RxeDev, "-gid", guestAddr(vm, family).String(),
		"-listen", fmt.Sprintf(":%d", rxePort))
	p, err := vm.Start(serving, command[0], command[1:]...)
	if err != nil {
		stop()
		return nil, err
	}
	defer func() {
		stop()
		if result, ended := p.Wait(); !errors.Is(ended, context.Canceled) {
			err = errors.Join(err, fmt.Errorf("the server in the guest ended: %w, exit code %d\n%s%s", ended, result.ExitCode, result.Stdout, result.Stderr))
		}
	}()
	if err := vm.WaitListen(ctx, rxePort); err != nil {
		return nil, err
	}
	return lead(ctx, l)
}

func guestAddr(vm *lab.VM, family string) netip.Addr {
	if family == "IPv4" {
		return vm.IPv4
	}
	return vm.IPv6
}

// host leads from the host's namespace, over udp as an ordinary user.
func (r *rxeRun) host(ctx context.Context, l *lab.Lab, link, family string) ([]byte, error) {
	addr := l.HostIPv4
	if family == "IPv6" {
		addr = l.HostIPv6
	}
	device := "udp:" + addr.String()
	if link == "rawsock" {
		device = "rawsock:" + l.HostDev
	}
	args := append(leadArgs(fmt.Sprintf("%v:%d", l.VMs[0].IPv4, rxePort)), "-device", device, "-gid", addr.String(), "-flush-rxe")
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

func leadArgs(peer string) []string {
	return []string{"run", "-json", "-case", os.Getenv("GOROCE_CASES"), "-limit", rxeLimit.String(), "-peer", peer}
}

// inside leads in the guest, on the device that serves.
func (r *rxeRun) inside(ctx context.Context, l *lab.Lab) ([]byte, error) {
	vm := l.VMs[0]
	args := append(leadArgs(fmt.Sprintf("127.0.0.1:%d", rxePort)), "-device", "rnic:"+lab.RxeDev, "-gid", vm.IPv4.String())
	command := r.user.Command(nil, "/bin/conformance", args...)
	result, err := vm.Run(ctx, command[0], command[1:]...)
	if err == nil && result.ExitCode != 0 {
		err = fmt.Errorf("exit code %d: %s", result.ExitCode, result.Stderr)
	}
	return []byte(result.Stdout), err
}

// outcomes makes a subtest of each line that the command has printed, and returns how
// many there were.
func outcomes(t *testing.T, printed []byte) (n int) {
	lines := bufio.NewScanner(bytes.NewReader(printed))
	lines.Buffer(nil, maxLine)
	for ; lines.Scan(); n++ {
		var o Outcome
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			t.Errorf("%q: %v", lines.Text(), err)
			continue
		}
		t.Run(o.Name, func(t *testing.T) {
			switch {
			case o.Err != "":
				t.Errorf("after %d ms: %s", o.Millis, o.Err)
			case o.Skip != "":
				t.Skip(o.Skip)
			case o.Note != "":
				t.Log(o.Note)
			}
		})
	}
	return n
}
