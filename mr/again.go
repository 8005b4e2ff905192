package mr

import "github.com/goroce/goroce/ib"

// Hold keeps a region that a peer was allowed to write before from going away until
// Release, if key still opens it and its memory is direct. It returns false where
// that must be decided anew.
func Hold(r *Region, key ib.Key) bool { return r.key == key && r.direct != nil && r.begin() }

// Late returns the n bytes at va of a region that a peer was allowed to write before, if
// key still opens it and its memory is not direct: for a placement, which looks again. It
// returns false where that must be decided anew.
func Late(r *Region, key ib.Key, va, n uint64) (Span, bool) {
	if r.key != key || r.direct != nil || !r.Valid() {
		return Span{}, false
	}
	s, fault := r.span(va, n)
	return s, fault == FaultNone
}

// Release ends what Hold has begun.
func Release(r *Region) { r.end() }

// WriteHeld writes p at address va of a region that is held. It returns false, and has
// done nothing, if that is not within the region.
func WriteHeld(r *Region, va uint64, p []byte) bool {
	off, ok := r.offset(va, uint64(len(p)))
	return ok && r.direct.WriteAt(p, off) == nil
}
