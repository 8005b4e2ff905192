package mr

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// Limits of a table and its regions.
const (
	MaxRegions = 1 << 23 // and windows: half of the indices of keys, which have 24 bits
	MaxLen     = 1 << 48 // bytes in a region
	MaxPDs     = 1 << 16
)

// slot is the place of a key index.
type slot struct {
	region atomic.Pointer[Region] // what the key opens; nil while free, and for an unbound window
	window *Window                // whose key it is, nil if a region's; guarded by Table.mu
	ended  ended                  // guarded by Table.mu
}

// firstSlots is how many places a new table has.
const firstSlots = 64

// Table holds the protection domains, regions and windows of a device.
type Table struct {
	shared bool // QPs of several shards use it
	max    int  // most keys

	// slots is indexed by the low bits of key indices. Its length is a power of two; at most
	// half of the slots are in use, unless it cannot grow. It is replaced when it grows.
	slots atomic.Pointer[[]slot]

	now func() ib.Instant // nil, or for Explain

	mu     sync.Mutex
	keys   func() ib.Key
	used   int
	pds    int    // protection domains that exist
	lastPD uint32 // number of the newest one
}

// NewTable returns an empty table for up to maxRegions regions and windows (at
// most MaxRegions). keys makes their keys: the upper 24 bits are the index, which must
// take every value sooner or later, the lower 8 the variant, which the owner may choose
// anew (IBTA 10.6.3.3). The table skips keys whose index is 0 or has a slot that is in
// use. Peers must not be able to guess keys, and a key that is not in use any more should
// not come again soon. CountedKeys is for tests, whose runs must repeat.
func NewTable(maxRegions int, keys func() ib.Key) *Table {
	t := &Table{max: min(max(maxRegions, 0), MaxRegions), keys: keys}
	slots := make([]slot, firstSlots)
	t.slots.Store(&slots)
	return t
}

// CountedKeys returns keys with the indices 1, 2, 3 ... and the variant bytes that a
// function says. Anybody can guess them: they are for tests and simulations.
func CountedKeys(variant func() uint8) func() ib.Key {
	index := ib.Key(0)
	return func() ib.Key {
		index = (index + 1) % (1 << 24)
		return index<<8 | ib.Key(variant())
	}
}

// NewSharedTable is NewTable for QPs of several shards, which are at work at the
// same time. What a request revokes then is not touched any more when Bind or
// Invalidate returns, if it is direct memory.
func NewSharedTable(maxRegions int, keys func() ib.Key) *Table {
	t := NewTable(maxRegions, keys)
	t.shared = true
	return t
}

const knownAccess = ib.LocalWrite | ib.RemoteWrite | ib.RemoteRead | ib.RemoteAtomic | ib.BindWindows | ib.ZeroBased |
	ib.FlushGlobal | ib.FlushPersistent | ib.RemoteInvalidate

// Register makes m accessible to the users of pd with the given rights, at addresses from iova on. Errors are an
// *ib.AttrError for arguments that are not valid (it wraps ib.ErrNotSupported for FlushPersistent without a Persister),
// ib.ErrLimit when the table is full, ib.ErrForeign and ib.ErrClosed for pd.
func (t *Table) Register(pd *PD, m Memory, iova uint64, access ib.Access) (*Region, error) {
	const op = "register memory"
	r, err := newRegion(op, pd, m, iova, access)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.holds(pd); err != nil {
		return nil, err
	}
	if err := t.add(op, r); err != nil {
		return nil, err
	}
	return r, nil
}

