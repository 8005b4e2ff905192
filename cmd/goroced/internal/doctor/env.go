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

	"github.com/goroce/goroce/roce/host"
	"github.com/goroce/goroce/roce/link/port"
)

// env is what checks see of the machine. Tests put others in the place of its parts.
type env struct {
	Options
	subject

	root     string        // of /proc, /sys and sockets
	program  string        // this one, for setcap
	patience time.Duration // with a daemon
	getenv   func(string) string
	getOwner func(netip.Addr) port.Owner
	open     func([]netip.Addr) (note string, err error)
	probe    func(netif string, local, peer netip.Addr) (arrived bool, err error)
	command  func(name string, args ...string) (string, error)
	memlock  func() (uint64, error)
	// sockopt sets an option of a new UDP socket, and returns what it is then.
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
		getOwner: port.FindOwner, open: openBriefly, probe: probePort, command: runCommand, memlock: memlockLimit,
		sockopt: trySockopt,
	}, nil
}

// path returns where a file of the machine is.
func (e *env) path(name string) string { return filepath.Join(e.root, name) }

// read returns the text of a file of the machine without the space around it, "" if it
// is not there.
func (e *env) read(name string) string {
	text, err := os.ReadFile(e.path(name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// has reports whether the process has a capability now.
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

// openBriefly opens a device and closes it. The link's note says how it was chosen.
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

// lookPath finds programs of the administrator, too, which the PATH of an ordinary user
// may lack.
func lookPath(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil {
		return path, nil
	}
	return exec.LookPath("/usr/sbin/" + name)
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
