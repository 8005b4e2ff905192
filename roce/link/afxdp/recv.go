package afxdp

import (
	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/internal/packet"
	"github.com/goroce/goroce/roce/link/internal/runs"
	"github.com/goroce/goroce/wire"
)

const rxBatch = 32

type rxState struct {
	whole   [rxBatch][]byte // frames of several chunks, in one piece
	headers wire.Frame
	next    int // queue to begin with
}

func (r *rxState) init(l *layout) {
	// The UDP checksum of a packet that has not left the machine is incomplete, and the ICRC covers more.
	r.headers.PartialUDPSum = true
	if !l.several {
		return
	}
	for i := range r.whole {
		r.whole[i] = make([]byte, 0, wire.EtherLen+l.mtu)
	}
}

// Recv receives from each queue once, and in the main link also what comes through the kernel. Each call begins with
// the next of these sources, so that none starves.
func (c *conn) Recv(now ib.Instant, in []link.Run) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed.Load() {
		return 0, link.ErrClosed
	}
	in = in[:min(len(in), rxBatch)]
	got, sources := 0, len(c.queues)
	if c.main {
		sources++
	}
	c.rx.next = (c.rx.next + 1) % sources
	for i := range sources {
		source := (c.rx.next + i) % sources
		if source < len(c.queues) {
			got += c.receive(c.queues[source], in[got:], got)
		} else if got < len(in) {
			n, err := c.kernel.Recv(now, in[got:])
			if err != nil {
				return 0, err
			}
			got += n
		}
	}
	return got, nil
}

// Keep does nothing: the frames are in memory that the device writes to (link.Caps.Keeps is false).
func (c *conn) Keep() {}

// receive makes runs of the frames in q, after the runs in use, and returns the chunks of earlier runs to the kernel.
// It also offers the device frames that it has not taken earlier, as an owner that polls does not call Wait.
func (c *conn) receive(q *queue, in []link.Run, used int) (got int) {
	q.refill()
	if q.waiting() {
		q.kick(&c.stats)
	}
	ready := q.rx.ready()
	at := 0
	for at < ready && got < len(in) {
		frame, chunks := c.frame(q, at, ready, used+got)
		if chunks == 0 {
			break // the rest of the frame has not arrived yet
		}
		at += chunks
		if c.decode(frame, &in[got]) {
			got++
		}
	}
	if at > 0 {
		q.rx.release(at)
	}
	return got
}

// frame returns the frame whose first chunk is number at of those that are ready, and how many chunks it has. They are
// in use until the next Recv. A frame of several chunks is copied into the given slot.
func (c *conn) frame(q *queue, at, ready, slot int) (frame []byte, chunks int) {
	chunks = 1
	for q.rx.at(at+chunks-1).Options&unix.XDP_PKT_CONTD != 0 {
		if chunks++; at+chunks > ready {
			return nil, 0
		}
	}
	whole := c.rx.whole[slot][:0]
	for i := range chunks {
		desc := q.rx.at(at + i)
		q.lent = append(q.lent, desc.Addr)
		part := c.mem.bytes(desc.Addr, desc.Len)
		if chunks == 1 {
			return part, 1
		}
		whole = append(whole, part[:min(len(part), cap(whole)-len(whole))]...)
	}
	return whole, chunks
}

// decode decodes the headers of a frame. If the frame is for this link, it makes a run of it.
func (c *conn) decode(frame []byte, r *link.Run) bool {
	if c.rx.headers.Decode(frame) != nil || packet.NoSource(&c.rx.headers.Outer.Src) {
		c.stats.RxDropped++
		return false
	}
	*r = packet.Received(&c.rx.headers)
	if dropped := runs.Trim(r); dropped > 0 {
		c.stats.RxDropped += uint64(dropped)
		return false
	}
	c.stats.RxRuns++
	c.stats.RxFrames++
	c.stats.RxBytes += uint64(len(r.Buf))
	return true
}
