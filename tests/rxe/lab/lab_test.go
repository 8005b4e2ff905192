package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goroce/goroce/tests/require"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

// pair returns the lab that most tests use: two guests, the first with 6.1, the second with
// the newest kernel of this run.
func pair(t *testing.T) *Lab {
	t.Helper()
	return Shared(t, Linux61, Kernels()[len(Kernels())-1])
}

// forEachKernel runs the test with a guest of every kernel of this run.
func forEachKernel(t *testing.T, test func(t *testing.T, l *Lab, vm *VM)) {
	for i, kernel := range Kernels() {
		t.Run(string(kernel), func(t *testing.T) {
			l := pair(t)
			test(t, l, l.VMs[i])
		})
	}
}

// within returns a context for one step of a test.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestBoot(t *testing.T) {
	for i, kernel := range Kernels() {
		t.Run(string(kernel), func(t *testing.T) {
			Require(t, kernel)
			begin := time.Now()
			l := pair(t)
			t.Logf("lab up after %v", time.Since(begin).Round(10*time.Millisecond))
			release, err := l.VMs[i].Output(t.Context(), "uname", "-r")
			if err != nil || !strings.HasPrefix(release, string(kernel)+".") {
				t.Errorf("guest runs %q, %v; want %s", release, err, kernel)
			}
		})
	}
}

func TestRxeIsActive(t *testing.T) {
	forEachKernel(t, func(t *testing.T, l *Lab, vm *VM) {
		info, err := vm.Output(t.Context(), "ibv_devinfo", "-d", RxeDev)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"PORT_ACTIVE", "link_layer:\t\tEthernet"} {
			if !strings.Contains(info, want) {
				t.Errorf("ibv_devinfo does not show %q:\n%s", want, info)
			}
		}
		gids, err := vm.GIDs(t.Context())
		t.Logf("GIDs %v, %v", gids, err)
		for _, address := range []netip.Addr{vm.IPv4, vm.IPv6} {
			if _, err := vm.GIDIndex(t.Context(), address); err != nil {
				t.Error(err)
			}
		}
		if index, err := vm.GIDIndex(t.Context(), l.HostIPv4); err == nil {
			t.Errorf("the host's address has GID index %d in the guest, want an error", index)
		}
	})
}

func TestPing(t *testing.T) {
	forEachKernel(t, func(t *testing.T, l *Lab, vm *VM) {
		for _, address := range []netip.Addr{l.HostIPv4, l.HostIPv6} {
			if _, err := vm.Output(t.Context(), "ping", "-c", "1", "-W", "20", address.String()); err != nil {
				t.Errorf("guest to host: %v", err)
			}
		}
		for _, address := range []netip.Addr{vm.IPv4, vm.IPv6} {
			cmd := l.HostCommand(within(t, toolTimeout), "busybox", "ping", "-c", "1", "-W", "20", address.String())
			if output, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("host to guest: %v: %s", err, output)
			}
		}
	})
}

func TestSetMTU(t *testing.T) {
	forEachKernel(t, func(t *testing.T, l *Lab, vm *VM) {
		tests := []struct{ mtu, active int }{{9000, 4096}, {1500, 1024}, {4200, 4096}, {1280, 1024}, {9000, 4096},
			{1500, 1024}}
		for _, test := range tests {
			if err := l.SetMTU(test.mtu); err != nil {
				t.Fatal(err)
			}
			if active, err := vm.ActiveMTU(t.Context()); err != nil || active != test.active {
				t.Errorf("MTU %d: active MTU %d, %v; want %d", test.mtu, active, err, test.active)
			}
			const ipv4AndICMP = 28
			size := strconv.Itoa(test.mtu - ipv4AndICMP)
			if _, err := vm.Output(t.Context(), "ping", "-c", "1", "-W", "20", "-s", size,
				l.HostIPv4.String()); err != nil {
				t.Errorf("MTU %d: a packet of that size: %v", test.mtu, err)
			}
		}
		for _, mtu := range []int{MinMTU - 1, MaxMTU + 1} {
			if err := l.SetMTU(mtu); err == nil {
				t.Errorf("MTU %d was accepted, want an error", mtu)
			}
		}
	})
}

