// Package port reserves UDP port 4791 at an address for one driver, and finds out who has it when it is taken.
//
// All RoCEv2 packets go to this port, so only one program can use it at an address. A plain bind would fail with
// EADDRINUSE; [Error] also names the owner and says what to do. In addition to the bind there is a lock, an abstract
// unix socket for each address: a program that binds with SO_REUSEPORT, as a driver with several queues does, would
// otherwise share the port with another program of the same user, and each would get some of the packets.
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
		advice = "if that is the daemon, go through it (--daemon); otherwise use another address or network " +
			"namespace, or stop it"
	}
	return fmt.Sprintf("%v: %v by %v; %s", netip.AddrPortFrom(e.Addr, link.Port), ErrTaken, e.Owner, advice)
}

// Is makes errors.Is(err, ErrTaken) true.
func (e *Error) Is(target error) bool { return target == ErrTaken }

// Lock is the reservation of the port at an address. The kernel releases it when the process ends.
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

// lockName returns an abstract socket name. Such names belong to the network namespace, as ports do.
func lockName(addr netip.Addr) string {
	return fmt.Sprintf("@goroce/%v", netip.AddrPortFrom(addr, link.Port))
}

// Release releases the port.
func (l *Lock) Release() { _ = unix.Close(l.fd) }

// Taken looks for the owner of the port at addr and returns an *Error. Drivers call it when bind fails with EADDRINUSE
// although they have the lock, so the owner is not a goroce process.
func Taken(addr netip.Addr) error { return &Error{Addr: addr, Owner: findOwner(addr, false)} }
