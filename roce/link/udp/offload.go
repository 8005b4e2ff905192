package udp

import (
	"net/netip"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// decideOffload returns whether runs are passed to the kernel as a whole, and if not, why.
func (c *conn) decideOffload(want Offload, dev device, a netip.Addr) (on bool, why string) {
	switch {
	case want == OffloadOff:
		return false, "as asked"
	case !dev.checksums:
		return false, dev.Name + " does not complete checksums"
	}
	if err := probe(a, dev.Index); err != nil {
		return false, err.Error()
	}
	return true, ""
}

// probe sends a run of two segments from a socket to itself. It detects sandboxes that accept the socket option without
// implementing it. Errors that have nothing to do with segmentation, such as a loopback interface that is down, are
// ignored.
func probe(a netip.Addr, index int) error {
	domain := unix.AF_INET6
	if a.Is4() {
		domain = unix.AF_INET
	}
	fd, err := unix.Socket(domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, sockaddr(a, 0, index)); err != nil {
		return os.NewSyscallError("bind", err)
	}
	self, err := unix.Getsockname(fd)
	if err != nil {
		return os.NewSyscallError("getsockname", err)
	}
	control := segmentCmsg(8)
	oob := unsafe.Slice((*byte)(unsafe.Pointer(&control)), unsafe.Sizeof(control))
	_, err = unix.SendmsgN(fd, make([]byte, 16), oob, self, 0)
	switch err {
	case unix.EINVAL, unix.EIO, unix.ENOPROTOOPT, unix.EOPNOTSUPP, unix.EMSGSIZE:
		return os.NewSyscallError("UDP_SEGMENT", err)
	}
	return nil
}