// TestSetLoss sends datagrams of each family from the host to the guest's RoCEv2
// port, where rxe counts and ignores them, and checks the firewalls' counters.
func TestSetLoss(t *testing.T) {
	l := pair(t)
	const sent = 100 // as many as wait for a guest's link address
	send := func(t *testing.T, address netip.Addr, port int) {
		t.Helper()
		err := inside(l.HostNS, func() error { return sendDatagrams(netip.AddrPortFrom(address, uint16(port)), sent) })
		if err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct {
		name     string
		percent  float64
		port     int
		min, max uint64 // range of drops of 2 x sent; by chance a count is outside once in 10^9 runs
	}{
		{"all", 100, 4791, 2 * sent, 2 * sent},
		{"half", 50, 4791, 57, 143},
		{"other ports are spared", 100, 4792, 0, 0},
		{"none", 0, 4791, 0, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if err := l.SetLoss(test.percent); err != nil {
				t.Fatal(err)
			}
			send(t, l.VMs[0].IPv4, test.port)
			send(t, l.VMs[0].IPv6, test.port)
			if dropped, err := awaitDrops(t, l, test.min); err != nil || dropped < test.min || dropped > test.max {
				t.Errorf("dropped %d, %v; want %d to %d", dropped, err, test.min, test.max)
			}
		})
	}
	t.Run("from the guest", func(t *testing.T) {
		if err := l.SetLoss(100); err != nil {
			t.Fatal(err)
		}
		// Its first probe goes to the port after the one named.
		if _, err := l.VMs[0].Output(t.Context(), "traceroute", "-n", "-m", "1", "-q", "1", "-w", "1", "-p", "4790",
			l.HostIPv4.String()); err != nil {
			t.Fatal(err)
		}
		if dropped, err := awaitDrops(t, l, 1); err != nil || dropped != 1 {
			t.Errorf("dropped %d, %v; want 1", dropped, err)
		}
	})
	for _, percent := range []float64{-1, 101} {
		if err := l.SetLoss(percent); err == nil {
			t.Errorf("loss of %v percent was accepted, want an error", percent)
		}
	}
}

func TestSetOffload(t *testing.T) {
	l := pair(t)
	for _, on := range []bool{false, true} {
		if err := l.SetOffload(on); err != nil {
			t.Fatal(err)
		}
		features, err := l.HostCommand(t.Context(), "ethtool", "-k", l.HostDev).Output()
		if err != nil {
			t.Fatal(err)
		}
		want := map[bool]string{false: "off", true: "on"}[on]
		for _, feature := range []string{"tcp-segmentation-offload", "generic-segmentation-offload",
			"tx-udp-segmentation"} {
			if !strings.Contains(string(features), feature+": "+want) {
				t.Errorf("SetOffload(%v): %s is not %s:\n%s", on, feature, want, features)
			}
		}
	}
}

func TestGuestCommands(t *testing.T) {
	vm := pair(t).VMs[0]

	result, err := vm.Run(t.Context(), "sh", "-c", "echo out; echo err >&2; exit 7")
	if want := (Result{Stdout: "out\n", Stderr: "err\n", ExitCode: 7}); err != nil || result != want {
		t.Errorf("got %+v, %v; want %+v", result, err, want)
	}

	// Busybox has an ip and a tc too, with fewer features.
	if got, err := vm.Output(t.Context(), "sh", "-c", "ip -V && tc -V"); err != nil ||
		strings.Count(got, "iproute2") != 2 {
		t.Errorf("got %q, %v; want the versions of iproute2's ip and tc", got, err)
	}

	var exit *ExitError
	if _, err := vm.Output(t.Context(), "false"); !errors.As(err, &exit) || exit.ExitCode != 1 {
		t.Errorf("Output of false: %v, want an ExitError with code 1", err)
	}

	begin := time.Now()
	if _, err := vm.Run(within(t, time.Second), "sleep", "600"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want deadline exceeded", err)
	}
	if took := time.Since(begin); took > killGrace {
		t.Errorf("a command with a second to run took %v, want at most %v", took, killGrace)
	}

	here := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(here, []byte("#!/bin/sh\necho copied\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := vm.CopyIn(t.Context(), here, "/root/script"); err != nil {
		t.Fatal(err)
	}
	if got, err := vm.Output(t.Context(), "/root/script"); err != nil || got != "copied\n" {
		t.Errorf("copied script printed %q, %v; want %q", got, err, "copied\n")
	}
}

func TestGuestServer(t *testing.T) {
	l := pair(t)
	vm := l.VMs[0]
	server, err := vm.Start(within(t, 30*time.Second), "nc", "-l", "-p", "7000", "-e", "echo", "hello")
	if err != nil {
		t.Fatal(err)
	}
	if err := vm.WaitListen(within(t, 20*time.Second), 7000); err != nil {
		t.Fatal(err)
	}
	got, err := l.HostCommand(within(t, 20*time.Second), "busybox", "nc", vm.IPv4.String(), "7000").Output()
	if err != nil || string(got) != "hello\n" {
		t.Errorf("server said %q, %v; want %q", got, err, "hello\n")
	}
	if result, err := server.Wait(); err != nil || result.ExitCode != 0 {
		t.Errorf("server ended with %+v, %v; want exit code 0", result, err)
	}
}

func TestHostCommandAs(t *testing.T) {
	l := pair(t)
	output, err := l.HostCommandAs(t.Context(), "nobody", "sh", "-c",
		"id -un; grep -E '^Cap(Inh|Prm|Eff|Bnd|Amb)' /proc/self/status; ls /sys/class/net").Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(output)), "\n")
	if lines[0] != "nobody" {
		t.Errorf("runs as %s, want nobody", lines[0])
	}
	for _, line := range lines[1:6] {
		if !strings.HasSuffix(line, "\t0000000000000000") {
			t.Errorf("has capabilities, want none: %s", line)
		}
	}
	if devices := lines[6:]; !strings.Contains(strings.Join(devices, " "), l.HostDev) {
		t.Errorf("sees devices %v, want %s among them", devices, l.HostDev)
	}
	if err := l.HostCommandAs(t.Context(), "no-such-user", "true").Run(); err == nil {
		t.Error("an unknown user was accepted")
	}
}

