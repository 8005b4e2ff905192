package packet

import (
	"errors"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/port"
)

// guard holds port 4791 at one address: a UDP socket that receives nothing.
type guard struct {
	fd     int
	notice *port.Notice
}

// newGuard takes the port at a. index is the interface that holds a.
func newGuard(a netip.Addr, index int) (guard, error) {
	fd, err := guardSocket(a, index)
	if err != nil {
		return guard{}, err
	}
	return guard{fd, port.Announce(a)}, nil
}

func guardSocket(a netip.Addr, index int) (int, error) {
	family := unix.AF_INET6
	var sa unix.Sockaddr = &unix.SockaddrInet6{Port: link.Port, Addr: a.As16(), ZoneId: zone(a, index)}
	if a.Is4() {
		family = unix.AF_INET
		sa = &unix.SockaddrInet4{Port: link.Port, Addr: a.As4()}
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	// A datagram that a filter drops is not answered with ICMP.
	err = attach(fd, []bpf.Instruction{bpf.RetConstant{Val: 0}})
	if err == nil && mergesByID() {
		// Without it the kernel takes a run in one piece apart, to drop it frame by
		// frame: two thirds of what the run costs from one namespace to another.
		err = unix.SetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_GRO, 1)
	}
	if err == nil {
		err = unix.Bind(fd, sa)
	}
	if err == nil {
		return fd, nil
	}
	_ = unix.Close(fd)
	if errors.Is(err, unix.EADDRINUSE) {
		return -1, port.Taken(a)
	}
	return -1, fmt.Errorf("guard %v: %w", netip.AddrPortFrom(a, link.Port), err)
}

// zone returns the interface index that a socket address for a must have.
func zone(a netip.Addr, index int) uint32 {
	if a.Is6() && a.IsLinkLocalUnicast() {
		return uint32(index)
	}
	return 0
}

func (g guard) close() {
	_ = unix.Close(g.fd)
	g.notice.Withdraw()
}