// newRegion checks the arguments and returns a region without a key.
func newRegion(op string, pd *PD, m Memory, iova uint64, access ib.Access) (*Region, error) {
	access &^= ib.OptionalAccess
	r := &Region{pd: pd, mem: m, direct: m.Direct(), iova: iova, length: m.Len(), access: access}
	rights, addr := fmt.Sprintf("%#x", uint32(access)), fmt.Sprintf("%#x", iova)
	_, persists := m.(Persister)
	switch {
	case access&^knownAccess != 0:
		return nil, driver.Refuse(op, "Access", rights, fmt.Sprintf("bits of %#x", uint32(knownAccess)), ib.ErrInvalid)
	case access&(ib.RemoteWrite|ib.RemoteAtomic) != 0 && access&ib.LocalWrite == 0: // IBTA 11.2.8.2
		return nil, driver.Refuse(op, "Access", rights, "RemoteWrite and RemoteAtomic only together with LocalWrite",
			ib.ErrInvalid)
	case access&ib.FlushPersistent != 0 && !persists:
		return nil, driver.Refuse(op, "Access", rights,
			"FlushPersistent only for memory that can survive a loss of power (Persister); others have FlushGlobal",
			ib.ErrNotSupported)
	case r.length > MaxLen:
		return nil, driver.Refuse(op, "length", r.length, fmt.Sprintf("at most %d", uint64(MaxLen)), ib.ErrInvalid)
	case r.direct != nil && uint64(len(r.direct)) != r.length:
		return nil, driver.Refuse(op, "length", r.length,
			fmt.Sprintf("the %d bytes of its Direct memory", len(r.direct)),
			ib.ErrInvalid)
	case access&ib.ZeroBased != 0 && iova != 0:
		return nil, driver.Refuse(op, "IOVA", addr, "0 with ZeroBased", ib.ErrInvalid)
	case r.length > 0 && iova > math.MaxUint64-(r.length-1):
		return nil, driver.Refuse(op, "IOVA", addr,
			fmt.Sprintf("addresses whose last byte, %d further on, is still below 2^64", r.length-1), ib.ErrInvalid)
	case access&ib.RemoteAtomic != 0 && iova%8 != r.wordPhase():
		return nil, driver.Refuse(op, "IOVA", addr,
			fmt.Sprintf("with RemoteAtomic: addresses that leave %d when divided by 8, as that of the memory does",
				r.wordPhase()), ib.ErrInvalid)
	}
	return r, nil
}

// add gives r a key. The caller holds mu.
func (t *Table) add(op string, r *Region) error {
	key, err := t.takeKey(op)
	if err != nil {
		return err
	}
	r.key = key
	t.guard(r)
	r.pd.users[UserRegion]++
	t.slot(key).region.Store(r)
	return nil
}

// slot returns the place of a key.
func (t *Table) slot(key ib.Key) *slot {
	slots := *t.slots.Load()
	return &slots[int(key>>8)&(len(slots)-1)]
}

// takeKey returns a key of a free index. The caller holds mu, and uses its slot.
func (t *Table) takeKey(op string) (ib.Key, error) {
	if t.used == t.max {
		return 0, fmt.Errorf("%s: %d regions and windows exist, the most that this device has: %w", op, t.max,
			ib.ErrLimit)
	}
	t.used++
	if t.used > len(*t.slots.Load())/2 {
		t.grow()
	}
	for {
		key := t.keys()
		if s := t.slot(key); key>>8 != 0 && s.window == nil && s.region.Load() == nil {
			return key, nil
		}
	}
}

// grow doubles the places. Indices that have different ones keep different ones. Who
// has loaded the old places finds there what was registered before; what was removed
// since is not valid. The caller holds mu.
func (t *Table) grow() {
	old := *t.slots.Load()
	slots := make([]slot, 2*len(old))
	for i := range old {
		r, w := old[i].region.Load(), old[i].window
		var key ib.Key
		switch {
		case w != nil:
			key = w.Key()
		case r != nil:
			key = r.key
		default:
			continue
		}
		s := &slots[int(key>>8)&(len(slots)-1)]
		s.window = w
		s.region.Store(r)
	}
	t.slots.Store(&slots)
}