func guestIPv4(vm *VM) netip.Addr { return vm.IPv4 }
func guestIPv6(vm *VM) netip.Addr { return vm.IPv6 }

// TestRxeToRxe shows that the wire carries RoCEv2 between two guests, of
// different kernels where this run has them.
func TestRxeToRxe(t *testing.T) {
	l := pair(t)
	tests := []struct {
		name    string
		address func(*VM) netip.Addr
		mtu     int
		loss    float64 // percent
	}{
		{"IPv4", guestIPv4, 1500, 0},
		{"IPv6", guestIPv6, 1500, 0},
		{"IPv4, large MTU", guestIPv4, 9000, 0},
		{"IPv6, loss", guestIPv6, 1500, 2},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if err := l.SetMTU(test.mtu); err != nil {
				t.Fatal(err)
			}
			if err := l.SetLoss(test.loss); err != nil {
				t.Fatal(err)
			}
			ctx := within(t, time.Minute)
			before, err := l.VMs[0].Counters(ctx)
			if err != nil {
				t.Fatal(err)
			}
			err = pingpong(ctx, l.VMs[0], l.VMs[1], test.address)
			// rxe hangs on a lost packet now and then, but this test is about the wire.
			for try := 1; err != nil && test.loss > 0 && try < 3; try++ {
				t.Logf("once more, after: %v", err)
				err = pingpong(ctx, l.VMs[0], l.VMs[1], test.address)
			}
			if err != nil {
				t.Error(err)
			}
			after, err := l.VMs[0].Counters(ctx)
			if err != nil || after["rcvd_pkts"] <= before["rcvd_pkts"] {
				t.Errorf("counters before %v, after %v, %v: no packet received, want some", before, after, err)
			}
			if dropped, err := l.Dropped(); err != nil || (dropped > 0) != (test.loss > 0) {
				t.Errorf("with a loss of %v percent, %d packets were dropped, %v; want some: %v", test.loss, dropped,
					err, test.loss > 0)
			}
		})
	}
}

// pingpong runs ibv_rc_pingpong, with its check of the data, between guests.
func pingpong(ctx context.Context, server, client *VM, address func(*VM) netip.Addr) error {
	const port = 18515
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	command := func(vm *VM, peer ...string) ([]string, error) {
		index, err := vm.GIDIndex(ctx, address(vm))
		return append([]string{"-d", RxeDev, "-g", strconv.Itoa(index), "-n", "100", "-c"}, peer...), err
	}
	theirs, err1 := command(server)
	ours, err2 := command(client, server.IPv4.String())
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	process, err := server.Start(ctx, "ibv_rc_pingpong", theirs...)
	if err != nil {
		return err
	}
	err = server.WaitListen(ctx, port)
	if err == nil {
		_, err = client.Output(ctx, "ibv_rc_pingpong", ours...)
	}
	if err != nil {
		cancel() // which ends the server
	}
	result, serverErr := process.Wait()
	if serverErr == nil && result.ExitCode != 0 {
		serverErr = fmt.Errorf("server: %+v", result)
	}
	return errors.Join(err, serverErr)
}

