package perf

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Sizes of RoCEv2 frames, which the loops imitate: the UDP payload from BTH to ICRC.
const (
	middleHeader = 12 // BTH: MIDDLE and LAST
	firstHeader  = 28 // BTH, RETH: FIRST and ONLY
	crcLen       = 4
	ackLen       = 20 // BTH, AETH, ICRC
)

// Limits of a run, as in the udp link.
const (
	runSegments = 64
	runBytes    = 65000
)

const loopPort = 4791

// socket is an unconnected, non-blocking UDP socket whose calls allocate nothing.
type socket struct {
	fd      int
	out, in message
	spin    time.Duration // how long recv polls an empty socket before it sleeps
	empty   time.Time     // since when the socket is empty; zero if it is not
}

// loopSpin is the spin of the loops, as in the engine.
const loopSpin = 200 * time.Microsecond

// message holds the arguments of sendmsg and recvmsg: one buffer, an IPv4 address, one control message.
type message struct {
	hdr     unix.Msghdr
	iov     unix.Iovec
	name    unix.RawSockaddrInet4
	control struct {
		unix.Cmsghdr
		value uint32 // UDP_SEGMENT uses two bytes of it, UDP_GRO all four
		_     uint32
	}
}

// loopBuffer is the receive buffer of the loops, as in the udp link.
const loopBuffer = 4 << 20

// newSocket binds a socket to the job's address and sends to the peer's.
func newSocket(j *Job) (*socket, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	s := &socket{fd: fd, spin: loopSpin}
	for _, o := range []struct{ level, opt, value int }{
		{unix.IPPROTO_UDP, unix.UDP_GRO, 1},
		{unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE},
	} {
		if err := unix.SetsockoptInt(fd, o.level, o.opt, o.value); err != nil {
			s.close()
			return nil, os.NewSyscallError("setsockopt", err)
		}
	}
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, loopBuffer) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, loopBuffer) // limited for an ordinary user
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: loopPort, Addr: j.Self.As4()}); err != nil {
		s.close()
		return nil, os.NewSyscallError("bind", err)
	}
	for _, m := range []*message{&s.out, &s.in} {
		m.hdr.Iov, m.hdr.Iovlen = &m.iov, 1
		m.hdr.Name = (*byte)(unsafe.Pointer(&m.name))
	}
	s.out.name = unix.RawSockaddrInet4{Family: unix.AF_INET, Addr: j.Peer.As4(),
		Port: binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, loopPort))}
	s.out.hdr.Namelen = unix.SizeofSockaddrInet4
	s.out.control.Cmsghdr = unix.Cmsghdr{Len: unix.SizeofCmsghdr + 2, Level: unix.IPPROTO_UDP, Type: unix.UDP_SEGMENT}
	return s, nil
}

func (s *socket) close() { _ = unix.Close(s.fd) }

// send sends buf in segments of that size, the last of which may be shorter. If the kernel has no room, they are lost.
func (s *socket) send(buf []byte, segment int) error {
	m := &s.out
	m.iov.Base, m.iov.Len = &buf[0], uint64(len(buf))
	m.hdr.Control, m.hdr.Controllen = nil, 0
	if len(buf) > segment {
		m.control.value = uint32(segment)
		m.hdr.Control = (*byte)(unsafe.Pointer(&m.control))
		m.hdr.Controllen = uint64(unsafe.Sizeof(m.control))
	}
	_, errno := m.call(unix.SYS_SENDMSG, s.fd)
	if errno != 0 && errno != unix.EAGAIN && errno != unix.ENOBUFS {
		return os.NewSyscallError("sendmsg", errno)
	}
	return nil
}

