package wrap

import (
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/internal/local"
	"github.com/goroce/goroce/roce/link/internal/runs"
)

// Limits of the queue.
const (
	turnRuns  = 1024
	turnBytes = 4 << 20
)

// Loopback returns a Link that passes runs to addresses of l to Recv instead of l. Two QPs of one device need it:
// frames to the own host that are sent by a packet socket or XDP do not come back, and with a UDP socket they pass the
// kernel's stack. Runs to multicast groups are sent by l: drivers deliver them to members on this host.
//
// Looped runs look as they were sealed: they have the source port that l would use, and ID is the identification of the
// first frame; those of the others follow l.Caps().ID. If the queue is full, runs are dropped and counted
// (Stats.RxOverflow).
func Loopback(l link.Link) link.Link {
	t := &loopback{Link: l, caps: l.Caps(), queue: runs.NewQueue(turnRuns, turnBytes)}
	t.local.Init("turn", t.caps.Local)
	return t
}

type loopback struct {
	link.Link
	caps  link.Caps
	local local.Set
	queue *runs.Queue
	stats link.Stats
}

// AddLocal adds an address whose runs are looped.
func (t *loopback) AddLocal(gid ib.GID) error {
	return t.local.Add(gid, func() error { return t.Link.AddLocal(gid) })
}

// RemoveLocal removes an address. Runs to it are sent by the Link below, and nobody receives them.
func (t *loopback) RemoveLocal(gid ib.GID) error {
	return t.local.Remove(gid, func() error { return t.Link.RemoveLocal(gid) })
}

func (t *loopback) Send(now ib.Instant, out []link.Run) (int, error) {
	for taken := 0; taken < len(out); {
		if t.local.Has(&out[taken].Dst) {
			t.turn(&out[taken])
			taken++
			continue
		}
		end := taken + 1
		for end < len(out) && !t.local.Has(&out[end].Dst) {
			end++
		}
		n, err := t.Link.Send(now, out[taken:end])
		taken += n
		if err != nil || taken < end {
			return taken, err
		}
	}
	return len(out), nil
}

func (t *loopback) turn(r *link.Run) {
	why := runs.Refuse(&t.caps, r)
	if why == "" && !t.local.Has(&r.Src) {
		why = runs.NotOurs
	}
	if why != "" {
		t.stats.TxErrors += runs.Count(r)
		t.stats.LastError = why
		return
	}
	frames := uint64(r.Frames())
	t.stats.TxRuns++
	t.stats.TxFrames += frames
	t.stats.TxBytes += uint64(len(r.Buf))
	turned := *r
	turned.SrcPort = outerSent(r, &t.caps).SrcPort
	turned.ID, turned.KnownID = sentID(r, t.caps.ID, 0), true
	if !t.queue.Push(&turned) {
		t.stats.RxOverflow += frames
	}
}

func (t *loopback) Recv(now ib.Instant, in []link.Run) (int, error) {
	n := t.queue.Pop(in)
	for i := range in[:n] {
		t.stats.RxRuns++
		t.stats.RxFrames += uint64(in[i].Frames())
		t.stats.RxBytes += uint64(len(in[i].Buf))
	}
	if n == len(in) {
		return n, nil
	}
	below, err := t.Link.Recv(now, in[n:])
	return n + below, err
}

// Wait returns at once if looped runs wait.
func (t *loopback) Wait(d time.Duration, writable bool) error {
	if t.queue.Len() > 0 {
		d = 0
	}
	return t.Link.Wait(d, writable)
}

func (t *loopback) Stats() link.Stats {
	s := t.Link.Stats()
	s.TxRuns += t.stats.TxRuns
	s.TxFrames += t.stats.TxFrames
	s.TxBytes += t.stats.TxBytes
	s.TxErrors += t.stats.TxErrors
	s.RxRuns += t.stats.RxRuns
	s.RxFrames += t.stats.RxFrames
	s.RxBytes += t.stats.RxBytes
	s.RxOverflow += t.stats.RxOverflow
	if s.LastError == "" {
		s.LastError = t.stats.LastError
	}
	return s
}
