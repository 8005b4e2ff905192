package packet

import (
	"cmp"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/internal/group"
	"github.com/goroce/goroce/roce/link/internal/runs"
	"github.com/goroce/goroce/roce/link/internal/sock"
	"github.com/goroce/goroce/wire"
)

const (
	// txBatch is the number of messages of one sendmmsg. It is at least runFrames, so that a run which is sent frame by
	// frame fits.
	txBatch = 128

	// A message is a struct virtio_net_hdr, the headers, and a frame or a whole run.
	headerLen = vnetLen + wire.EtherLen + wire.VLANLen + wire.IPv6Len + wire.UDPLen

	defaultHops = 64 // also used for a hop limit of 0, with which no packet can be sent
)

type txState struct {
	*sock.Outbox
	frame   wire.Frame
	headers [txBatch][headerLen]byte
}

func (t *txState) init() { t.Outbox = sock.NewOutbox(txBatch, 2, 0) }

// Send sends as many runs as fit into txBatch messages by one system call.
func (c *Conn) Send(now ib.Instant, out []link.Run) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed.Load() {
		return 0, link.ErrClosed
	}
	c.release(now)
	for taken := 0; taken < len(out); {
		stretch := c.fill(now, out[taken:])
		n := c.tx.Flush(c.fd, stretch, &c.stats)
		taken += n
		if n < stretch {
			return taken, nil
		}
	}
	return len(out), nil
}

// fill makes messages of the first runs that fit, and returns the number of runs. A run that cannot be sent now is held
// or counted, and handled alone: if Flush returned runs before it, it would be handled twice.
func (c *Conn) fill(now ib.Instant, out []link.Run) (stretch int) {
	c.tx.Reset()
	for ; stretch < len(out); stretch++ {
		r := &out[stretch]
		mac, known, why := c.destination(r)
		if !known {
			if stretch > 0 {
				return stretch
			}
			if why != "" || !c.hold(now, r) {
				sock.Lose(&c.stats, int(runs.Count(r)),
					cmp.Or(why, "too much waits for the MAC addresses of destinations"))
			}
			return 1
		}
		if c.tx.Room() < c.messages(r) {
			return stretch
		}
		c.add(stretch, r, mac)
	}
	return stretch
}

// destination returns the destination MAC address of r. known says that r may be sent now; why says that r can never be
// sent.
func (c *Conn) destination(r *link.Run) (mac [6]byte, known bool, why string) {
	if why := runs.Refuse(&c.caps, r); why != "" {
		return mac, false, why
	}
	if !c.local.Has(&r.Src) {
		return mac, false, runs.NotOurs
	}
	if group.Is(&r.Dst) {
		return group.MAC(&r.Dst), true, ""
	}
	mac, known = c.peers.Lookup(&r.Dst)
	return mac, known && !c.held.to(&r.Dst), ""
}

// Neighbour returns the destination MAC address of r, which must be for a host. known says that the address is known,
// and no earlier run to the host is held: then r may be sent in any way. Otherwise c must send it. Any goroutine may
// call Neighbour.
func (c *Conn) Neighbour(r *link.Run) (mac [6]byte, known bool) {
	mac, known = c.peers.Lookup(&r.Dst)
	if !c.held.any.Load() {
		return mac, known
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return mac, known && !c.held.to(&r.Dst)
}

// Address sets f to the headers of r's first frame, with the destination MAC address mac. The identification of each
// further frame is one more.
func (c *Conn) Address(f *wire.Frame, r *link.Run, mac [6]byte) {
	f.EtherDst, f.EtherSrc = mac, c.netif.MAC
	f.Outer = wire.Outer{
		Src: r.Src, Dst: r.Dst,
		SrcPort: r.SrcPort, DstPort: link.Port,
		TrafficClass: r.TrafficClass, HopLimit: r.HopLimit, FlowLabel: r.FlowLabel,
		ID: r.ID,
	}
	if f.Outer.HopLimit == 0 {
		f.Outer.HopLimit = defaultHops
	}
}

// messages returns how many messages r takes.
func (c *Conn) messages(r *link.Run) int {
	if c.offload {
		return 1
	}
	return r.Frames()
}

// add makes messages of r, run number n of those that Send sends together. A frame that is sent by itself has no UDP
// checksum, like those of rdma_rxe and NICs.
func (c *Conn) add(n int, r *link.Run, mac [6]byte) {
	f := &c.tx.frame
	c.Address(f, r, mac)
	if frames := r.Frames(); frames > 1 && c.offload {
		headers := c.message(n, frames, r.Buf)
		segment(headers, &f.Outer, r.Size, len(r.Buf))
		return
	}
	for i := range r.Frames() {
		c.message(n, 1, r.Frame(i))
		f.Outer.ID++
	}
}

// message adds a message with the headers of c.tx.frame and p, which has that number of frames of run n. It returns the
// headers, which ask nothing of the kernel yet.
func (c *Conn) message(n, frames int, p []byte) (headers []byte) {
	m := c.tx.Add(n, frames, len(p))
	vnet := c.tx.headers[m][:vnetLen]
	clear(vnet)
	headers = c.tx.frame.AppendHeaders(vnet, len(p))
	c.tx.SetBuf(m, 0, headers)
	c.tx.SetBuf(m, 1, p)
	return headers
}
