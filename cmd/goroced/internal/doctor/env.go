package doctor

import (
	"context"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/roce/daemon/dropin"
	"github.com/goroce/goroce/roce/host"
	"github.com/goroce/goroce/roce/link/port"
)

// env is the checks' view of the machine. Tests replace parts of it.
type env struct {
	Options
	subject

	root     string        // path prefix of /proc, /sys and sockets
	program  string        // path of this program, for setcap
	patience time.Duration // how long to wait for a daemon
	getenv   func(string) string
	getOwner func(netip.Addr) port.Owner
	open     func([]netip.Addr) (note string, err error)
	probe    func(netif string, local, peer netip.Addr) (arrived bool, err error)
	sendAs   func(uid int, to netip.Addr) error
	command  func(name string, args ...string) (string, error)
	memlock  func() (uint64, error)
	// libraries and compiler find what programs in C need.
	libraries, compiler func() (string, error)
	// sockopt sets an option of a new UDP socket, and returns its value afterwards.
	sockopt func(level, option, value int) (int, error)
}

func newEnv(o Options) (*env, error) {
	o.Peer = o.Peer.Unmap()
	s, err := findSubject(&o)
	if err != nil {
		return nil, err
	}
	program, err := os.Executable()
	if err != nil {
		program = "goroced"
	}
	return &env{
		Options: o, subject: s,
		root: "/", program: program, patience: 5 * time.Second, getenv: os.Getenv,
		getOwner: port.FindOwner, open: openBriefly, probe: probePort, sendAs: sendAs, command: runCommand,
		memlock: memlockLimit, sockopt: trySockopt, libraries: within(dropin.Find), compiler: within(dropin.Compiler),
	}, nil
}

// path returns the path of a file of the machine.
func (e *env) path(name string) string { return filepath.Join(e.root, name) }

// read returns the trimmed contents of a file of the machine, "" if it does not exist.
func (e *env) read(name string) string {
	text, err := os.ReadFile(e.path(name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// has reports whether the process has a capability.
func (e *env) has(c capability) bool {
	// The first user namespace maps all 2^32 - 1 users to themselves.
	if m := strings.Fields(e.read("/proc/thread-self/uid_map")); c.host && len(m) == 3 && m[2] != "4294967295" {
		return false
	}
	for line := range strings.Lines(e.read("/proc/thread-self/status")) {
		if set, ok := strings.CutPrefix(line, "CapEff:"); ok {
			bits, _ := strconv.ParseUint(strings.TrimSpace(set), 16, 64)
			return bits>>c.bit&1 != 0
		}
	}
	return false
}

// openBriefly opens a device, closes it, and returns the note of its link.
func openBriefly(addrs []netip.Addr) (string, error) {
	dev, err := host.Open(host.Options{Addrs: addrs})
	if err != nil {
		return "", err
	}
	note := dev.Link().Note
	return note, dev.Close()
}

// runCommand runs a program and returns what it prints.
func runCommand(name string, args ...string) (string, error) {
	path, err := lookPath(name)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, args...).Output()
	return string(out), err
}

// lookPath finds a program, also in the administrator's directories, which the PATH of an ordinary user may not have.
func lookPath(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil {
		return path, nil
	}
	return exec.LookPath("/usr/sbin/" + name)
}

// within gives a function that runs programs some time for that.
func within(find func(context.Context) (string, error)) func() (string, error) {
	return func() (string, error) {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		return find(ctx)
	}
}

func memlockLimit() (uint64, error) {
	var limit unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit)
	return limit.Cur, err
}

func trySockopt(level, option, value int) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptInt(fd, level, option, value); err != nil {
		return 0, os.NewSyscallError("setsockopt", err)
	}
	return unix.GetsockoptInt(fd, level, option)
}
