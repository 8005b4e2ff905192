// Package port says who has UDP port 4791 at an address when it is taken.
//
// All of RoCEv2 arrives at this one port, so two programs cannot both speak it
// at one address. A plain bind would fail with EADDRINUSE, which helps nobody:
// [Error] names the owner and the ways out.
//
// The bind is the only lock, since nobody else can hold it in advance. A driver whose
// sockets share the port (SO_REUSEPORT) binds the first one without sharing, which fails
// if anybody has the port, and lets the others of its own in after that ([Share]).
// Otherwise two programs of a user would share it silently, and each would get half of
// the packets.
//
// A goroce process that has the port says so by the name of an abstract Unix socket
// ([Announce]). Anybody can take such a name, so it changes only the words of [Error].
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
		advice = "if that is the daemon, go through it (host.Any in Go, `goroced run` for programs in C); otherwise " +
			"use another address or network namespace, or stop it"
	}
	return fmt.Sprintf("%v: %v by %v; %s", netip.AddrPortFrom(e.Addr, link.Port), ErrTaken, e.Owner, advice)
}

// Is makes errors.Is(err, ErrTaken) true.
func (e *Error) Is(target error) bool { return target == ErrTaken }

// Share lets further sockets of the same user, on which Share was called too, bind to the address and port of fd.
func Share(fd int) error {
	return os.NewSyscallError("setsockopt SO_REUSEPORT", unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1))
}

// Notice says that a goroce process has the port at an address, until it is withdrawn or
// the process ends.
type Notice struct{ fd int }

// Announce tells other processes of this network namespace that a goroce process has the port
// at addr. The caller has bound it. If the name is taken, Announce does nothing.
func Announce(addr netip.Addr) *Notice {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return &Notice{-1}
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: noticeName(addr)}); err != nil {
		_ = unix.Close(fd)
		return &Notice{-1}
	}
	return &Notice{fd}
}

// noticeName is an abstract name. These belong to the network namespace, as ports do.
func noticeName(addr netip.Addr) string {
	return fmt.Sprintf("@goroce/%v", netip.AddrPortFrom(addr.WithZone(""), link.Port))
}

// Withdraw ends the notice.
func (n *Notice) Withdraw() {
	if n.fd >= 0 {
		_ = unix.Close(n.fd)
		n.fd = -1
	}
}

// Taken returns the *Error for addr, having looked for the owner. Drivers call it when bind
// says EADDRINUSE.
func Taken(addr netip.Addr) error { return &Error{Addr: addr, Owner: FindOwner(addr)} }
