package mr

import "github.com/goroce/goroce/ib"

// WriteAgain writes p at address va of a region that a peer was allowed to write
// before, if key still opens it and its memory is direct. It returns false, and has
// done nothing, where that must be decided anew.
func WriteAgain(r *Region, key ib.Key, va uint64, p []byte) bool {
	if r.key != key || r.direct == nil {
		return false
	}
	off, ok := r.offset(va, uint64(len(p)))
	if !ok || !r.begin() {
		return false
	}
	ok = r.direct.WriteAt(p, off) == nil
	r.end()
	return ok
}
