package conformance

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/goroce/goroce/tests/require"
	"github.com/goroce/goroce/tests/rxe/lab"
)

// rxeTimeout bounds one run of the suite against a guest, which is emulated.
const rxeTimeout = 15 * time.Minute

// rxePort is where a guest serves.
const rxePort = 7471

// TestRxe runs the suite with rdma_rxe: goroce on the host against a guest's, and
// two halves in one guest. In a guest the device is driven by package rnic.
func TestRxe(t *testing.T) {
	lab.Require(t, lab.Kernels()...)
	withRNIC, software := buildCommand(t, "rnic"), buildCommand(t, "")
	lab.ForEachKernel(t, func(t *testing.T, kernel lab.Kernel) {
		r := &rxeRun{t: t, kernel: kernel, software: software, guest: withRNIC}
		if kernel == lab.Linux612 {
			r.user = lab.Debian13(t) // FLUSH takes a provider that has it, too
		}
		for _, link := range []string{"udp", "rawsock"} {
			for _, family := range []string{"IPv4", "IPv6"} {
				t.Run(fmt.Sprintf("%s-to-rxe/%s", link, family), func(t *testing.T) { r.host(t, link, family) })
			}
		}
		t.Run("rxe-to-itself", func(t *testing.T) { r.inside(t) })
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
	t               *testing.T
	kernel          lab.Kernel
	software, guest string // the command, for each side
	user            lab.Userland
}

// serve starts a server in the guest.
func (r *rxeRun) serve(t *testing.T, ctx context.Context, family string) (l *lab.Lab, vm *lab.VM) {
	t.Helper()
	l = lab.Shared(t, r.kernel)
	vm = l.VMs[0]
	if err := errors.Join(vm.CopyIn(ctx, r.guest, "/bin/conformance"), r.user.CopyIn(ctx, vm)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	command := r.user.Command(nil, "/bin/conformance", "serve", "-device", "rnic:"+lab.RxeDev, "-gid", guestAddr(vm, family).String(),
		"-listen", fmt.Sprintf(":%d", rxePort))
	p, err := vm.Start(ctx, command[0], command[1:]...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		if result, err := p.Wait(); !errors.Is(err, context.Canceled) {
			t.Errorf("the server in the guest ended: %v, exit code %d\n%s%s", err, result.ExitCode, result.Stdout, result.Stderr)
		}
	})
	if err := vm.WaitListen(ctx, rxePort); err != nil {
		t.Fatal(err)
	}
	return l, vm
}

func guestAddr(vm *lab.VM, family string) netip.Addr {
	if family == "IPv4" {
		return vm.IPv4
	}
	return vm.IPv6
}

// host leads from the host's namespace, over udp as an ordinary user.
func (r *rxeRun) host(t *testing.T, link, family string) {
	ctx, cancel := context.WithTimeout(t.Context(), rxeTimeout)
	defer cancel()
	l, vm := r.serve(t, ctx, family)
	addr := l.HostIPv4
	if family == "IPv6" {
		addr = l.HostIPv6
	}
	device := "udp:" + addr.String()
	if link == "rawsock" {
		device = "rawsock:" + l.HostDev
	}
	args := append(leadArgs(fmt.Sprintf("%v:%d", vm.IPv4, rxePort)), "-device", device, "-gid", addr.String(), "-flush-rxe")
	cmd := l.HostCommand(ctx, r.software, args...)
	if link == "udp" {
		cmd = l.HostCommandAs(ctx, "nobody", r.software, args...)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	n := outcomes(t, out)
	if err := cmd.Wait(); err != nil && !t.Failed() || n == 0 {
		t.Errorf("after %d items: %v\n%s", n, err, stderr.Bytes())
	}
}

func leadArgs(peer string) []string {
	return []string{"run", "-json", "-case", os.Getenv("GOROCE_CASES"), "-peer", peer}
}

// inside leads in the guest, on the device that serves.
func (r *rxeRun) inside(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), rxeTimeout)
	defer cancel()
	_, vm := r.serve(t, ctx, "IPv4")
	args := append(leadArgs(fmt.Sprintf("127.0.0.1:%d", rxePort)), "-device", "rnic:"+lab.RxeDev, "-gid", vm.IPv4.String())
	command := r.user.Command(nil, "/bin/conformance", args...)
	result, err := vm.Run(ctx, command[0], command[1:]...)
	n := outcomes(t, bytes.NewReader([]byte(result.Stdout)))
	if err != nil || result.ExitCode != 0 && !t.Failed() || n == 0 {
		t.Errorf("after %d items: %v, exit code %d\n%s", n, err, result.ExitCode, result.Stderr)
	}
}

// outcomes makes a subtest of each line that the command prints, and returns how
// many there were.
func outcomes(t *testing.T, r io.Reader) (n int) {
	lines := bufio.NewScanner(r)
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
