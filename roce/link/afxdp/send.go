package afxdp

import (
	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/internal/group"
	"github.com/goroce/goroce/roce/link/internal/runs"
	"github.com/goroce/goroce/roce/link/internal/sock"
)

// Send puts frames into the TX rings and then notifies the kernel.
func (c *conn) Send(now ib.Instant, out []link.Run) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed.Load() {
		return 0, link.ErrClosed
	}
	taken := 0
	for taken < len(out) && c.send(now, out[taken:taken+1]) {
		taken++
	}
	c.kick()
	return taken, nil
}

// kick notifies the kernel of all TX rings.
func (c *conn) kick() {
	for _, q := range c.queues {
		q.kick(&c.stats)
	}
}

// send sends one run. It returns false if there is no room.
func (c *conn) send(now ib.Instant, one []link.Run) bool {
	r := &one[0]
	why := runs.Refuse(&c.caps, r)
	if why == "" && !c.local.Has(&r.Src) {
		why = runs.NotOurs
	}
	if why != "" {
		sock.Lose(&c.stats, int(runs.Count(r)), why)
		return true
	}
	if group.Is(&r.Dst) {
		return c.sendByKernel(now, one)
	}
	mac, known := c.kernel.Neighbour(r)
	if !known { // the frames wait there until the address is known
		return c.sendByKernel(now, one)
	}
	// All frames of a flow use the same queue, so they stay in order.
	q := c.queues[int(r.SrcPort)%c.senders]
	if why := q.state(&c.stats); why != 0 {
		sock.Lose(&c.stats, r.Frames(), why.Error())
		return true
	}
	h := &c.headers
	c.kernel.Address(&h.frame, r, mac)
	size := min(r.Size, len(r.Buf))
	h.build(size)
	if !q.makeRoom(r.Frames()*c.mem.pieces(h.len+size), &c.stats) {
		return false
	}
	for i := range r.Frames() {
		frame := r.Frame(i)
		if len(frame) < size {
			h.build(len(frame))
		}
		q.put(h, r.ID+uint16(i), frame)
	}
	c.stats.TxRuns++
	c.stats.TxFrames += uint64(r.Frames())
	c.stats.TxBytes += uint64(len(r.Buf))
	return true
}

func (c *conn) sendByKernel(now ib.Instant, one []link.Run) bool {
	n, err := c.kernel.Send(now, one)
	return n == 1 || err != nil
}

// state returns why nothing can be sent, or 0. It first tries again what has failed before.
func (q *queue) state(s *link.Stats) unix.Errno {
	if q.broken != 0 {
		q.kick(s)
	}
	return q.broken
}

// makeRoom frees chunks that have been sent, and kicks the kernel if there is still no room for a number of chunks. It
// returns false if that did not help; it does not wait.
func (q *queue) makeRoom(chunks int, s *link.Stats) bool {
	q.reclaim()
	if q.room(chunks) {
		return true
	}
	q.kick(s)
	q.reclaim()
	return q.room(chunks)
}

// put puts a frame into the TX ring. There must be room for its chunks.
func (q *queue) put(h *headers, id uint16, transport []byte) {
	addr, chunk := q.take()
	n := h.put(chunk, id)
	for {
		more := copy(chunk[n:], transport)
		transport = transport[more:]
		desc := unix.XDPDesc{Addr: addr, Len: uint32(n + more)}
		if len(transport) == 0 {
			q.tx.put(desc)
			return
		}
		desc.Options = unix.XDP_PKT_CONTD
		q.tx.put(desc)
		addr, chunk = q.take()
		n = 0
	}
}

// take returns a free chunk to send from.
func (q *queue) take() (addr uint64, chunk []byte) {
	last := len(q.free) - 1
	addr, q.free = q.free[last], q.free[:last]
	return addr, q.mem.bytes(addr, uint32(q.mem.chunk))
}
