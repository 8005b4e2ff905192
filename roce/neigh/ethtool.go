package neigh

import (
	"math"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ethtool is a socket that asks the drivers of network interfaces, in the network namespace in which
// it was made.
type ethtool int

// noEthtool is no socket.
const noEthtool ethtool = -1

func newEthtool() (ethtool, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	return ethtool(fd), os.NewSyscallError("socket", err)
}

func (e ethtool) close() {
	if e != noEthtool {
		_ = unix.Close(int(e))
	}
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
func (e ethtool) speed(name string) int {
	get := settings{cmd: ethtoolGet}
	var request struct {
		name [unix.IFNAMSIZ]byte
		data *settings
		_    [16]byte // the rest of struct ifreq
	}
	copy(request.name[:unix.IFNAMSIZ-1], name)
	request.data = &get
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(e), unix.SIOCETHTOOL,
		uintptr(unsafe.Pointer(&request))); errno != 0 {
		return 0
	}
	speed := uint32(get.speedHigh)<<16 | uint32(get.speed)
	if speed == math.MaxUint32 { // SPEED_UNKNOWN
		return 0
	}
	return int(speed)
}
