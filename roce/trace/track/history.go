package track

import (
	"slices"
	"sort"

	"github.com/goroce/goroce/ib"
)

const (
	// historyKeep is the number of packets that a history keeps at least, if their PSNs are not more than historySpan
	// apart. Requesters have some hundred to some thousand packets in flight.
	historyKeep = 4096
	historySpan = 1 << 21
	// maxResponses limits the number of responses of a READ; only READs of more than 1 GiB with a path MTU of 256 have
	// more. Together with historySpan it keeps all PSNs of a history within half of the number space, so that they can
	// be compared (IBTA 9.7.2).
	maxResponses = 1 << 22
)

// entry is a packet that was seen.
type entry struct {
	psn      ib.PSN
	span     int // number of PSNs: as many as a READ has responses, otherwise 1
	num      int // the last packet with this PSN
	at       ib.Instant
	msg      *Message
	from, to uint32 // range of bytes in the message
	last     bool   // the packet ends its message
}

// end returns the PSN after the entry.
func (e *entry) end() ib.PSN { return e.psn.Add(e.span) }

// history has entries in the order of their PSNs.
type history struct{ entries []entry }

// index returns the index of the first entry that is not before psn.
func (w *history) index(psn ib.PSN) int {
	return sort.Search(len(w.entries), func(i int) bool { return !w.entries[i].psn.Before(psn) })
}

// find returns the entry that contains psn, or nil.
func (w *history) find(psn ib.PSN) *entry {
	i := w.index(psn)
	if i < len(w.entries) && w.entries[i].psn == psn {
		return &w.entries[i]
	}
	if e := w.before(psn); e != nil && psn.Before(e.end()) {
		return e
	}
	return nil
}

// before returns the last entry that begins before psn, or nil.
func (w *history) before(psn ib.PSN) *entry {
	if i := w.index(psn); i > 0 {
		return &w.entries[i-1]
	}
	return nil
}

// put inserts an entry, and drops old ones if there are too many. Pointers to entries become invalid.
func (w *history) put(e entry) {
	if len(w.entries) >= 2*historyKeep {
		w.entries = append(w.entries[:0], w.entries[len(w.entries)-historyKeep:]...)
	}
	for len(w.entries) > 0 && e.psn.Sub(w.entries[0].psn) > historySpan {
		w.entries = w.entries[1:]
	}
	w.entries = slices.Insert(w.entries, w.index(e.psn), e)
}

// first returns the lowest PSN. The history must not be empty.
func (w *history) first() ib.PSN { return w.entries[0].psn }

// count returns how many entries begin in [from, to).
func (w *history) count(from, to ib.PSN) int { return max(w.index(to)-w.index(from), 0) }

// last returns the entry with the highest PSN, or nil.
func (w *history) last() *entry {
	if len(w.entries) == 0 {
		return nil
	}
	return &w.entries[len(w.entries)-1]
}