// Deregister revokes r's key: later lookups fail, and so do accesses by Spans that were checked before. It does not
// wait for accesses under way: the caller makes sure that there are none before the memory is freed. The error wraps
// ib.ErrBusy, with their number, while windows are bound to r (IBTA 10.6.7.2.6 leaves that to the device); it is
// ib.ErrClosed the second time, ib.ErrForeign for another table's region, and an *ib.AttrError if r is what a window
// opens.
func (t *Table) Deregister(r *Region) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.removable("deregister memory", r); err != nil {
		return err
	}
	t.remove(r)
	return nil
}

// removable returns the error of removing r, or nil. The caller holds mu.
func (t *Table) removable(op string, r *Region) error {
	switch {
	case r.pd.table != t:
		return fmt.Errorf("%s: key %#x: %w", op, uint32(r.key), ib.ErrForeign)
	case r.window != nil:
		return driver.Refuse(op, "region", fmt.Sprintf("%#x, a memory window's", uint32(r.key)),
			"what Register returned; FreeWindow ends a window", ib.ErrInvalid)
	case r.state.Load()&regionDead != 0:
		return fmt.Errorf("%s: key %#x: %w", op, uint32(r.key), ib.ErrClosed)
	case r.windows > 0:
		return fmt.Errorf("%s: key %#x: %w by %d bound memory windows; unbind or free them first", op, uint32(r.key),
			ib.ErrBusy, r.windows)
	}
	return nil
}

// remove revokes r's key and frees its index. The caller holds mu.
func (t *Table) remove(r *Region) {
	r.state.Or(regionDead)
	t.slot(r.key).region.Store(nil)
	t.end(r.key, ib.KeyDeregistered, 0)
	t.used--
	r.pd.users[UserRegion]--
}

// lookup returns the region that key opens, or the part of one that its window opens; nil if there is none.
func (t *Table) lookup(key ib.Key) *Region {
	r := t.slot(key).region.Load()
	if r == nil || r.key != key || !r.Valid() {
		return nil
	}
	return r
}

// Check checks an access of this end, as a user of pd, to length bytes at address va. key is the L_Key of a region, and
// need the rights that the access needs (0 for reading). A window's key is not valid here.
func (t *Table) Check(pd *PD, key ib.Key, va, length uint64, need ib.Access) (Span, Fault) {
	r := t.lookup(key)
	switch {
	case r == nil || r.window != nil:
		return Span{}, FaultKey
	case r.pd != pd:
		return Span{}, FaultPD
	case need&^r.access != 0:
		return Span{}, FaultAccess
	}
	return r.span(va, length)
}

// CheckRemote checks an access of a peer, by QP qpn of pd, to length bytes at address va. key is the R_Key of a region
// or a window (IBTA 10.6.5.2).
func (t *Table) CheckRemote(pd *PD, qpn ib.QPN, key ib.Key, va, length uint64, need ib.Access) (Span, Fault) {
	r, fault := t.RemoteRegion(pd, qpn, key, need)
	if fault != FaultNone {
		return Span{}, fault
	}
	return r.span(va, length)
}

// RemoteRegion returns the region, or the part of one, that key opens for CheckRemote. It is for a FLUSH of the whole
// region.
func (t *Table) RemoteRegion(pd *PD, qpn ib.QPN, key ib.Key, need ib.Access) (*Region, Fault) {
	r := t.lookup(key)
	switch {
	case r == nil:
		return nil, FaultKey
	case r.pd != pd:
		return nil, FaultPD
	case r.window != nil && r.window.typ == ib.MWType2 && r.qpn != qpn:
		return nil, FaultQP
	case need&^r.access != 0:
		return nil, FaultAccess
	}
	return r, FaultNone
}

// Resolve checks the SGEs of a work request and appends a Span for each to dst. It skips entries of length 0, whatever
// their key (IBTA 10.8.3.2). On a fault it returns dst unchanged.
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
