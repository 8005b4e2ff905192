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

// guard occupies port 4791 at one address: a UDP socket that receives nothing.
type guard struct {
	fd     int
	notice *port.Notice
}

// newGuard occupies the port at a, an address of the interface with that index.
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
	// The kernel sends no ICMP for datagrams that a socket's filter drops.
	err = attach(fd, []bpf.Instruction{bpf.RetConstant{Val: 0}})
	if err == nil && mergesByID() {
		// Without UDP_GRO the kernel would segment a run in one piece, only to drop each frame. That would take two
		// thirds of the time for a run between two namespaces.
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

// zone returns the interface index for the socket address of a.
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
