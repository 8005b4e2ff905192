package mr

import (
	"fmt"

	"github.com/goroce/goroce/ib"
)

// Persister is a Memory that can survive a loss of power. Persist returns when n bytes from offset off on would survive
// it, including all data that was written to them before. It may be slow, and may be called from several goroutines at
// once.
type Persister interface {
	Memory
	Persist(off, n uint64) error
}

// Flush waits until what peers have written to n bytes of the region, from offset off on, is placed as level says (IBTA
// A19.4): visible to all observers, which takes a memory fence only, and with ib.FlushPersistently also safe from a
// loss of power. Off 0 and n Len() stand for all of the region; if r is what a window opens, for all of that (rdma_rxe
// flushes the whole region below the window). Flush does not wait for placements that are not carried out yet.
//
// It returns FaultKey when the region is not registered any more, FaultBounds when the bytes are not all in it,
// ib.ErrNotSupported when its memory would have to be a Persister and is not, or the error of the Persister.
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

// Flush is Region.Flush for the bytes of s.
func (s Span) Flush(level ib.FlushLevel) error { return s.R.Flush(level, s.Off, uint64(s.Len)) }
