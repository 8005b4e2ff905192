package packet

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/internal/group"
	"github.com/goroce/goroce/roce/link/internal/runs"
	"github.com/goroce/goroce/roce/link/internal/sock"
	"github.com/goroce/goroce/wire"
)

const (
	rxBatch  = 32
	rxBuffer = 1<<16 + 64 // longest IP packet, and an Ethernet header

	// rxErrors limits how many errors of the socket one Recv skips.
	rxErrors = 8
)

type rxState struct {
	batch *sock.Batch
	vnet  [rxBatch][vnetLen]byte
	bufs  *sock.Buffers
	frame wire.Frame
	next  int // socket to begin with

	gauges [2]sock.Gauge // of receivers; the second is guarded by members.mu
}

func (r *rxState) init() {
	r.batch = sock.NewBatch(rxBatch, 2, 0)
	for i := range rxBatch {
		r.batch.SetBuf(i, 0, r.vnet[i][:])
	}
	r.bufs = sock.NewBuffers(r.batch, 1, rxBuffer)
}

// Keep makes later calls of Recv use other buffers.
func (c *Conn) Keep() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rx.bufs.Keep()
}

// Recv receives from each socket once, and begins with another one each time.
func (c *Conn) Recv(now ib.Instant, in []link.Run) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed.Load() {
		return 0, link.ErrClosed
	}
	c.release(now)
	c.members.mu.Lock()
	defer c.members.mu.Unlock()
	room := min(len(in), rxBatch)
	used, got := 0, 0 // messages, and the runs made of them
	c.rx.next ^= 1
	fds := c.receivers()
	for i := range fds {
		which := i ^ c.rx.next
		n := c.fetch(fds[which], used, room)
		high := c.rx.gauges[which].Took(n, c.rx.batch.Bytes(used, used+n), used+n == room)
		for i := used; i < used+n; i++ {
			if c.receive(i, &in[got]) {
				in[got].Congested = high
				got++
			}
		}
		used += n
	}
	c.rx.bufs.Used(used)
	return got, nil
}

// receivers returns the packet sockets, -1 for one that is not open. The caller holds c.members.mu.
func (c *Conn) receivers() [2]int { return [2]int{c.fd, c.members.fd} }

// fetch receives messages [from, to) and returns their number.
func (c *Conn) fetch(fd, from, to int) int {
	if fd < 0 || from == to {
		return 0
	}
	n, errno := c.rx.batch.Recv(fd, from, to)
	for skip := 0; errno != 0 && errno != unix.EAGAIN && skip < rxErrors; skip++ {
		// EINVAL: a run in one piece on kernels before 6.2, whose vnet header cannot describe it. ENETDOWN: the
		// interface went down.
		if errno == unix.EINVAL {
			c.stats.RxDropped++
		}
		n, errno = c.rx.batch.Recv(fd, from, to)
	}
	return n
}

// receive makes a run of message i. It returns false if no frame in it is for this link.
func (c *Conn) receive(i int, r *link.Run) bool {
	*r = link.Run{}
	switch ok := c.decode(i, r); {
	case !ok:
		c.stats.RxDropped++
		return false
	case group.Is(&r.Dst) && !c.members.has(&r.Dst):
		return false // for another program of this host
	default:
		c.stats.RxDropped += uint64(runs.Trim(r))
	}
	if len(r.Buf) == 0 {
		return false
	}
	c.stats.RxRuns++
	c.stats.RxFrames += uint64(r.Frames())
	c.stats.RxBytes += uint64(len(r.Buf))
	return true
}

// decode decodes the headers of message i. It returns false if it is not a RoCEv2 packet.
func (c *Conn) decode(i int, r *link.Run) bool {
	b := c.rx.batch
	if b.N(i) < vnetLen || b.Flags(i)&unix.MSG_TRUNC != 0 {
		return false
	}
	vnet := &c.rx.vnet[i]
	gso := vnet[vnetGSOType] &^ unix.VIRTIO_NET_HDR_GSO_ECN
	f := &c.rx.frame
	// With these flags the checksum is incomplete, or verified already.
	const trusted = unix.VIRTIO_NET_HDR_F_NEEDS_CSUM | unix.VIRTIO_NET_HDR_F_DATA_VALID
	f.PartialUDPSum = vnet[vnetFlags]&trusted != 0 || gso != unix.VIRTIO_NET_HDR_GSO_NONE
	if f.Decode(c.rx.bufs.At(i)[:b.N(i)-vnetLen]) != nil {
		return false
	}
	if NoSource(&f.Outer.Src) {
		return false
	}
	*r = Received(f)
	switch gso {
	case unix.VIRTIO_NET_HDR_GSO_NONE:
	case unix.VIRTIO_NET_HDR_GSO_UDP_L4:
		r.Size = int(binary.NativeEndian.Uint16(vnet[vnetGSOSize:]))
	default:
		return false
	}
	return true
}

// NoSource reports whether no host may send from an address: "this network", a multicast group, or the broadcast
// address (RFC 1122, 3.2.1.3; RFC 4291, 2.5.2 and 2.7). The kernel drops such datagrams before a UDP socket gets them.
func NoSource(g *ib.GID) bool {
	return group.Is(g) || *g == ib.GID{} || g.Is4() && (g[12] == 0 || [4]byte(g[12:]) == [4]byte{255, 255, 255, 255})
}

// Received returns the run of the single frame f.
func Received(f *wire.Frame) link.Run {
	o := &f.Outer
	return link.Run{
		Src: o.Src, Dst: o.Dst,
		SrcPort: o.SrcPort, TrafficClass: o.TrafficClass, HopLimit: o.HopLimit, FlowLabel: o.FlowLabel,
		ID: o.ID, KnownID: true,
		Size: len(f.Transport), Buf: f.Transport,
	}
}
