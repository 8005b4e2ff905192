package mr

import (
	"runtime"
	"unsafe"

	"github.com/goroce/goroce/ib"
)

// If all QPs belong to one shard, no access is under way when a request revokes a key. With several shards, another
// shard may be copying a payload. The request must not complete before that copy is done, because its poster may use
// the memory for something else afterwards. So accesses to what a request can revoke (windows, and regions with
// RemoteInvalidate) are counted, and revoke waits for the accesses under way, each of which is for one packet or one
// train at most. Other regions end by verbs, whose callers wait until the turns under way of all shards have ended, so
// their accesses are not counted.

// guard decides whether accesses to r are counted. It must be called before r has a key.
func (t *Table) guard(r *Region) {
	if t.shared && r.direct != nil && (r.window != nil || r.access&ib.RemoteInvalidate != 0) {
		r.state.Or(regionCounts)
	}
}

// begin reports whether the memory of r may be accessed. If so, end must follow.
func (r *Region) begin() bool { return r.state.Load() == 0 || r.beginSlow() }

// beginSlow counts the access before it looks at the state, and revoke sets the state before it looks at the count: so
// one of the two sees the other. Bits of the state are never cleared.
func (r *Region) beginSlow() bool {
	r.users.Add(1)
	if r.Valid() {
		return true
	}
	r.users.Add(-1)
	return false
}

// end ends an access that begin has allowed.
func (r *Region) end() {
	if r.state.Load()&regionCounts != 0 {
		r.users.Add(-1)
	}
}

// revoke makes all accesses fail that have not begun, and waits for those that have. Accesses take no lock, so the
// caller may hold one.
func (r *Region) revoke() {
	r.state.Or(regionRevoked)
	for r.users.Load() > 0 && r.state.Load()&regionFaulted == 0 {
		runtime.Gosched()
	}
}

// Fault revokes all regions that have the byte at addr, an address of this process,
// because their direct memory is not mapped: later accesses fail. The access that faulted
// ended in a panic and stays counted, so revoke does not wait for those regions.
func (t *Table) Fault(addr uintptr) {
	slots := *t.slots.Load()
	for i := range slots {
		if r := slots[i].region.Load(); r != nil && r.direct.has(addr) {
			r.state.Or(regionRevoked | regionFaulted)
		}
	}
}

// has reports whether addr is an address in d.
func (d direct) has(addr uintptr) bool {
	return addr-uintptr(unsafe.Pointer(unsafe.SliceData(d))) < uintptr(len(d))
}
