package track

import (
	"slices"
	"sort"

	"github.com/goroce/goroce/ib"
)

const (
	// windowKeep is how many packets a window remembers at least, if their PSNs
	// are no more than windowSpan apart. Requesters have some hundred to some
	// thousand packets in flight.
	windowKeep = 4096
	windowSpan = 1 << 21
	// maxResponses is how many responses a READ has at most. Only READs of more
	// than 1 GiB with a path MTU of 256 have more. Together with windowSpan it
	// keeps all PSNs of a window within half the number space, where their order
	// means something.
	maxResponses = 1 << 22
)

// entry is a packet that was seen, under its PSN.
type entry struct {
	psn      ib.PSN
	span     int // PSNs from psn on: as many as a READ has responses, else 1
	num      int // the latest packet with this PSN
	at       ib.Instant
	msg      *Message
	from, to uint32 // bytes of the message
	last     bool   // ends its message
}

// end returns the PSN after the entry.
func (e *entry) end() ib.PSN { return e.psn.Add(e.span) }

// window holds entries in the order of their PSNs.
type window struct{ entries []entry }

// index returns where psn is or would be: the first entry not before it.
func (w *window) index(psn ib.PSN) int {
	return sort.Search(len(w.entries), func(i int) bool { return !w.entries[i].psn.Before(psn) })
}

// find returns the entry that covers psn, or nil.
func (w *window) find(psn ib.PSN) *entry {
	i := w.index(psn)
	if i < len(w.entries) && w.entries[i].psn == psn {
		return &w.entries[i]
	}
	if e := w.before(psn); e != nil && psn.Before(e.end()) {
		return e
	}
	return nil
}

// before returns the last entry that starts before psn, or nil.
func (w *window) before(psn ib.PSN) *entry {
	if i := w.index(psn); i > 0 {
		return &w.entries[i-1]
	}
	return nil
}

// put adds an entry in its place, dropping old ones when there are too many. It
// invalidates pointers to entries.
func (w *window) put(e entry) {
	if len(w.entries) >= 2*windowKeep {
		w.entries = append(w.entries[:0], w.entries[len(w.entries)-windowKeep:]...)
	}
	for len(w.entries) > 0 && e.psn.Sub(w.entries[0].psn) > windowSpan {
		w.entries = w.entries[1:]
	}
	w.entries = slices.Insert(w.entries, w.index(e.psn), e)
}

// first returns the lowest PSN. The window must not be empty.
func (w *window) first() ib.PSN { return w.entries[0].psn }

// count returns how many entries start in [from, to).
func (w *window) count(from, to ib.PSN) int { return max(w.index(to)-w.index(from), 0) }

// last returns the entry with the highest PSN, or nil.
func (w *window) last() *entry {
	if len(w.entries) == 0 {
		return nil
	}
	return &w.entries[len(w.entries)-1]
}
