// Package port claims UDP port 4791 at an address for one driver, and says who
// has it when it is taken.
//
// All of RoCEv2 arrives at this one port, so two programs cannot both speak it
// at one address. A plain bind would fail with EADDRINUSE, which helps nobody:
// [Error] names the owner and the ways out. Beside the bind there is a lock, an
// abstract unix socket per address, because a program that binds with
// SO_REUSEPORT, as a driver with several queues does, would silently share the
// port with another of the same user and each would get half of the packets.
package port

import (
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/goroce/goroce/roce/link"
	"golang.org/x/sys/unix"
)

// ErrTaken matches every [Error] with errors.Is.
var ErrTaken = errors.New("UDP port 4791 is taken")

// Error says that another socket has the port at an address.
type Error struct {
	Addr  netip.Addr
	Owner Owner
}

func (e *Error) Error() string {
	advice := "use another address, or another network namespace, or stop it"
	if e.Owner.Goroce {
		advice = "if that is the daemon, go through it (--daemon); otherwise use another address or network namespace, or stop it"
	}
	return fmt.Sprintf("%v: %v by %v; %s", netip.AddrPortFrom(e.Addr, link.Port), ErrTaken, e.Owner, advice)
}

// Is makes errors.Is(err, ErrTaken) true.
func (e *Error) Is(target error) bool { return target == ErrTaken }

// Lock is held for as long as the port is in use. The kernel lets it go when the
// process ends.
type Lock struct{ fd int }

// Claim locks the port at addr within this network namespace. It fails with
// *Error if another driver has it.
func Claim(addr netip.Addr) (*Lock, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	name := lockName(addr)
	err = unix.Bind(fd, &unix.SockaddrUnix{Name: name})
	if err == nil {
		return &Lock{fd}, nil
	}
	_ = unix.Close(fd)
	if errors.Is(err, unix.EADDRINUSE) {
		return nil, &Error{Addr: addr, Owner: FindOwner(addr)}
	}
	return nil, fmt.Errorf("lock %s: %w", name, err)
}

// lockName is an abstract name. These belong to the network namespace, as ports do.
func lockName(addr netip.Addr) string {
	return fmt.Sprintf("@goroce/%v", netip.AddrPortFrom(addr, link.Port))
}

// Release gives the port back.
func (l *Lock) Release() { _ = unix.Close(l.fd) }

// Taken returns the *Error for addr, having looked for the owner. Drivers call it when bind
// says EADDRINUSE. The lock is theirs then: it is no goroce process that has the port.
func Taken(addr netip.Addr) error { return &Error{Addr: addr, Owner: findOwner(addr, false)} }
