package wrap

import (
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/internal/group"
	"github.com/goroce/goroce/roce/link/internal/local"
	"github.com/goroce/goroce/roce/link/internal/runs"
)

// Limits of the queue.
const (
	loopRuns  = 1024
	loopBytes = 4 << 20
)

// Loopback returns a Link that passes runs to addresses of l to Recv instead of l. Two QPs of one device need it:
// frames to the own host that are sent by a packet socket or XDP do not come back, and with a UDP socket they pass the
// kernel's stack. Runs to multicast groups are sent by l: drivers deliver them to members on this host.
//
// Looped runs look as they were sealed: with the source port that l would use, and
// with ID the identification of the first frame; the later ones follow l.Caps().ID.
// When the queue is full they are dropped and counted (Stats.RxOverflow).
//
// So a run from below whose source is an address of l is forged, and dropped
// (Stats.RxForged): any user of this host, and any host of the network, can send one.
// Runs to groups pass, because l returns to members what they send to a group. If all of l's
// runs leave from one port (Caps.FixedSrcPort), which nobody else can bind, only runs from there pass.
func Loopback(l link.Link) link.Link {
	t := &loopback{Link: l, caps: l.Caps(), queue: runs.NewQueue(loopRuns, loopBytes)}
	t.local.Init(t.caps.Name, t.caps.Local)
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
			t.loop(&out[taken])
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

func (t *loopback) loop(r *link.Run) {
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
	looped := *r
	looped.SrcPort = outerSent(r, &t.caps).SrcPort
	looped.ID, looped.KnownID = sentID(r, t.caps.ID, 0), true
	if !t.queue.Push(&looped) {
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
	return n + t.keep(in[n:n+below]), err
}

// Keep gives away what Recv has returned, looped runs and others.
func (t *loopback) Keep() {
	t.queue.Keep()
	t.Link.Keep()
}

// keep moves those runs to the front that are not forged, and returns how many.
func (t *loopback) keep(in []link.Run) (kept int) {
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
func (t *loopback) ownToGroup(r *link.Run) bool {
	return group.Is(&r.Dst) && (t.caps.FixedSrcPort == 0 || r.SrcPort == t.caps.FixedSrcPort)
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
	s.RxForged += t.stats.RxForged
	if s.LastError == "" {
		s.LastError = t.stats.LastError
	}
	return s
}
