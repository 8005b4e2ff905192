package doctor

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// errNoEcho: no answer to an echo request has come.
var errNoEcho = errors.New("no answer to ping")

// echoWait is how long the answer to an echo request may take.
const echoWait = 300 * time.Millisecond

// pinger sends ICMP echo requests, which no router may fragment, to a host, and waits for the answers, which are as
// long. It is the only thing that any host answers at any length, without knowing of it.
type pinger struct {
	fd     int
	is4    bool
	header int  // length of the IP header
	ecn    byte // ECN bits of the last answer, if marks were asked for
	shown  bool // the socket shows it in front of what it receives
}

// newPinger opens a socket for echo requests: one that net.ipv4.ping_group_range lets this user have, or a raw one,
// which takes CAP_NET_RAW. Without either the error matches fs.ErrPermission.
func newPinger(local, peer netip.Addr) (*pinger, error) {
	p := &pinger{is4: peer.Is4(), header: 20}
	family, proto, level, discover, probe := unix.AF_INET, unix.IPPROTO_ICMP, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER,
		unix.IP_PMTUDISC_PROBE
	if !p.is4 {
		p.header = 40
		family, proto, level, discover, probe = unix.AF_INET6, unix.IPPROTO_ICMPV6, unix.IPPROTO_IPV6,
			unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE
	}
	var err error
	for _, kind := range []int{unix.SOCK_DGRAM, unix.SOCK_RAW} {
		p.shown = p.is4 && kind == unix.SOCK_RAW
		if p.fd, err = unix.Socket(family, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, proto); err == nil {
			break
		}
	}
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	if err := errors.Join(unix.SetsockoptInt(p.fd, level, discover, probe), unix.Bind(p.fd, sockaddr(local, 0)),
		unix.Connect(p.fd, sockaddr(peer, 0))); err != nil {
		_ = unix.Close(p.fd)
		return nil, err
	}
	return p, nil
}

func (p *pinger) close() { _ = unix.Close(p.fd) }

// ping sends an echo request in an IP packet of that size and returns how long the answer took. The error is errNoEcho
// if there was none, and unix.EMSGSIZE if a router, or the kernel, said that the packet is too long.
func (p *pinger) ping(size int) (time.Duration, error) {
	const request4, request6 = 8, 128
	packet := make([]byte, size-p.header)
	token := packet[8:24]
	rand.Read(token)
	packet[0] = request6
	if p.is4 {
		packet[0] = request4
		binary.BigEndian.PutUint16(packet[2:], checksum(packet))
	}
	start := time.Now()
	if _, err := unix.Write(p.fd, packet); err != nil {
		return 0, err
	}
	buf := make([]byte, size+p.header)
	for {
		left := max(echoWait-time.Since(start), 0)
		ready, err := unix.Poll([]unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}},
			int((left+time.Millisecond-1)/time.Millisecond))
		switch {
		case err != nil && err != unix.EINTR:
			return 0, err
		case left == 0 && ready <= 0: // also where this process got no time until now: the answer may be there
			return 0, errNoEcho
		}
		n, err := p.receive(buf)
		switch {
		case err == unix.EAGAIN || err == unix.EINTR:
		case err != nil:
			return 0, err
		case p.isAnswer(buf[:n], token):
			return time.Since(start), nil
		}
	}
}

// isAnswer reports whether a message is the answer to the echo request with a token.
func (p *pinger) isAnswer(msg, token []byte) bool {
	const answer4, answer6 = 0, 129
	if p.shown && len(msg) > 0 {
		msg = msg[min(int(msg[0]&15)*4, len(msg)):]
	}
	want := byte(answer6)
	if p.is4 {
		want = answer4
	}
	return len(msg) >= 8+len(token) && msg[0] == want && bytes.Equal(msg[8:8+len(token)], token)
}

// checksum is the Internet checksum (RFC 1071) of a message of even length.
func checksum(msg []byte) uint16 {
	sum := uint32(0)
	for i := 0; i+1 < len(msg); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(msg[i:]))
	}
	for sum>>16 != 0 {
		sum = sum&0xFFFF + sum>>16
	}
	return ^uint16(sum)
}

// sockaddr returns an address for a system call; the zone of a link-local one is an interface's name or index.
func sockaddr(a netip.Addr, port int) unix.Sockaddr {
	if a.Is4() {
		return &unix.SockaddrInet4{Port: port, Addr: a.As4()}
	}
	index, err := strconv.Atoi(a.Zone())
	if netif, nerr := net.InterfaceByName(a.Zone()); err != nil && nerr == nil {
		index = netif.Index
	}
	return &unix.SockaddrInet6{Port: port, Addr: a.As16(), ZoneId: uint32(index)}
}
