package engine

import (
	"sync"
	"sync/atomic"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
)

// Bounds of what waits in a mailbox.
const (
	mailRuns  = 1024
	mailBytes = 1 << 20
)

// mailbox holds runs that have arrived by other shards' links, in that order, until
// the shard takes them with its next step. When it is full they are dropped, as by a
// switch: only unreliable services notice.
type mailbox struct {
	some atomic.Bool // there is something in it

	mu      sync.Mutex
	in      mail
	crossed uint64 // frames that were put here
	dropped uint64 // frames that found no room

	out mail // what take returned; the shard's own
}

// mail is a list of runs, and the bytes of their frames.
type mail struct {
	runs  []link.Run
	bytes []byte
}

// put adds a copy of r, with that many frames of interest.
func (m *mailbox) put(r *link.Run, frames int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := len(m.in.bytes)
	if len(m.in.runs) == mailRuns || at+len(r.Buf) > mailBytes {
		m.dropped += uint64(frames)
		return
	}
	m.crossed += uint64(frames)
	m.in.bytes = append(m.in.bytes, r.Buf...) // what lies there may move; runs keep to where they were copied
	m.in.runs = append(m.in.runs, *r)
	m.in.runs[len(m.in.runs)-1].Buf = m.in.bytes[at:]
	m.some.Store(true)
}

// spread passes a run that the link has received on to the other shards that have
// a part in it, and reports whether this one has.
func (s *Shard) spread(r *link.Run) bool {
	var frames [link.MaxShards]int
	shards := len(s.engine.shards)
	if isMulticast(&r.Dst) {
		to := s.groups[r.Dst].shards
		if to == 0 {
			return true // it is for nobody, which counts here
		}
		for i := range shards {
			frames[i] = r.Frames() * int(to>>i&1)
		}
	} else {
		for i := range r.Frames() {
			frames[link.FrameShard(r.Frame(i), shards)]++
		}
	}
	for i, other := range s.engine.shards {
		if i != s.id && frames[i] > 0 {
			other.mail.put(r, frames[i])
			other.wake()
		}
	}
	return frames[s.id] > 0
}

// isMulticast reports whether a GID is that of a group.
func isMulticast(g *ib.GID) bool { return g[0] == 0xFF || g[12]>>4 == 0xE && g.Is4() }

// take returns what is in the mailbox. It stays valid until the next take.
func (m *mailbox) take() []link.Run {
	if !m.some.Load() {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.in, m.out = mail{m.out.runs[:0], m.out.bytes[:0]}, m.in
	m.some.Store(false)
	return m.out.runs
}

// count adds to the statistics.
func (m *mailbox) count(st *Stats) {
	m.mu.Lock()
	defer m.mu.Unlock()
	st.CrossedShards += m.crossed
	st.DropMailbox += m.dropped
}
