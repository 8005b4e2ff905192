package afxdp

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// register registers m as the memory of an AF_XDP socket.
func register(fd int, m *umem) error {
	reg := unix.XDPUmemReg{Addr: uint64(uintptr(unsafe.Pointer(&m.mem[0]))), Len: uint64(len(m.mem)),
		Size: uint32(m.chunk)}
	_, _, errno := unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.SOL_XDP, unix.XDP_UMEM_REG,
		uintptr(unsafe.Pointer(&reg)), unsafe.Sizeof(reg), 0)
	if errno == unix.ENOBUFS {
		return &memlockError{len(m.mem)}
	}
	if errno != 0 {
		return fmt.Errorf("register %d KiB of UMEM: %w", len(m.mem)>>10, os.NewSyscallError("setsockopt", errno))
	}
	return nil
}

// knowsSeveral reports whether the kernel supports frames of several chunks (Linux 6.6). It relies on bind checking the
// flags before the interface.
func knowsSeveral() bool {
	fd, err := unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	return unix.Bind(fd, &unix.SockaddrXDP{Flags: unix.XDP_USE_SG}) != unix.EINVAL
}

// offsets returns the offsets of the fields of a socket's rings.
func offsets(fd int) (at unix.XDPMmapOffsets, err error) {
	err = getsockopt(fd, unix.XDP_MMAP_OFFSETS, unsafe.Pointer(&at), unsafe.Sizeof(at))
	return at, err
}

// statistics returns the kernel's counters of a socket.
func statistics(fd int) (s unix.XDPStatistics, err error) {
	err = getsockopt(fd, unix.XDP_STATISTICS, unsafe.Pointer(&s), unsafe.Sizeof(s))
	return s, err
}

func getsockopt(fd, opt int, value unsafe.Pointer, size uintptr) error {
	length := uint32(size)
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_XDP, uintptr(opt), uintptr(value),
		uintptr(unsafe.Pointer(&length)), 0)
	switch {
	case errno != 0:
		return os.NewSyscallError("getsockopt", errno)
	case uintptr(length) != size:
		return fmt.Errorf("AF_XDP socket option %d has %d bytes, not %d: the kernel is older than Linux 5.9", opt,
			length, size)
	}
	return nil
}

// channels returns the number of receive and send queues of an interface, 1 if it does not tell.
func channels(netif string) (rx, tx int) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 1, 1
	}
	defer unix.Close(fd)
	// struct ethtool_channels and struct ifreq (linux/ethtool.h, linux/if.h).
	var ch struct{ cmd, maxRx, maxTx, maxOther, maxCombined, rx, tx, other, combined uint32 }
	ch.cmd = unix.ETHTOOL_GCHANNELS
	var req struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}
	copy(req.name[:], netif)
	req.data = unsafe.Pointer(&ch)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL,
		uintptr(unsafe.Pointer(&req))); errno != 0 {
		return 1, 1
	}
	return max(int(ch.rx+ch.combined), 1), max(int(ch.tx+ch.combined), 1)
}

// call calls sendto or recvfrom without data, which makes the kernel process the rings.
func call(trap uintptr, fd int) unix.Errno {
	_, _, errno := unix.Syscall6(trap, uintptr(fd), 0, 0, unix.MSG_DONTWAIT, 0, 0)
	return errno
}
