package doctor

import (
	"errors"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/wire"
)

// direction says where packets of a size get lost that are answered if they are shorter. " " is in front; it is empty
// if that cannot be known.
func (e *env) direction(local netip.Addr, size int) string {
	if !refuses(local, e.Peer, minEcho) {
		return "" // a firewall drops these packets, or the answers
	}
	if refuses(local, e.Peer, size) {
		return "; they arrive there, so the way back drops them"
	}
	return "; the way there drops them"
}

// closedPorts are ports of traceroute, which nobody listens on.
const (
	closedPorts = 33434
	closedTries = 3
)

// refuses reports whether a host refuses a UDP packet, in an IP packet of that size, that no router may fragment. The
// refusal is an ICMP message, which is short whatever the length of the packet.
func refuses(local, peer netip.Addr, size int) bool {
	for i := range closedTries {
		if refused(local, peer, size, closedPorts+i) {
			return true
		}
	}
	return false
}

func refused(local, peer netip.Addr, size, port int) bool {
	family, level, discover, probe, header := unix.AF_INET, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER,
		unix.IP_PMTUDISC_PROBE, wire.IPv4Len
	if !peer.Is4() {
		family, level, discover, probe, header = unix.AF_INET6, unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER,
			unix.IPV6_PMTUDISC_PROBE, wire.IPv6Len
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	if err := errors.Join(unix.SetsockoptInt(fd, level, discover, probe), unix.Bind(fd, sockaddr(local, 0)),
		unix.Connect(fd, sockaddr(peer, port))); err != nil {
		return false
	}
	if _, err := unix.Write(fd, make([]byte, size-header-wire.UDPLen)); err != nil {
		return false
	}
	_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(echoWait/time.Millisecond))
	_, err = unix.Read(fd, make([]byte, 1))
	return errors.Is(err, unix.ECONNREFUSED)
}

// marksReturn sends ECN-capable echo requests, whose answers by Linux are so, too, and reports whether one is when it
// arrives; known is false if there is no answer. Where requests arrive without the mark, the answers tell nothing.
func (e *env) marksReturn(local netip.Addr) (back, known bool) {
	p, err := newPinger(local, e.Peer)
	if err != nil || p.mark() != nil {
		return false, false
	}
	defer p.close()
	for range echoTries {
		if _, err := p.ping(minEcho); err == nil {
			known = true
			back = back || wire.ECN(p.ecn) != wire.NotECT
		}
	}
	return back, known
}

// mark makes echo requests ECN-capable, and asks for the bits of the answers.
func (p *pinger) mark() error {
	level, class, ask := unix.IPPROTO_IP, unix.IP_TOS, unix.IP_RECVTOS
	if !p.is4 {
		level, class, ask = unix.IPPROTO_IPV6, unix.IPV6_TCLASS, unix.IPV6_RECVTCLASS
	}
	return errors.Join(unix.SetsockoptInt(p.fd, level, class, int(wire.ECT0)),
		unix.SetsockoptInt(p.fd, level, ask, 1))
}

// receive reads a message, and its ECN bits if they are asked for.
func (p *pinger) receive(buf []byte) (int, error) {
	control := make([]byte, unix.CmsgSpace(8))
	n, length, _, _, err := unix.Recvmsg(p.fd, buf, control, 0)
	if err != nil {
		return n, err
	}
	messages, err := unix.ParseSocketControlMessage(control[:length])
	if err != nil {
		return n, err
	}
	for _, m := range messages {
		if len(m.Data) > 0 && (m.Header.Type == unix.IP_TOS || m.Header.Type == unix.IPV6_TCLASS) {
			p.ecn = byte(wire.ECNOf(m.Data[0])) // of 1 byte, or of 4 in this machine's order, which is little-endian
		}
	}
	return n, nil
}