// recv receives a run: n bytes, in segments of that size, the last of which may be shorter. If there is none, n is 0;
// then recv may have slept for a millisecond.
func (s *socket) recv(buf []byte) (n, segment int, err error) {
	m := &s.in
	m.iov.Base, m.iov.Len = &buf[0], uint64(len(buf))
	m.hdr.Namelen = unix.SizeofSockaddrInet4
	m.hdr.Control, m.hdr.Controllen = (*byte)(unsafe.Pointer(&m.control)), uint64(unsafe.Sizeof(m.control))
	n, errno := m.call(unix.SYS_RECVMSG, s.fd)
	switch {
	case errno == unix.EAGAIN:
		s.rest()
		return 0, 0, nil
	case errno != 0:
		return 0, 0, os.NewSyscallError("recvmsg", errno)
	}
	s.empty = time.Time{}
	segment = n
	if m.hdr.Controllen >= unix.SizeofCmsghdr && m.control.Level == unix.IPPROTO_UDP && m.control.Type == unix.UDP_GRO {
		segment = int(m.control.value)
	}
	return n, segment, nil
}

// rest sleeps if the socket has been empty for some time.
func (s *socket) rest() {
	switch now := time.Now(); {
	case s.empty.IsZero():
		s.empty = now
	case now.Sub(s.empty) > s.spin:
		_, _ = unix.Poll([]unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLIN}}, 1)
	}
}

func (m *message) call(trap uintptr, fd int) (int, unix.Errno) {
	for {
		n, _, errno := unix.Syscall(trap, uintptr(fd), uintptr(unsafe.Pointer(&m.hdr)), unix.MSG_DONTWAIT)
		if errno == unix.EINTR {
			continue
		}
		if errno != 0 {
			return 0, errno
		}
		return int(n), 0
	}
}

// putCRC writes the CRC of a segment at its end.
func putCRC(segment []byte) {
	n := len(segment) - crcLen
	binary.LittleEndian.PutUint32(segment[n:], crc32.ChecksumIEEE(segment[:n]))
}

// checkCRC returns an error unless a segment ends with its CRC.
func checkCRC(segment []byte) error {
	n := len(segment) - crcLen
	if n < 0 || binary.LittleEndian.Uint32(segment[n:]) != crc32.ChecksumIEEE(segment[:n]) {
		return fmt.Errorf("a segment of %d bytes arrived with a wrong CRC", len(segment))
	}
	return nil
}

// bareSegment returns the segment size of the bare loop: the requested size, or a MIDDLE of the wire's path MTU.
func bareSegment(j *Job) int {
	if j.Size > 0 {
		return j.Size
	}
	return middleHeader + pathMTU(j.MTU) + crcLen
}

// bareSend sends full runs as fast as it can.
func bareSend(j *Job, p *peer) (Result, error) {
	s, err := newSocket(j)
	if err != nil {
		return Result{}, err
	}
	defer s.close()
	segment := bareSegment(j)
	buf := make([]byte, min(runSegments, runBytes/segment)*segment)
	m, err := p.start(j)
	if err != nil {
		return Result{}, err
	}
	for !p.ended.Load() {
		for at := 0; at < len(buf); at += segment {
			putCRC(buf[at : at+segment])
		}
		if err := s.send(buf, segment); err != nil {
			return Result{}, err
		}
		m.add(0)
	}
	p.finish()
	return m.result(), nil
}

// bareReceive counts segments.
func bareReceive(j *Job, p *peer) (Result, error) {
	s, err := newSocket(j)
	if err != nil {
		return Result{}, err
	}
	defer s.close()
	buf := make([]byte, 1<<16)
	m, err := p.start(j)
	if err != nil {
		return Result{}, err
	}
	for !m.done && !p.ended.Load() {
		n, segment, err := s.recv(buf)
		if err != nil {
			return Result{}, err
		}
		segments := 0
		for at := 0; at < n; at += segment {
			if err := checkCRC(buf[at:min(at+segment, n)]); err != nil {
				return Result{}, err
			}
			segments++
		}
		m.add(segments)
	}
	p.finish()
	return m.result().of(bareSegment(j)-middleHeader-crcLen, 1), nil
}
