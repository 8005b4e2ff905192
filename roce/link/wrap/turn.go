package wrap

import (
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/internal/group"
	"github.com/goroce/goroce/roce/link/internal/local"
	"github.com/goroce/goroce/roce/link/internal/runs"
)

// Bounds of Turn's queue.
const (
	turnRuns  = 1024
	turnBytes = 4 << 20
)

// Turn returns a Link on which runs to l's own addresses come back from Recv
// instead of going down. Two QPs of one device need that: frames to oneself that
// leave through a packet socket or XDP never come back, and through a UDP socket
// they take a detour. Runs to multicast groups go down: the drivers themselves
// bring members what they send.
//
// Turned runs look as they were sealed: with the source port that l would use, and
// with ID the identification of the first frame; the later ones follow l.Caps().ID.
// When the queue is full they are dropped and counted (Stats.RxOverflow).
//
// So what comes from below with an own address as its source is forged, and dropped
// (Stats.RxForged): any user of this host can send such packets, as can hosts on the
// network. Runs to groups pass, for members get what they send there back from below;
// where all leaves from one port, which nobody else can bind, they must come from it.
func Turn(l link.Link) link.Link {
	t := &turner{Link: l, caps: l.Caps(), queue: runs.NewQueue(turnRuns, turnBytes)}
	t.local.Init("turn", t.caps.Local)
	return t
}

type turner struct {
	link.Link
	caps  link.Caps
	local local.Set
	queue *runs.Queue
	stats link.Stats
}

// AddLocal has runs to one more address come back.
func (t *turner) AddLocal(gid ib.GID) error {
	return t.local.Add(gid, func() error { return t.Link.AddLocal(gid) })
}

// RemoveLocal lets runs to the address go down, where nobody takes them.
func (t *turner) RemoveLocal(gid ib.GID) error {
	return t.local.Remove(gid, func() error { return t.Link.RemoveLocal(gid) })
}

func (t *turner) Send(now ib.Instant, out []link.Run) (int, error) {
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

func (t *turner) turn(r *link.Run) {
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

func (t *turner) Recv(now ib.Instant, in []link.Run) (int, error) {
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
	return n + t.keep(in[n:n+below]), err
}

// keep moves those runs to the front that are not forged, and returns how many.
func (t *turner) keep(in []link.Run) (kept int) {
	for i := range in {
		if t.local.Has(&in[i].Src) && !t.ownToGroup(&in[i]) {
			t.stats.RxForged += runs.Count(&in[i])
			continue
		}
		if kept != i {
			in[kept] = in[i]
		}
		kept++
	}
	return kept
}

// ownToGroup reports whether r, which has an own address as its source, may be what the
// device has sent to a group.
func (t *turner) ownToGroup(r *link.Run) bool {
	return group.Is(&r.Dst) && (t.caps.FixedSrcPort == 0 || r.SrcPort == t.caps.FixedSrcPort)
}

// Wait returns at once if turned runs are waiting.
func (t *turner) Wait(d time.Duration, writable bool) error {
	if t.queue.Len() > 0 {
		d = 0
	}
	return t.Link.Wait(d, writable)
}

func (t *turner) Stats() link.Stats {
	s := t.Link.Stats()
	s.TxRuns += t.stats.TxRuns
	s.TxFrames += t.stats.TxFrames
	s.TxBytes += t.stats.TxBytes
	s.TxErrors += t.stats.TxErrors
	s.RxRuns += t.stats.RxRuns
	s.RxFrames += t.stats.RxFrames
	s.RxBytes += t.stats.RxBytes
	s.RxOverflow += t.stats.RxOverflow
	s.RxForged += t.stats.RxForged
	if s.LastError == "" {
		s.LastError = t.stats.LastError
	}
	return s
}
