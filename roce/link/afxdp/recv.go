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
	whole   [rxBatch][]byte // frames of several chunks, put together
	headers wire.Frame
	turn    int // source to look at first
}

func (r *rxState) init(l *layout) {
	// The ICRC covers more than a UDP checksum, and that of a packet which has not
	// left the machine is not finished.
	r.headers.PartialUDPSum = true
	if !l.several {
		return
	}
	for i := range r.whole {
		r.whole[i] = make([]byte, 0, wire.EtherLen+l.mtu)
	}
}

// Recv looks at each queue once, and the main link at what came through the kernel,
// beginning with another one each time.
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
	c.rx.turn = (c.rx.turn + 1) % sources
	for i := range sources {
		source := (c.rx.turn + i) % sources
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

// receive turns frames that q has into runs, of which there are used already, and
// gives the chunks of earlier ones back. Nobody else may come by to offer the device
// again what it took no more of: who polls does not wait.
func (c *conn) receive(q *queue, in []link.Run, used int) (got int) {
	q.giveBack()
	if q.waiting() {
		q.kick(&c.stats)
	}
	ready := q.rx.ready()
	at := 0
	for at < ready && got < len(in) {
		frame, chunks := c.frame(q, at, ready, used+got)
		if chunks == 0 {
			break // the rest of the frame is not there yet
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

// frame returns the frame whose first chunk is the at-th of those that are ready, and
// how many chunks it takes, which it lends. A frame of several is put together in the
// given slot.
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

// decode reads the headers of a frame and makes a run of it, if it is one of ours.
func (c *conn) decode(frame []byte, r *link.Run) bool {
	if c.rx.headers.Decode(frame) != nil {
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
