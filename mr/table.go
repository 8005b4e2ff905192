package mr

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/goroce/goroce/ib"
)

// Limits of a table and its regions.
const (
	MaxRegions = 1<<24 - 1 // a key has 24 bits of index; 0 is never one
	MaxLen     = 1 << 48   // bytes in a region
	MaxPDs     = 1 << 16
)

// pageSize is how many regions a page of the table has room for.
const pageSize = 1024

type page [pageSize]slot

// slot is the place of a key index.
type slot struct {
	region  atomic.Pointer[Region] // nil while free
	variant uint8                  // of the latest key; guarded by Table.mu
}

// Table holds the protection domains and regions of a device.
type Table struct {
	max   uint32                 // most regions; the indices are 1 to max, so that no key is small
	pages []atomic.Pointer[page] // by the upper bits of an index; made on first use

	mu      sync.Mutex
	variant func() uint8
	fresh   uint32   // indices from here on were never used
	free    []uint32 // used before, oldest first: a stale key stays invalid for long
	pds     int      // protection domains that exist
	lastPD  uint32   // number of the newest one
}

// NewTable returns an empty table for up to maxRegions regions (at most
// MaxRegions). The variant bytes of keys come from outside, for whoever wants
// runs to repeat; they should be hard to guess otherwise.
func NewTable(maxRegions int, variant func() uint8) *Table {
	maxRegions = min(max(maxRegions, 0), MaxRegions)
	return &Table{
		max: uint32(maxRegions), pages: make([]atomic.Pointer[page], maxRegions/pageSize+1),
		variant: variant, fresh: 1,
	}
}

const knownAccess = ib.LocalWrite | ib.RemoteWrite | ib.RemoteRead | ib.RemoteAtomic | ib.MWBind | ib.ZeroBased | ib.RemoteInvalidate

// Register makes m accessible with the given rights to the users of pd, under the
// addresses from iova on. Errors are an *ib.AttrError for what is not allowed,
// ib.ErrLimit when the table is full, ib.ErrForeign and ib.ErrClosed for pd.
func (t *Table) Register(pd *PD, m Memory, iova uint64, access ib.Access) (*Region, error) {
	r := &Region{pd: pd, mem: m, direct: m.Direct(), iova: iova, length: m.Len(), access: access}
	if err := r.check(); err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.holds(pd); err != nil {
		return nil, err
	}
	index, err := t.takeIndex()
	if err != nil {
		return nil, err
	}
	slot := t.slot(index)
	r.key = ib.Key(index<<8) | ib.Key(slot.variant)
	pd.users[UserRegion]++
	slot.region.Store(r)
	return r, nil
}

// check refuses a region that could not work.
func (r *Region) check() error {
	bad := func(attr string, value any, allowed string) error {
		return &ib.AttrError{Op: "register memory", Attr: attr, Value: value, Allowed: allowed, Err: ib.ErrInvalid}
	}
	a := r.access
	switch {
	case a&^knownAccess != 0:
		return bad("Access", fmt.Sprintf("%#x", uint32(a)), fmt.Sprintf("bits of %#x", uint32(knownAccess)))
	case a&(ib.RemoteWrite|ib.RemoteAtomic) != 0 && a&ib.LocalWrite == 0: // IBTA 11.2.8.2
		return bad("Access", fmt.Sprintf("%#x", uint32(a)), "RemoteWrite and RemoteAtomic only together with LocalWrite")
	case r.length > MaxLen:
		return bad("length", r.length, fmt.Sprintf("at most %d", uint64(MaxLen)))
	case r.direct != nil && uint64(len(r.direct)) != r.length:
		return bad("length", r.length, fmt.Sprintf("the %d bytes of its Direct memory", len(r.direct)))
	case a&ib.ZeroBased != 0 && r.iova != 0:
		return bad("IOVA", fmt.Sprintf("%#x", r.iova), "0 with ZeroBased")
	case r.length > 0 && r.iova > math.MaxUint64-(r.length-1):
		return bad("IOVA", fmt.Sprintf("%#x", r.iova), fmt.Sprintf("addresses whose last byte, %d further on, is still below 2^64", r.length-1))
	}
	// Peers align atomics by the address that they know. The processor aligns by
	// its own, so the two must agree modulo 8.
	actual := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(r.direct))))
	if a&ib.RemoteAtomic != 0 && len(r.direct) > 0 && (r.iova^actual)%8 != 0 {
		return bad("IOVA", fmt.Sprintf("%#x", r.iova), fmt.Sprintf("with RemoteAtomic: addresses that leave %d when divided by 8, as that of the memory does", actual%8))
	}
	return nil
}

