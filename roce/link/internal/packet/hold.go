package packet

import (
	"bytes"
	"slices"
	"sync/atomic"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/internal/runs"
	"github.com/goroce/goroce/roce/link/internal/sock"
)

// Runs to a destination whose MAC address is not known yet are held as long, and up to as many bytes, as the kernel
// holds its own packets: three probes at intervals of a second (mcast_solicit, retrans_time_ms), unres_qlen_bytes. UC
// and UD do not retransmit, so a dropped run would be lost.
const (
	holdBytes = 212_992
	holdTime  = 3_000_000_000 // nanoseconds
)

// holding has the held runs, oldest first.
type holding struct {
	runs  []link.Run // their Buf are copies
	since []ib.Instant
	bytes int

	any  atomic.Bool // runs is not empty
	news atomic.Bool // an address has become known since release has last checked
}

// hold keeps a copy of r. It returns false if there is no room.
func (c *Conn) hold(now ib.Instant, r *link.Run) bool {
	if !c.held.add(now, r) {
		return false
	}
	// An address that became known before add set held.any counts as news, too.
	if _, known := c.peers.Lookup(&r.Dst); known {
		c.learned()
	}
	return true
}

func (h *holding) add(now ib.Instant, r *link.Run) bool {
	if h.bytes+len(r.Buf) > holdBytes {
		return false
	}
	kept := *r
	kept.Buf = bytes.Clone(r.Buf)
	h.runs, h.since = append(h.runs, kept), append(h.since, now)
	h.bytes += len(kept.Buf)
	h.any.Store(true)
	return true
}

// to reports whether a run to dst is held. Later runs to dst must wait behind it.
func (h *holding) to(dst *ib.GID) bool {
	return slices.ContainsFunc(h.runs, func(r link.Run) bool { return r.Dst == *dst })
}

// learned is called on the goroutine of the neighbour table.
func (c *Conn) learned() {
	if c.held.any.Load() {
		c.held.news.Store(true)
		c.poller.Wake()
	}
}

// release sends held runs whose destination has become known, and drops those that have waited too long.
func (c *Conn) release(now ib.Instant) {
	h := &c.held
	if len(h.runs) == 0 || !h.news.Swap(false) && now-h.since[0] < holdTime {
		return
	}
	kept := 0
	for i := range h.runs {
		r := &h.runs[i]
		mac, known := c.peers.Lookup(&r.Dst)
		switch {
		case !c.local.Has(&r.Src):
			sock.Lose(&c.stats, int(runs.Count(r)), runs.NotOurs)
			h.bytes -= len(r.Buf)
			continue
		case known && c.sendHeld(r, mac):
			h.bytes -= len(r.Buf)
			continue
		case known: // the socket's buffer is full
			h.news.Store(true)
		case now-h.since[i] >= holdTime:
			sock.Lose(&c.stats, int(runs.Count(r)),
				"nobody tells the MAC address of the destination, or of the gateway to it")
			h.bytes -= len(r.Buf)
			continue
		}
		h.runs[kept], h.since[kept] = *r, h.since[i]
		kept++
	}
	clear(h.runs[kept:])
	h.runs, h.since = h.runs[:kept], h.since[:kept]
	h.any.Store(kept > 0)
}

// sendHeld sends one held run. It returns false if the socket would block.
func (c *Conn) sendHeld(r *link.Run, mac [6]byte) bool {
	c.tx.Reset()
	c.add(0, r, mac)
	return c.tx.Flush(c.fd, 1, &c.stats) == 1
}
