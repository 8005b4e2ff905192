package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/goroce/goroce/tests/rxe/forward"
)

// Config describes a Lab. The zero value means one guest with kernel 6.1.
type Config struct {
	Kernels []Kernel // one guest each; at most MaxGuests
	CPUs    int      // virtual CPUs of each guest; 0 means 1
}

// MaxGuests bounds the guests of one Lab.
const MaxGuests = 8

// Lab is a wire with a host and guests on it; see the package comment.
type Lab struct {
	HostNS   string     // name of the namespace for the program under test
	HostDev  string     // the host's device on the wire
	HostIPv4 netip.Addr // its addresses
	HostIPv6 netip.Addr
	WireNS   string // name of the namespace of the bridge
	VMs      []*VM

	dir     string         // consoles
	janitor io.WriteCloser // standard input of the janitor, which cleans up when it closes
	cleaned func() error   // waits for the janitor

	mtu       int
	lossy     bool
	noOffload bool
	forwarder *forward.Forwarder
	forwarded int // the guest behind the forwarder, 0 for none

	closeOnce sync.Once
	closeErr  error
}

// labCount numbers the labs of one process.
var labCount atomic.Int32

// Start builds the wire and boots the guests, which takes about ten seconds
// and at most BootTimeout. The caller must Close the Lab.
func Start(ctx context.Context, config Config) (*Lab, error) {
	kernels := config.Kernels
	if len(kernels) == 0 {
		kernels = []Kernel{Linux61}
	}
	if len(kernels) > MaxGuests {
		return nil, fmt.Errorf("lab: %d guests asked for, at most %d can be had", len(kernels), MaxGuests)
	}
	name := fmt.Sprintf("goroce-lab-%d-%d", os.Getpid(), labCount.Add(1))
	l := &Lab{
		HostNS:   name + "-host",
		HostDev:  "eth0",
		HostIPv4: stationIPv4(hostStation),
		HostIPv6: stationIPv6(hostStation),
		WireNS:   name + "-wire",
		mtu:      DefaultMTU,
	}
	if err := l.start(ctx, kernels, max(config.CPUs, 1)); err != nil {
		return nil, errors.Join(fmt.Errorf("start lab: %w", err), l.Close())
	}
	return l, nil
}

func (l *Lab) start(ctx context.Context, kernels []Kernel, cpus int) error {
	var err error
	if l.dir, err = os.MkdirTemp("", "goroce-lab-"); err != nil {
		return err
	}
	if err := l.startJanitor(); err != nil {
		return err
	}
	if err := l.buildWire(len(kernels)); err != nil {
		return err
	}
	for i, kernel := range kernels {
		vm, err := l.startVM(i+1, kernel, cpus)
		if err != nil {
			return err
		}
		l.VMs = append(l.VMs, vm)
	}
	for _, vm := range l.VMs {
		if err := vm.waitBooted(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Close ends the guests and whatever else runs in the namespaces, and removes
// them.
func (l *Lab) Close() error {
	l.closeOnce.Do(func() {
		if l.forwarder != nil {
			l.closeErr = l.forwarder.Close()
			l.forwarder, l.forwarded = nil, 0
		}
		for _, vm := range l.VMs {
			vm.stop()
		}
		if l.janitor != nil {
			l.closeErr = errors.Join(l.closeErr, l.janitor.Close(), l.cleaned())
		}
	})
	return l.closeErr
}

// Reset restores the initial state of the wire: DefaultMTU, no loss, no forwarder,
// segmentation offload on.
func (l *Lab) Reset() error {
	errs := []error{l.unforward()}
	if l.lossy {
		errs = append(errs, l.SetLoss(0))
	}
	if l.noOffload {
		errs = append(errs, l.SetOffload(true))
	}
	if l.mtu != DefaultMTU {
		errs = append(errs, l.SetMTU(DefaultMTU))
	}
	return errors.Join(errs...)
}

// alive reports whether every guest still executes commands.
func (l *Lab) alive() bool {
	for _, vm := range l.VMs {
		select {
		case <-vm.gone:
			return false
		default:
		}
	}
	return true
}

// janitorScript waits until its standard input closes, which happens however the
// process at the other end ends, and then cleans up. Its arguments are the PID of
// that process, which it must not kill, the directory, and the namespaces.
const janitorScript = `
owner=$1 dir=$2
shift 2
read -r _
for ns; do
	[ -e "/run/netns/$ns" ] || continue
	for pid in $(ip netns pids "$ns"); do
		[ "$pid" = "$owner" ] || kill -9 "$pid"
	done
	ip netns del "$ns"
done
rm -rf "$dir"
`

func (l *Lab) startJanitor() error {
	cmd := exec.Command("sh", "-c", janitorScript, "janitor", strconv.Itoa(os.Getpid()), l.dir, l.HostNS, l.WireNS)
	// In a session of its own it gets no interrupt from a terminal.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	l.janitor, l.cleaned = stdin, cmd.Wait
	return nil
}
