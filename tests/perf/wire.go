package perf

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// site is an end of a wire.
type site interface {
	addr() netip.Addr
	// half runs an end as a process of its own, waits for it, and returns its output.
	half(ctx context.Context, j Job, o *Options) ([]byte, error)
	// command runs a program, waits for it, and returns its output.
	command(ctx context.Context, name string, args ...string) ([]byte, error)
}

// wire is a pair of sites to measure between.
type wire struct {
	WireID
	near, far site
	senders   []*namespace // of an in-cast, the far end among them
	// enter sets up what this wire shares with others; nil if it shares nothing.
	enter func(context.Context) error
	close func()
}

// WireID identifies a wire: its kind, and the differences between wires of a kind.
type WireID struct {
	Kind string  `json:"kind"`
	MTU  int     `json:"mtu"`          // IP MTU
	Loss float64 `json:"loss_percent"` // of packets
}

// Kinds of wires.
const (
	veth   = "veth"
	xdp    = "xdp"
	bridge = "bridge"
	incast = "incast"
	vm     = "vm"
)

// String describes the wire in a few words.
func (id WireID) String() string {
	s := fmt.Sprintf("%s, MTU %d", wireNames[id.Kind], id.MTU)
	if id.Kind == bridge || id.Loss > 0 {
		s += fmt.Sprintf(", %g %% of single packets lost", id.Loss)
	}
	return s
}

var wireNames = map[string]string{
	veth:   "two namespaces, veth",
	xdp:    "two namespaces, veth for XDP",
	bridge: "two namespaces, bridge",
	incast: "65 namespaces, bridge, 1 Gb/s into one of them",
	vm:     "two emulated guests",
}

// namespace is a site in a network namespace with the interface eth0. It has no name and disappears when its handle is
// closed and the processes in it have ended, however this process ends.
type namespace struct {
	handle netns.NsHandle
	ip     netip.Addr
}

const ethDev = "eth0"

func newNamespace() (*namespace, error) {
	n := &namespace{}
	err := onThread(func() (err error) {
		n.handle, err = netns.New()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("create network namespace: %w", err)
	}
	return n, nil
}

// onThread runs f on a thread of its own, which ends with f, because other goroutines must not run on a thread whose
// namespace has changed.
func onThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		done <- f()
	}()
	return <-done
}

// do runs f in the namespace.
func (n *namespace) do(f func() error) error {
	return onThread(func() error {
		if err := netns.Set(n.handle); err != nil {
			return err
		}
		return f()
	})
}

func (n *namespace) addr() netip.Addr { return n.ip }

func (n *namespace) command(ctx context.Context, name string, args ...string) ([]byte, error) {
	return n.run(exec.CommandContext(ctx, name, args...))
}

// run runs cmd in the namespace.
func (n *namespace) run(cmd *exec.Cmd) ([]byte, error) {
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.WaitDelay = time.Second
	err := n.do(cmd.Start)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return []byte(out.String()), fmt.Errorf("%s: %w: %s", cmd.Args[0], err, strings.TrimSpace(errs.String()))
	}
	return []byte(out.String()), nil
}

// nobody is the user and group ID for an ordinary user.
const nobody = 65534

func (n *namespace) half(ctx context.Context, j Job, o *Options) ([]byte, error) {
	// /proc/self/exe works even if the user cannot reach the path of the program.
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Args[0] = "perf"
	j.NetIf, j.Leash = ethDev, true
	cmd.Env = append(os.Environ(), jobEnv+"="+j.text())
	leash, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	defer leash.Close()
	if j.User {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		cmd.Dir = "/"
	}
	if o.profile != nil {
		file, err := o.profile(j.Far)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		cmd.ExtraFiles = []*os.File{file}
	}
	return n.run(cmd)
}

// Addresses of the two ends.
var (
	nearPrefix = netip.MustParsePrefix("10.99.0.1/24")
	farPrefix  = netip.MustParsePrefix("10.99.0.2/24")
)

// newVeth creates a wire of two namespaces joined by a veth pair.
func newVeth(id WireID) (*wire, error) {
	a, errA := newNamespace()
	b, errB := newNamespace()
	if err := errors.Join(errA, errB); err != nil {
		closeAll(a, b)
		return nil, err
	}
	err := a.do(func() error { return addVeth(ethDev, ethDev, b.handle) })
	if err == nil {
		err = errors.Join(a.configure(nearPrefix, id.MTU), b.configure(farPrefix, id.MTU))
	}
	if err == nil {
		err = errors.Join(a.waitUp(), b.waitUp())
	}
	if err != nil {
		closeAll(a, b)
		return nil, fmt.Errorf("make a wire of veth, MTU %d: %w", id.MTU, err)
	}
	return &wire{WireID: id, near: a, far: b, close: func() { closeAll(a, b) }}, nil
}

// closeAll closes the namespaces; nil is none.
func closeAll(namespaces ...*namespace) {
	for _, n := range namespaces {
		if n != nil {
			_ = n.handle.Close()
		}
	}
}

// addVeth creates a veth pair, one end of which is in the thread's namespace.
func addVeth(name, peerName string, peer netns.NsHandle) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	return netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: peerName, PeerNamespace: netlink.NsFd(peer)})
}

// configure gives the namespace's interface its address and brings it up.
func (n *namespace) configure(prefix netip.Prefix, mtu int) error {
	n.ip = prefix.Addr()
	return n.do(func() error {
		if err := setUp("lo", 0); err != nil {
			return err
		}
		itf, err := netlink.LinkByName(ethDev)
		if err != nil {
			return err
		}
		address, err := netlink.ParseAddr(prefix.String())
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(itf, address); err != nil {
			return err
		}
		return setUp(ethDev, mtu)
	})
}

// setUp brings an interface up, with the MTU if that is not 0.
func setUp(name string, mtu int) error {
	itf, err := netlink.LinkByName(name)
	if err == nil && mtu != 0 {
		err = netlink.LinkSetMTU(itf, mtu)
	}
	if err == nil {
		err = netlink.LinkSetUp(itf)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// waitUp waits until the interface is operational. The kernel notices some time after both ends are up, and drops
// packets until then.
func (n *namespace) waitUp() error {
	return n.do(func() error {
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
			itf, err := netlink.LinkByName(ethDev)
			if err != nil || itf.Attrs().OperState == netlink.OperUp {
				return err
			}
			if time.Now().After(end) {
				return fmt.Errorf("%s is still %v", ethDev, itf.Attrs().OperState)
			}
		}
	})
}
