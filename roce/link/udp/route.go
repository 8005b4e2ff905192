package udp

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/neigh"
)

// If two interfaces of a host are in one subnet, the kernel sends all packets to it by the same one, also those from
// the other's address, which peers and switches may then drop (rp_filter, port security). So a socket sends to other
// hosts of such a subnet by the interface that has its address, as rdma_rxe does to all destinations (rxe_find_route4);
// to the rest, as addresses of this host, whose packets go by loopback, it sends as the routes say.

// sharedAge is the age at which the subnets of a socket are asked for again.
const sharedAge ib.Instant = 10e9

// findShared asks for the subnets that the interface of s shares, if it is time, on a goroutine of its own: the kernel
// lists all addresses of the host.
func (c *conn) findShared(now ib.Instant, s *socket) {
	if now-s.sharedAt < sharedAge || s.asking.Swap(true) {
		return
	}
	s.sharedAt = now
	c.asks.Go(func() {
		defer s.asking.Store(false)
		_ = c.ns.Do(s.askShared)
	})
}

// askShared asks for the subnets that the interface of s shares. Without an answer nothing changes. It is called in the
// network namespace of s.
func (s *socket) askShared() error {
	shared, err := neigh.SharedWith(s.index)
	if err == nil {
		s.shared.Store(&shared)
	}
	return err
}

// direct reports whether a run must leave by the interface of s, whatever the routes say.
func (s *socket) direct(r *link.Run) bool {
	shared := s.shared.Load()
	return shared != nil && shared.Any() && shared.Has(r.Dst.Addr())
}

// sendBy makes the socket send by its interface, or as the routes say.
func (s *socket) sendBy(own bool) {
	if s.ownOnly == own {
		return
	}
	index := 0
	if own {
		index = s.index
	}
	big := int(binary.NativeEndian.Uint32(binary.BigEndian.AppendUint32(nil, uint32(index))))
	level, option := unix.IPPROTO_IP, unix.IP_UNICAST_IF
	if !s.is4 {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_UNICAST_IF
	}
	if unix.SetsockoptInt(s.fd, level, option, big) == nil {
		s.ownOnly = own
	}
}