// slot returns the place of an index, which it makes if need be.
func (t *Table) slot(index uint32) *slot {
	at := &t.pages[index/pageSize]
	if at.Load() == nil {
		at.Store(new(page))
	}
	return &at.Load()[index%pageSize]
}

// takeIndex returns a free index and gives it a new variant.
func (t *Table) takeIndex() (uint32, error) {
	v := t.variant()
	if t.fresh <= t.max {
		i := t.fresh
		t.fresh++
		t.slot(i).variant = v
		return i, nil
	}
	if len(t.free) == 0 {
		return 0, fmt.Errorf("register memory: %d regions are registered, the most that this device has: %w", t.max, ib.ErrLimit)
	}
	i := t.free[0]
	t.free = t.free[1:]
	slot := t.slot(i)
	if v == slot.variant {
		v++
	}
	slot.variant = v
	return i, nil
}

// Deregister revokes r's key: later lookups fail, and so does all work on Spans
// that were checked before. It does not wait for work that has already looked:
// the caller makes sure that none is under way before the memory goes. It
// returns ib.ErrClosed the second time, ib.ErrForeign for another table's region.
func (t *Table) Deregister(r *Region) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r.pd.table != t {
		return fmt.Errorf("deregister memory: key %#x: %w", uint32(r.key), ib.ErrForeign)
	}
	if r.dead.Swap(true) {
		return fmt.Errorf("deregister memory: key %#x: %w", uint32(r.key), ib.ErrClosed)
	}
	index := uint32(r.key >> 8)
	t.slot(index).region.Store(nil)
	t.free = append(t.free, index)
	r.pd.users[UserRegion]--
	return nil
}

// lookup returns the region that key names, nil if none.
func (t *Table) lookup(key ib.Key) *Region {
	index := uint32(key >> 8)
	if index > t.max {
		return nil
	}
	p := t.pages[index/pageSize].Load()
	if p == nil {
		return nil
	}
	r := p[index%pageSize].region.Load()
	if r == nil || r.key != key || r.revoked.Load() {
		return nil
	}
	return r
}

// Check decides on an access to length bytes at address va of the region that key
// names, by a user of pd who needs the rights in need (0 for local reads).
func (t *Table) Check(pd *PD, key ib.Key, va, length uint64, need ib.Access) (Span, Fault) {
	r := t.lookup(key)
	switch {
	case r == nil:
		return Span{}, FaultKey
	case r.pd != pd:
		return Span{}, FaultPD
	case need&^r.access != 0:
		return Span{}, FaultAccess
	}
	off := va - r.iova
	if va < r.iova || off > r.length || length > r.length-off || length > math.MaxUint32 {
		return Span{}, FaultBounds
	}
	return Span{R: r, Off: off, Len: uint32(length)}, FaultNone
}

// Resolve checks the SGEs of a work request and appends a Span for each to dst.
// Entries of length 0 are skipped, whatever their key (IBTA 10.8.3.2). On a fault
// it returns dst as it was.
func (t *Table) Resolve(pd *PD, sges []ib.SGE, need ib.Access, dst SGL) (SGL, Fault) {
	n := len(dst)
	for i := range sges {
		e := &sges[i]
		if e.Length == 0 {
			continue
		}
		s, fault := t.Check(pd, e.LKey, e.Addr, uint64(e.Length), need)
		if fault != FaultNone {
			return dst[:n], fault
		}
		dst = append(dst, s)
	}
	return dst, FaultNone
}
