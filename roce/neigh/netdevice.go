package neigh

import (
	"math"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// netdevice is a socket for ioctls of network interfaces (netdevice(7)), in the network namespace in which it was made.
type netdevice int

// noNetdevice is no socket.
const noNetdevice netdevice = -1

func newNetdevice() (netdevice, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	return netdevice(fd), os.NewSyscallError("socket", err)
}

func (n netdevice) close() {
	if n != noNetdevice {
		_ = unix.Close(int(n))
	}
}

// name returns the name of the interface with that index.
func (n netdevice) name(index int) (string, error) {
	request, err := unix.NewIfreq("")
	if err != nil {
		return "", err
	}
	request.SetUint32(uint32(index))
	err = unix.IoctlIfreq(int(n), unix.SIOCGIFNAME, request)
	return request.Name(), os.NewSyscallError("SIOCGIFNAME", err)
}

// mtu returns the MTU of an interface, in bytes.
func (n netdevice) mtu(name string) (int, error) {
	request, err := unix.NewIfreq(name)
	if err != nil {
		return 0, err
	}
	err = unix.IoctlIfreq(int(n), unix.SIOCGIFMTU, request)
	return int(request.Uint32()), os.NewSyscallError("SIOCGIFMTU", err)
}

// settings is struct ethtool_cmd of linux/ethtool.h.
type settings struct {
	cmd       uint32
	_         [8]byte
	speed     uint16
	_         [14]byte
	speedHigh uint16
	_         [14]byte
}

// ethtoolGet is ETHTOOL_GSET.
const ethtoolGet = 1

// speed returns the speed of an interface in Mb/s; 0 if its driver does not know it.
func (n netdevice) speed(name string) int {
	get := settings{cmd: ethtoolGet}
	var request struct {
		name [unix.IFNAMSIZ]byte
		data *settings
		_    [16]byte // the rest of struct ifreq
	}
	copy(request.name[:unix.IFNAMSIZ-1], name)
	request.data = &get
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(n), unix.SIOCETHTOOL,
		uintptr(unsafe.Pointer(&request))); errno != 0 {
		return 0
	}
	speed := uint32(get.speedHigh)<<16 | uint32(get.speed)
	if speed == math.MaxUint32 { // SPEED_UNKNOWN
		return 0
	}
	return int(speed)
}
