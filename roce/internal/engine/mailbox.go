package engine

import (
	"sync"
	"sync/atomic"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
)

// Capacity of a mailbox.
const (
	mailRuns  = 1024
	mailBytes = 1 << 20
)

// mailbox holds runs that have arrived by other shards' links, in the order of arrival, until
// the shard takes them in its next turn. A full mailbox drops runs, as a switch does:
// reliable services send them again.
type mailbox struct {
	some atomic.Bool // the mailbox is not empty

	mu      sync.Mutex
	in      mail
	crossed uint64 // frames that were put here
	dropped uint64 // frames that were dropped for lack of room

	out mail // what take returned last; used by the shard only
}

// mail is a list of runs, and the bytes of their frames.
type mail struct {
	runs  []link.Run
	bytes []byte
}

// put adds a copy of r, which has the given number of frames for this shard.
func (m *mailbox) put(r *link.Run, frames int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := len(m.in.bytes)
	if len(m.in.runs) == mailRuns || at+len(r.Buf) > mailBytes {
		m.dropped += uint64(frames)
		return
	}
	m.crossed += uint64(frames)
	m.in.bytes = append(m.in.bytes, r.Buf...) // may move the bytes; earlier runs keep the old array
	m.in.runs = append(m.in.runs, *r)
	m.in.runs[len(m.in.runs)-1].Buf = m.in.bytes[at:]
	m.some.Store(true)
}

// spread puts a run that the link has received into the mailboxes of the other shards that have
// frames in it, and reports whether this shard has frames in it.
func (s *Shard) spread(r *link.Run) bool {
	var frames [link.MaxShards]int
	shards := len(s.engine.shards)
	if isMulticast(&r.Dst) {
		to := s.groups[r.Dst].shards
		if to == 0 {
			return true // no QP is attached: this shard counts the drop
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

// isMulticast reports whether a GID is a multicast address.
func isMulticast(g *ib.GID) bool { return g[0] == 0xFF || g[12]>>4 == 0xE && g.Is4() }

// take empties the mailbox and returns its runs, which stay valid until the next take.
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

// keep leaves the runs that take has returned last to the caller.
func (m *mailbox) keep() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.out = mail{}
}

// count adds the mailbox's counters to the statistics.
func (m *mailbox) count(st *Stats) {
	m.mu.Lock()
	defer m.mu.Unlock()
	st.CrossedShards += m.crossed
	st.DropMailbox += m.dropped
}
