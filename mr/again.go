package mr

import "github.com/goroce/goroce/ib"

// Hold begins an access to r, which a peer was allowed to write earlier, if key still opens r and its memory is direct.
// Release ends the access; until then no request that revokes the key completes in a shared table. If Hold returns
// false, the access must be checked anew.
func Hold(r *Region, key ib.Key) bool { return r.key == key && r.direct != nil && r.begin() }

// Late returns the n bytes at va of a region that a peer has been allowed to write before, if key still opens it and
// its memory is not direct. The Span is for a placement, which checks the region again. If Late returns false, the
// access must be checked anew.
func Late(r *Region, key ib.Key, va, n uint64) (Span, bool) {
	if r.key != key || r.direct != nil || !r.Valid() {
		return Span{}, false
	}
	s, fault := r.span(va, n)
	return s, fault == FaultNone
}

// Release ends the protection by Hold.
func Release(r *Region) { r.end() }

// WriteHeld writes p at address va of a region that is protected by Hold. If the bytes are not all in the region, it
// writes nothing and returns false.
func WriteHeld(r *Region, va uint64, p []byte) bool {
	off, ok := r.offset(va, uint64(len(p)))
	return ok && r.direct.WriteAt(p, off) == nil
}

// Again returns the bytes of an SGE, for reading, if it names the region that an SGE of the same QP has named before.
// If it returns false, the SGE must be checked anew.
func Again(r *Region, e *ib.SGE) (Span, bool) {
	if r.key != e.LKey || e.Length == 0 || !r.Valid() {
		return Span{}, false
	}
	s, fault := r.span(e.Addr, uint64(e.Length))
	return s, fault == FaultNone
}
