package udp

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/internal/group"
	"github.com/goroce/goroce/roce/link/internal/runs"
	"github.com/goroce/goroce/roce/link/internal/sock"
)

const (
	rxBatch  = 32      // messages of one recvmmsg
	rxBuffer = 1 << 16 // no datagram, and nothing merged by UDP_GRO, is longer

	// rxControl is the size of the buffer for control messages: seven of up to 8 bytes; there are at most five.
	rxControl = 7 * (unix.SizeofCmsghdr + 8)
)

type rxState struct {
	batch *sock.Batch
	bufs  *sock.Buffers

	socks []*socket // of addresses and of joined groups; guarded by conn.sockets
	next  int       // socket to begin with
}

func (r *rxState) init() {
	r.batch = sock.NewBatch(rxBatch, 1, rxControl)
	r.bufs = sock.NewBuffers(r.batch, 0, rxBuffer)
}

// Keep makes later calls of Recv use other buffers.
func (c *conn) Keep() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rx.bufs.Keep()
}

// recvGroups is how many sockets of groups a call of Recv receives from: each costs a system call, and whoever joins
// many groups must not delay what comes to the addresses.
const recvGroups = 8

// Recv receives once from each socket of an address, and from those of recvGroups groups. It begins with another one
// each time.
func (c *conn) Recv(_ ib.Instant, in []link.Run) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed.Load() {
		return 0, link.ErrClosed
	}
	c.sockets.Lock()
	defer c.sockets.Unlock()
	room := min(len(in), rxBatch)
	used, got := 0, 0 // messages, and the runs made of them
	groups, skipped, resume := 0, false, 0
	for range c.rx.socks {
		s := c.rx.nextSocket()
		if used == room {
			break
		}
		if group.Is(&s.local) {
			if groups == recvGroups {
				skipped = true
				continue
			}
			groups, resume = groups+1, c.rx.next
		}
		n := c.receiveFrom(s, used, room)
		high := s.gauge.Took(n, c.rx.batch.Bytes(used, used+n), used+n == room)
		for i := used; i < used+n; i++ {
			if c.receive(s, i, &in[got]) {
				in[got].Congested = in[got].Congested || high
				got++
			}
		}
		used += n
	}
	if skipped {
		c.rx.next = resume // with the groups that were not looked at
	}
	c.rx.bufs.Used(used)
	return got, nil
}

// recvTries is how often receiveFrom calls recvmmsg: for an error that was there before, for one that readErrors has
// left in the queue, and for messages.
const recvTries = 3

// receiveFrom receives into messages [from, to) and returns how many there are. An ICMP error makes the kernel refuse
// one call; the messages that have arrived must not wait for it, or a stream of errors would keep them back.
func (c *conn) receiveFrom(s *socket, from, to int) int {
	for try := range recvTries {
		n, errno := c.rx.batch.Recv(s.fd, from, to)
		if errno == 0 || errno == unix.EAGAIN {
			return n
		}
		if try == 0 {
			c.readErrors(s)
		}
	}
	return 0
}

// nextSocket returns the socket to receive from next.
func (r *rxState) nextSocket() *socket {
	if r.next >= len(r.socks) {
		r.next = 0
	}
	r.next++
	return r.socks[r.next-1]
}

// receive makes a run of message i. It returns false if that is empty.
func (c *conn) receive(s *socket, i int, r *link.Run) bool {
	b := c.rx.batch
	*r = link.Run{Dst: s.local, Size: b.N(i), Buf: c.rx.bufs.At(i)[:b.N(i)]}
	if s.is4 {
		name := b.Addr4(i)
		r.SrcPort = swap(name.Port)
		r.Src = mapped(name.Addr)
	} else {
		name := b.Addr6(i)
		r.SrcPort = swap(name.Port)
		r.Src = name.Addr
	}
	c.readControl(s, i, r)
	if b.Flags(i)&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		r.Buf = nil
	}
	c.stats.RxDropped += uint64(runs.Trim(r))
	if len(r.Buf) == 0 {
		return false
	}
	c.stats.RxRuns++
	c.stats.RxFrames += uint64(r.Frames())
	c.stats.RxBytes += uint64(len(r.Buf))
	return true
}

// readControl sets fields of r from the control messages of message i.
func (c *conn) readControl(s *socket, i int, r *link.Run) {
	for kind, data := range c.rx.batch.Controls(i) {
		value := *(*uint32)(data)
		switch kind {
		case kindGRO:
			r.Size = int(int32(value))
		case kindTTL, kindHopLimit:
			r.HopLimit = uint8(value)
		case kindTOS:
			r.TrafficClass = *(*uint8)(data) // unlike the others, it has one byte
		case kindTClass:
			r.TrafficClass = uint8(value)
		case kindFlowInfo:
			r.FlowLabel = binary.BigEndian.Uint32((*[4]byte)(data)[:]) & 0xFFFFF
		case kindDrops:
			c.stats.RxOverflow += uint64(value - s.drops)
			r.Congested = value != s.drops
			s.drops = value
		}
	}
}

// The control messages that sockets ask for.
var (
	kindGRO      = sock.Kind{Level: unix.IPPROTO_UDP, Type: unix.UDP_GRO}
	kindTTL      = sock.Kind{Level: unix.IPPROTO_IP, Type: unix.IP_TTL}
	kindTOS      = sock.Kind{Level: unix.IPPROTO_IP, Type: unix.IP_TOS}
	kindHopLimit = sock.Kind{Level: unix.IPPROTO_IPV6, Type: unix.IPV6_HOPLIMIT}
	kindTClass   = sock.Kind{Level: unix.IPPROTO_IPV6, Type: unix.IPV6_TCLASS}
	kindFlowInfo = sock.Kind{Level: unix.IPPROTO_IPV6, Type: ipv6FlowInfo}
	kindDrops    = sock.Kind{Level: unix.SOL_SOCKET, Type: unix.SO_RXQ_OVFL}
)

// swap converts a port between network and little-endian byte order.
func swap(p uint16) uint16 { return p>>8 | p<<8 }

func mapped(a [4]byte) ib.GID {
	return ib.GID{10: 0xFF, 11: 0xFF, 12: a[0], 13: a[1], 14: a[2], 15: a[3]}
}
