package udp

import (
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/roce/neigh"
)

// device is the network interface that holds an address.
type device struct {
	neigh.NetIf
	checksums bool // it computes UDP checksums, or the kernel did not tell
}

func findDevice(a netip.Addr) (device, error) {
	n, err := neigh.Holding(a)
	return device{n, err == nil && checksums(n.Name)}, err
}

// checksums asks the interface whether it computes UDP checksums. If it does not, kernels before 6.11 refuse
// UDP_SEGMENT with EIO.
func checksums(name string) bool {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return true
	}
	defer unix.Close(fd)
	value := struct{ cmd, data uint32 }{cmd: unix.ETHTOOL_GTXCSUM}
	req := struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte // padding to the size of struct ifreq
	}{data: unsafe.Pointer(&value)}
	copy(req.name[:unix.IFNAMSIZ-1], name)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req)))
	return errno != 0 || value.data != 0
}
