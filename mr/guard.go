package mr

import (
	"runtime"
	"unsafe"

	"github.com/goroce/goroce/ib"
)

// With one shard nothing else is at work when a request revokes a key. With
// several, another shard may be in the middle of a payload: the request must not
// complete before that is through, for whoever asked for it may use the memory for
// something else from then on. So what requests can revoke (windows, and regions
// with RemoteInvalidate) counts the accesses that are under way, and who revokes it
// waits for them: a packet's payload at most. Plain regions end by verbs, whose
// callers wait for whole steps, and count nothing.

// guard decides whether accesses to r are counted. It is called before r has a key.
func (t *Table) guard(r *Region) {
	if t.shared && r.direct != nil && (r.window != nil || r.access&ib.RemoteInvalidate != 0) {
		r.state.Or(regionCounts)
	}
}

// begin reports whether the memory of r may be touched; end follows then.
func (r *Region) begin() bool { return r.state.Load() == 0 || r.enter() }

// enter counts first and looks then, as revoke sets first and looks then: one of
// the two sees the other. Bits of the state are never taken back.
func (r *Region) enter() bool {
	r.users.Add(1)
	if r.Valid() {
		return true
	}
	r.users.Add(-1)
	return false
}

// end ends an access.
func (r *Region) end() {
	if r.state.Load()&regionCounts != 0 {
		r.users.Add(-1)
	}
}

// revoke makes all accesses fail that have not begun, and waits for those that
// have. They take no lock, so the caller may hold one.
func (r *Region) revoke() {
	r.state.Or(regionRevoked)
	for r.users.Load() > 0 && r.state.Load()&regionFaulted == 0 {
		runtime.Gosched()
	}
}

// Fault revokes all regions that have the byte at addr, an address of this process, for
// their direct memory is not there: accesses fail from now on. The one that has found out
// has ended in a panic and is never counted out; nobody waits for it.
func (t *Table) Fault(addr uintptr) {
	for i := range t.pages {
		p := t.pages[i].Load()
		if p == nil {
			continue
		}
		for k := range p {
			if r := p[k].region.Load(); r != nil && r.direct.has(addr) {
				r.state.Or(regionRevoked | regionFaulted)
			}
		}
	}
}

// has reports whether addr is an address in d.
func (d direct) has(addr uintptr) bool {
	return addr-uintptr(unsafe.Pointer(unsafe.SliceData(d))) < uintptr(len(d))
}
