package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/tests/rxe/lab/control"
)

const (
	// BootTimeout bounds the boot of a guest, which takes 5 to 10 seconds on an
	// idle machine.
	BootTimeout = 120 * time.Second

	// killGrace is how long a guest may take to confirm that a command was
	// killed before it counts as hung.
	killGrace = 15 * time.Second

	consoleLines = 60 // how much of the console an error shows
)

// VM is a guest. Its methods may be called concurrently.
type VM struct {
	Name   string // "vm 1"
	Kernel Kernel
	IPv4   netip.Addr
	IPv6   netip.Addr
	MAC    net.HardwareAddr

	control *control.Client
	qemu    *exec.Cmd
	stderr  *bytes.Buffer // of qemu; read only after gone
	console string        // path
	gone    chan struct{} // closed when qemu has ended
}

// DownError reports that a guest has ended or hung, with the last lines of its
// console. A hung guest has been ended by then.
type DownError struct {
	VM      string
	Err     error
	Console string // the last lines
}

func (e *DownError) Error() string {
	return fmt.Sprintf("lab: %s is down: %v; its console ends:\n%s", e.VM, e.Err, e.Console)
}

func (e *DownError) Unwrap() error { return e.Err }

// EmulatorFault reports whether err says that a bug of the emulator has ended a guest. Now
// and then qemu 7.2 without KVM restores a guest's flags from a register that holds an
// address; if that sets the virtual-8086 flag the next exception is a double fault. Nothing
// that a peer sends can cause that.
func EmulatorFault(err error) bool {
	var down *DownError
	return errors.As(err, &down) && strings.Contains(down.Console, "double fault")
}

// startVM starts guest number n, counted from 1, at the tap of that number.
func (l *Lab) startVM(n int, kernel Kernel, cpus int) (*VM, error) {
	files, err := kernel.fetch(cacheDir())
	if err != nil {
		return nil, err
	}
	image, err := bootImage(cacheDir(), files)
	if err != nil {
		return nil, err
	}
	station := hostStation + n
	vm := &VM{
		Name:    fmt.Sprintf("vm %d (%s)", n, files.release),
		Kernel:  kernel,
		IPv4:    stationIPv4(station),
		IPv6:    stationIPv6(station),
		MAC:     stationMAC(station),
		stderr:  new(bytes.Buffer),
		console: filepath.Join(l.dir, fmt.Sprintf("console%d", n)),
		gone:    make(chan struct{}),
	}
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	vm.qemu = exec.Command("qemu-system-x86_64", vm.qemuArgs(files.vmlinux(), image, tapDev(n), cpus)...)
	vm.qemu.Stderr = vm.stderr
	vm.qemu.ExtraFiles = []*os.File{theirs}
	vm.qemu.SysProcAttr = &syscall.SysProcAttr{
		Pdeathsig: syscall.SIGKILL, // killed when this process ends
		Setpgid:   true,            // not interrupted from the terminal
	}
	if err := vm.launch(l.WireNS); err != nil {
		ours.Close()
		return nil, fmt.Errorf("start qemu: %w", err)
	}
	vm.control = control.NewClient(ours, killGrace, vm.lost)
	return vm, nil
}

func (vm *VM) qemuArgs(vmlinux, image, tap string, cpus int) []string {
	boot := fmt.Sprintf("console=ttyS0 panic=-1 loglevel=5 LAB_IPV4=%s/%d LAB_IPV6=%s/%d LAB_MTU=%d",
		vm.IPv4, prefixIPv4, vm.IPv6, prefixIPv6, DefaultMTU)
	return []string{
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-accel", "tcg,thread=multi", "-cpu", "max", "-smp", strconv.Itoa(cpus), "-m", "512",
		"-kernel", vmlinux, "-initrd", image, "-append", boot,
		"-serial", "file:" + vm.console,
		// The control port: the first extra file is descriptor 3.
		"-chardev", "socket,id=control,fd=3",
		"-device", "virtio-serial-pci", "-device", "virtserialport,nr=1,chardev=control",
		// host_mtu is the largest MTU that the guest can set.
		"-netdev", "tap,id=wire,script=no,downscript=no,vhost=off,ifname=" + tap,
		"-device", fmt.Sprintf("virtio-net-pci,netdev=wire,romfile=,host_mtu=%d,mac=%s", MaxMTU, vm.MAC),
	}
}

// launch starts qemu in the namespace and waits for its end on a goroutine. The
// kernel sends the parent death signal when the thread that started the child ends,
// so that thread is kept until qemu has ended.
func (vm *VM) launch(namespace string) error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := inside(namespace, vm.qemu.Start)
		started <- err
		if err == nil {
			_ = vm.qemu.Wait()
			close(vm.gone)
		}
	}()
	return <-started
}

func (vm *VM) waitBooted(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, BootTimeout)
	defer cancel()
	if err := vm.control.WaitReady(ctx); err != nil {
		if errors.Is(err, ctx.Err()) {
			return vm.lost(fmt.Errorf("not booted: %w", err))
		}
		return err
	}
	return nil
}

// lost ends a guest that cannot be controlled any more and returns the
// DownError with the reason.
func (vm *VM) lost(reason error) error {
	vm.kill()
	if message := bytes.TrimSpace(vm.stderr.Bytes()); len(message) > 0 {
		reason = fmt.Errorf("%w; qemu: %s", reason, message)
	}
	return &DownError{VM: vm.Name, Err: reason, Console: lastLines(vm.Console(), consoleLines)}
}

func (vm *VM) stop() {
	_ = vm.control.Close()
	vm.kill()
}

func (vm *VM) kill() {
	_ = vm.qemu.Process.Kill()
	<-vm.gone
}

// Console returns what the guest's kernel and init script have printed.
func (vm *VM) Console() string {
	text, err := os.ReadFile(vm.console)
	if err != nil {
		return err.Error()
	}
	return strings.ReplaceAll(string(text), "\r", "")
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// socketPair returns the two ends of a stream; reads of the first can be
// ended by closing it.
func socketPair() (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "control"), os.NewFile(uintptr(fds[1]), "control"), nil
}
