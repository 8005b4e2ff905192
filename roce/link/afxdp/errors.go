package afxdp

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Error says what an interface, or the kernel, has refused, and what to do. It matches fs.ErrPermission if a capability
// is missing, and errors.ErrUnsupported if the kernel has no AF_XDP.
type Error struct {
	NetIf  string
	Op     string // the operation: "attach the XDP program"
	Advice string // the next step; may be empty
	Err    error  // the kernel's error
}

func (e *Error) Error() string {
	s := fmt.Sprintf("%s: %s: %v", e.NetIf, e.Op, e.Err)
	if e.Advice != "" {
		s += "; " + e.Advice
	}
	return s
}

// Unwrap returns what the kernel said.
func (e *Error) Unwrap() error { return e.Err }

// Is makes errors.Is(err, errors.ErrUnsupported) also true for errors of kernels that were built without AF_XDP and
// return another error number.
func (e *Error) Is(target error) bool {
	return target == errors.ErrUnsupported && errors.Is(e.Err, unix.EAFNOSUPPORT)
}

// memlockError is ENOBUFS from XDP_UMEM_REG: the limit of locked memory is exceeded.
type memlockError struct{ bytes int }

func (e *memlockError) Error() string {
	return fmt.Sprintf("register %d KiB of UMEM: it exceeds what may be locked in memory (`ulimit -l`)", e.bytes>>10)
}

func (e *memlockError) Unwrap() error { return unix.ENOBUFS }

// refused returns an *Error for err, or nil if err is nil.
func refused(netif, op string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{NetIf: netif, Op: op, Advice: advice(netif, err), Err: err}
}

// advice returns the next step after an error.
func advice(netif string, err error) string {
	var memlock *memlockError
	switch {
	case errors.Is(err, fs.ErrPermission):
		return lacking()
	case errors.As(err, &memlock):
		return "raise the limit, or give the program CAP_IPC_LOCK"
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EEXIST):
		return occupied(netif)
	case errors.Is(err, errors.ErrUnsupported), errors.Is(err, unix.EAFNOSUPPORT):
		return "the kernel needs CONFIG_XDP_SOCKETS and CONFIG_BPF_SYSCALL, and Linux 5.9; links rawsock and udp do " +
			"without"
	}
	return ""
}

// occupied says which program may occupy the interface.
func occupied(netif string) string {
	l, err := netlink.LinkByName(netif)
	if err == nil && l.Attrs().Xdp != nil && l.Attrs().Xdp.Attached {
		return fmt.Sprintf("XDP program %d is on the interface already, perhaps that of another device on it; "+
			"`bpftool net` says more, and `ip link set %s xdp off` removes one that no process holds",
			l.Attrs().Xdp.ProgId, netif)
	}
	return "another program has AF_XDP sockets on the interface"
}

// needed are the capabilities that an AF_XDP link needs. CAP_SYS_ADMIN includes all but the first.
var needed = []struct {
	name string
	bit  uint
}{
	{"CAP_NET_RAW", unix.CAP_NET_RAW},
	{"CAP_NET_ADMIN", unix.CAP_NET_ADMIN},
	{"CAP_BPF", unix.CAP_BPF},
}

// lacking returns the names of the needed capabilities that the calling thread does not have.
func lacking() string {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return ""
	}
	have := uint64(data[1].Effective)<<32 | uint64(data[0].Effective)
	var names []string
	for i, c := range needed {
		if have>>c.bit&1 == 0 && (i == 0 || have>>unix.CAP_SYS_ADMIN&1 == 0) {
			names = append(names, c.name)
		}
	}
	if len(names) == 0 {
		return "the capabilities are there, so a security policy or a user namespace forbids it"
	}
	return "missing: " + strings.Join(names, ", ")
}
