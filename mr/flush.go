package mr

import (
	"fmt"

	"github.com/goroce/goroce/ib"
)

// Persister is a Memory that can survive a loss of power. Persist returns when n
// bytes from offset off on would, with all that was written to them before. It
// may be slow, and may be called by several goroutines at once.
type Persister interface {
	Memory
	Persist(off, n uint64) error
}

// Flush waits until what peers have written to n bytes of the region, from offset
// off on, is placed as level says (IBTA A19.4): seen by all observers, which takes
// no more than a fence, and with ib.FlushPersistently safe from a loss of power
// too. Off 0 and n Len() are all of the region, which of a window's piece is the
// piece (rdma_rxe flushes the whole region below). Placements that are not done
// yet are not waited for.
//
// It returns FaultKey when the region is registered no more, FaultBounds when the
// bytes are not all in it, ib.ErrNotSupported when its memory is no Persister and
// has to be, or the error of the Persister.
func (r *Region) Flush(level ib.FlushLevel, off, n uint64) error {
	switch {
	case !r.Valid():
		return FaultKey
	case off > r.length || n > r.length-off:
		return FaultBounds
	}
	fence()
	if level&ib.FlushPersistently == 0 {
		return nil
	}
	p, ok := r.mem.(Persister)
	if !ok {
		return fmt.Errorf("flush to persistence: %T: %w", r.mem, ib.ErrNotSupported)
	}
	return p.Persist(r.base+off, n)
}

// Flush does for the bytes of s what Region.Flush does.
func (s Span) Flush(level ib.FlushLevel) error { return s.R.Flush(level, s.Off, uint64(s.Len)) }