// TestRdmaCM connects the two guests by rping, with the connection manager.
func TestRdmaCM(t *testing.T) {
	l := pair(t)
	server, client := l.VMs[0], l.VMs[1]
	ctx := within(t, time.Minute)
	process, err := server.Start(ctx, "rping", "-s", "-a", server.IPv6.String(), "-C", "5")
	if err != nil {
		t.Fatal(err)
	}
	const port = 7174
	if err := server.WaitListenCM(ctx, port); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Output(ctx, "rping", "-c", "-a", server.IPv6.String(), "-C", "5", "-V"); err != nil {
		t.Error(err)
	}
	if result, err := process.Wait(); err != nil || result.ExitCode != 0 {
		t.Errorf("server: %+v, %v; want exit code 0", result, err)
	}
}

func TestUnknownKernel(t *testing.T) {
	require.Command(t, "bash")
	if _, err := Kernel("5.10").fetch(t.TempDir()); err == nil || !strings.Contains(err.Error(), "5.10 is not known") {
		t.Errorf("got %v, want an error that says which are known", err)
	}
}

// TestHungGuest stops a guest for good, as if it had locked up, and expects it
// to be ended and its console shown.
func TestHungGuest(t *testing.T) {
	Require(t, Linux61)
	l, err := Start(t.Context(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	vm := l.VMs[0]
	if _, err := vm.Output(t.Context(), "sh", "-c", "echo last words >/dev/console"); err != nil {
		t.Fatal(err)
	}
	if err := vm.qemu.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	_, err = vm.Run(within(t, time.Second), "true")
	var down *DownError
	if !errors.As(err, &down) || !strings.Contains(down.Console, "last words") {
		t.Errorf("got %v, want a DownError with the console", err)
	}
	select {
	case <-vm.gone:
	default:
		t.Error("the hung guest still exists")
	}
	if l.alive() {
		t.Error("the lab counts as alive")
	}
}

// TestNothingStays starts this test in a child process, kills that with
// SIGKILL once its lab is up, and waits for the janitor to have finished.
func TestNothingStays(t *testing.T) {
	if os.Getenv("LAB_TEST_VICTIM") == "1" {
		l := Shared(t, Linux61)
		fmt.Println(l.dir, l.WireNS, l.HostNS, l.VMs[0].qemu.Process.Pid)
		<-t.Context().Done()
	}
	Require(t, Linux61)
	require.Command(t, "ip")
	victim := exec.Command(os.Args[0], "-test.run=^TestNothingStays$")
	victim.Env = append(os.Environ(), "LAB_TEST_VICTIM=1")
	stdout, err := victim.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	var dir, wire, host, pid string
	_, scanErr := fmt.Fscanln(stdout, &dir, &wire, &host, &pid)
	traces := []string{dir, "/run/netns/" + wire, "/run/netns/" + host, "/proc/" + pid}
	for _, trace := range traces {
		if _, err := os.Stat(trace); err != nil {
			t.Errorf("the lab should show as %s: %v (it printed: %v)", trace, err, scanErr)
		}
	}
	if err := victim.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = victim.Wait()
	for _, trace := range traces {
		require.Until(t, trace+" is gone", func() bool {
			_, err := os.Stat(trace)
			return os.IsNotExist(err)
		})
	}
}

// TestEmulatorFault checks that only a double fault counts as the emulator's: other ends of a
// guest may be caused by our packets.
func TestEmulatorFault(t *testing.T) {
	down := func(console string) error {
		return errors.Join(errors.New("the case ran out of time"),
			&DownError{VM: "vm 1", Err: io.EOF, Console: console})
	}
	if !EmulatorFault(down("[ 72.9] traps: PANIC: double fault, error_code: 0x0")) {
		t.Error("a double fault is not seen")
	}
	for _, err := range []error{nil, io.EOF, down("BUG: kernel NULL pointer dereference, address: 0000000000000008")} {
		if EmulatorFault(err) {
			t.Errorf("%v counts as the emulator's fault", err)
		}
	}
}
