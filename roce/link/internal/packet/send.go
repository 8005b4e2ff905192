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
	txBatch = 128 // messages that one sendmmsg takes; at least runFrames

	// A message is a struct virtio_net_hdr, all zeros (no offload is asked for),
	// the frame's headers, and the frame.
	vnetLen   = 10
	headerLen = vnetLen + wire.EtherLen + wire.VLANLen + wire.IPv6Len + wire.UDPLen

	defaultHops = 64 // stands for a hop limit of 0, which no packet can leave with
)

type txState struct {
	*sock.Outbox
	frame   wire.Frame
	headers [txBatch][headerLen]byte
}

func (t *txState) init() { t.Outbox = sock.NewOutbox(txBatch, 2, 0) }

// Send sends as many runs as make txBatch frames with one system call.
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

// fill makes messages of as many runs as fit and returns how many these are. A run
// that cannot be sent is held or counted, and stands alone: if Flush gave back the
// runs before it, that would be done again.
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
				sock.Lose(&c.stats, int(runs.Count(r)), cmp.Or(why, "too much waits for the MAC addresses of destinations"))
			}
			return 1
		}
		if c.tx.Room() < r.Frames() {
			return stretch
		}
		c.add(stretch, r, mac)
	}
	return stretch
}

// destination returns the MAC address that r goes to, if it is known and r may go
// at once; or why r can never go.
func (c *Conn) destination(r *link.Run) (mac [6]byte, known bool, why string) {
	if why := runs.Refuse(&c.caps, r); why != "" {
		return mac, false, why
	}
	if group.Is(&r.Dst) {
		return group.MAC(&r.Dst), true, ""
	}
	mac, known = c.Neighbour(r)
	return mac, known, ""
}

// Neighbour returns the MAC address that r, which is for a host, goes to, if it is
// known and no earlier run to the host is held. Any way that r goes then will do;
// otherwise it has to be sent by c.
func (c *Conn) Neighbour(r *link.Run) (mac [6]byte, known bool) {
	mac, known = c.peers.Lookup(&r.Dst)
	return mac, known && !c.held.to(&r.Dst)
}

// Address gives f the headers of r's first frame, which goes to that MAC address.
// The identification of each further frame is one more.
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

// add makes messages of the frames of r, which is run number n of the stretch.
func (c *Conn) add(n int, r *link.Run, mac [6]byte) {
	f := &c.tx.frame
	c.Address(f, r, mac)
	for i := range r.Frames() {
		frame := r.Frame(i)
		m := c.tx.Add(n, 1, len(frame))
		c.tx.SetBuf(m, 0, f.AppendHeaders(c.tx.headers[m][:vnetLen], len(frame)))
		c.tx.SetBuf(m, 1, frame)
		f.Outer.ID++
	}
}
