package mr

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"github.com/goroce/goroce/ib"
)

// The model of a table: plain lists of all that there ever was, rules written as
// one condition each, and no arithmetic that could wrap (addresses are small).
type model struct {
	table   *Table
	pds     [2]*PD
	regions []*modelRegion
	windows []*modelWindow
	spans   []modelSpan
	binds   int
}

type modelRegion struct {
	r            *Region
	pd           int
	m            *modelMemory
	iova         uint64
	access       ib.Access
	closed, dead bool // dead: invalidated
}

// modelMemory is 64 bytes at a multiple of 8, and what they should hold.
type modelMemory struct {
	Memory
	bytes, want []byte
	direct      bool
}

type modelWindow struct {
	w     *Window
	pd    int
	key   ib.Key
	freed bool
	bound *modelBinding
}

type modelBinding struct {
	r            *modelRegion
	addr, length uint64 // in r
	first        uint64 // the address by which peers name the first byte
	access       ib.Access
	qpn          ib.QPN
}

// modelSpan is a Span that was checked once, and what it depends on.
type modelSpan struct {
	s     Span
	r     *modelRegion
	w     *modelWindow // nil: by the region's own key
	bound *modelBinding
}

func (s modelSpan) valid() bool {
	return s.w == nil && !s.r.closed && !s.r.dead || s.w != nil && s.w.bound == s.bound
}

func (m *model) windowsOn(r *modelRegion) int {
	n := 0
	for _, w := range m.windows {
		if w.bound != nil && w.bound.r == r {
			n++
		}
	}
	return n
}

// latest draws one of the newest of a list, open or not; nil if it is empty.
func latest[T any](t *rapid.T, name string, list []*T) *T {
	if len(list) == 0 {
		return nil
	}
	return rapid.SampledFrom(list[max(0, len(list)-4):]).Draw(t, name)
}

// rarely is true one time in eight or less. (Integers are drawn with a bias to the
// ends of their range.)
func rarely(t *rapid.T, name string) bool { return rapid.IntRange(0, 7).Draw(t, name) == 4 }

// mostly draws what is right, or now and then anything else.
func mostly[T any](t *rapid.T, name string, right T, any *rapid.Generator[T]) T {
	if rarely(t, name+" wrong") {
		return any.Draw(t, name)
	}
	return right
}

// drawPiece draws offset and length of a piece that mostly lies in size bytes.
func drawPiece(t *rapid.T, size uint64) (off, n uint64) {
	off = mostly(t, "off", rapid.SampledFrom([]uint64{0, 1, 8, size / 2}).Draw(t, "off"),
		rapid.SampledFrom([]uint64{size - 1, size, size + 1, 1<<64 - 1}))
	rest := size - min(off, size)
	return off, mostly(t, "length", rapid.SampledFrom([]uint64{rest, rest / 2, rest / 3}).Draw(t, "length"),
		rapid.SampledFrom([]uint64{0, 1, rest + 1, 65}))
}

func drawPD(t *rapid.T, right int) int { return mostly(t, "PD", right, rapid.IntRange(0, 1)) }

func drawQPN(t *rapid.T) ib.QPN { return ib.QPN(mostly(t, "QPN", 16, rapid.Just(17))) }

func drawAccess(t *rapid.T, right ib.Access) ib.Access {
	bits := rapid.SampledFrom([]ib.Access{ib.LocalWrite, ib.RemoteWrite, ib.RemoteRead, ib.RemoteAtomic, ib.BindWindows,
		ib.ZeroBased, ib.RemoteInvalidate})
	if rarely(t, "one right less") {
		right &^= bits.Draw(t, "right")
	}
	return mostly(t, "rights", right, bits)
}

func drawRegionAccess(t *rapid.T) ib.Access {
	return drawAccess(t, allRights|ib.BindWindows|ib.RemoteInvalidate)
}

func drawMemory(t *rapid.T) *modelMemory {
	b := aligned(64, 0)
	m := &modelMemory{Memory: Bytes(b), bytes: b, want: make([]byte, 64), direct: rapid.Bool().Draw(t, "direct")}
	if !m.direct {
		m.Memory = late{m.Memory}
	}
	return m
}

// registrable is the rule for the attributes of a region.
func registrable(m *modelMemory, iova uint64, access ib.Access) bool {
	writes := access&(ib.RemoteWrite|ib.RemoteAtomic) != 0
	return (access&ib.ZeroBased == 0 || iova == 0) && (!writes || access&ib.LocalWrite != 0) &&
		(access&ib.RemoteAtomic == 0 || !m.direct || iova%8 == 0)
}

func (m *model) register(t *rapid.T) {
	r := &modelRegion{pd: drawPD(t, 0), m: drawMemory(t),
		iova: rapid.SampledFrom([]uint64{0, 64, 104, 107}).Draw(t, "iova"), access: drawRegionAccess(t)}
	var err error
	r.r, err = m.table.Register(m.pds[r.pd], r.m.Memory, r.iova, r.access)
	if ok := registrable(r.m, r.iova, r.access) && m.room(); ok != (err == nil) {
		t.Fatalf("register: %v, want it to succeed: %v", err, ok)
	}
	if err == nil {
		m.regions = append(m.regions, r)
	}
}

// room reports whether a key is free.
func (m *model) room() bool {
	n := 0
	for _, r := range m.regions {
		if !r.closed {
			n++
		}
	}
	for _, w := range m.windows {
		if !w.freed {
			n++
		}
	}
	return n < 6
}

func (m *model) deregister(t *rapid.T) {
	r := latest(t, "region", m.regions)
	if r == nil {
		return
	}
	err := m.table.Deregister(r.r)
	if ok := !r.closed && m.windowsOn(r) == 0; ok != (err == nil) {
		t.Fatalf("deregister with %d windows: %v, want it to succeed: %v", m.windowsOn(r), err, ok)
	}
	r.closed = r.closed || err == nil
}

func (m *model) reregister(t *rapid.T) {
	r := latest(t, "region", m.regions)
	if r == nil {
		return
	}
	next := *r
	next.dead = false
	mask := ib.ReregMask(rapid.IntRange(1, 7).Draw(t, "mask"))
	pd, memory, iova, access := drawPD(t, 0), drawMemory(t), r.iova+rapid.Uint64Range(1, 8).Draw(t, "shift"),
		drawRegionAccess(t)
	if mask&ib.ReregTranslation != 0 {
		next.m, next.iova = memory, iova
	}
	if mask&ib.ReregPD != 0 {
		next.pd = pd
	}
	if mask&ib.ReregAccess != 0 {
		next.access = access
	}
	var err error
	next.r, err = m.table.Reregister(r.r, mask, m.pds[pd], memory.Memory, iova, access)
	if ok := !r.closed && m.windowsOn(r) == 0 && registrable(next.m, next.iova, next.access); ok != (err == nil) {
		t.Fatalf("re-register with %d windows: %v, want it to succeed: %v", m.windowsOn(r), err, ok)
	}
	if err == nil {
		r.closed = true
		m.regions = append(m.regions, &next)
	}
}

func (m *model) allocWindow(t *rapid.T) {
	w := &modelWindow{pd: drawPD(t, 0)}
	typ := rapid.SampledFrom([]ib.MWType{ib.MWType1, ib.MWType2}).Draw(t, "type")
	var err error
	if w.w, err = m.table.AllocWindow(m.pds[w.pd], typ); m.room() != (err == nil) {
		t.Fatalf("allocate window: %v, want it to succeed: %v", err, m.room())
	}
	if err == nil {
		w.key = w.w.Key()
		m.windows = append(m.windows, w)
	}
}

func (m *model) freeWindow(t *rapid.T) {
	w := latest(t, "window", m.windows)
	if w == nil {
		return
	}
	if err := m.table.FreeWindow(w.w); w.freed != (err != nil) {
		t.Fatalf("free window: %v, want it to succeed: %v", err, !w.freed)
	}
	w.freed, w.bound = true, nil
}

func (m *model) bind(t *rapid.T) {
	w, r := latest(t, "window", m.windows), latest(t, "region", m.regions)
	if w == nil || r == nil || w.freed && m.table.windowAt(w.key) != nil {
		return // in the last case the key names a newer window
	}
	type2 := w.w.Type() == ib.MWType2
	off, n := drawPiece(t, 64)
	b := ib.MWBind{LKey: r.r.Key(), Addr: r.iova + off, Length: n,
		Access: drawAccess(t, ib.RemoteWrite|ib.RemoteRead|mostly(t, "atomics", 0, rapid.Just(ib.RemoteAtomic)))}
	// Binds take their variants from the upper half and registrations from the lower
	// one, and a run makes few of both: so no stale key becomes a good one again.
	key := w.key
	if !rarely(t, "present variant") {
		key = w.key&^0xFF | 128 | ib.Key(m.binds%128)
		m.binds++
	}
	if type2 && rapid.Bool().Draw(t, "zero based") {
		b.Access |= ib.ZeroBased
	}
	pd, qpn := drawPD(t, w.pd), drawQPN(t)

	first := b.Addr
	if b.Access&ib.ZeroBased != 0 {
		first = 0
	}
	aligned := first%8 == b.Addr%8
	if r.m.direct {
		aligned = first%8 == (b.Addr-r.iova)%8
	}
	ok := !w.freed && w.pd == pd && key != w.key && (!type2 || w.bound == nil && b.Length > 0)
	ok = ok && (b.Length == 0 || !r.closed && !r.dead && r.pd == pd && r.access&ib.BindWindows != 0 &&
		r.access&ib.ZeroBased == 0 && b.Access&(ib.LocalWrite|ib.BindWindows|ib.RemoteInvalidate) == 0 &&
		(type2 || b.Access&ib.ZeroBased == 0) &&
		(b.Access&(ib.RemoteWrite|ib.RemoteAtomic) == 0 || r.access&ib.LocalWrite != 0) &&
		(b.Access&ib.RemoteAtomic == 0 || aligned) &&
		b.Addr+1 > r.iova && b.Addr+b.Length <= r.iova+64)
	if fault := m.table.Bind(m.pds[pd], qpn, key, b); ok != (fault == FaultNone) {
		t.Fatalf("bind %+v of %+v: %v, want it to succeed: %v", b, r, fault, ok)
	}
	if ok {
		w.key, w.bound = key, nil
		if b.Length > 0 {
			w.bound = &modelBinding{r: r, addr: b.Addr, length: b.Length, first: first, access: b.Access, qpn: qpn}
		}
	}
}

func (m *model) invalidate(t *rapid.T) {
	pd, qpn := drawPD(t, 0), drawQPN(t)
	if w := latest(t, "window", m.windows); w != nil && rapid.Bool().Draw(t, "a window") {
		ok := w.bound != nil && w.pd == pd && w.w.Type() == ib.MWType2 && w.bound.qpn == qpn
		if fault := m.table.Invalidate(m.pds[pd], qpn, w.key); ok != (fault == FaultNone) {
			t.Fatalf("invalidate window: %v, want it to succeed: %v", fault, ok)
		}
		if ok {
			w.bound = nil
		}
	} else if r := latest(t, "region", m.regions); r != nil {
		ok := !r.closed && !r.dead && r.pd == pd && r.access&ib.RemoteInvalidate != 0 && m.windowsOn(r) == 0
		if fault := m.table.Invalidate(m.pds[pd], qpn, r.r.Key()); ok != (fault == FaultNone) {
			t.Fatalf("invalidate region with %d windows: %v, want it to succeed: %v", m.windowsOn(r), fault, ok)
		}
		r.dead = r.dead || ok
	}
}

// check looks a piece up, as a peer does, and keeps the Span.
func (m *model) check(t *rapid.T) {
	pd, qpn := drawPD(t, 0), drawQPN(t)
	need := rapid.SampledFrom([]ib.Access{0, ib.RemoteWrite, ib.RemoteRead}).Draw(t, "need")
	var s modelSpan
	var key ib.Key
	var va, start, off, n uint64
	length := uint64(64)
	ok := false
	if w := latest(t, "window", m.windows); w != nil && rapid.Bool().Draw(t, "by window") {
		s, key = modelSpan{w: w, bound: w.bound}, w.key
		if b := w.bound; b != nil {
			off, n = drawPiece(t, b.length)
			s.r, start, va, length = b.r, b.addr-b.r.iova, b.first+off, b.length
			ok = w.pd == pd && (w.w.Type() == ib.MWType1 || b.qpn == qpn) && need&^b.access == 0
		}
	} else if r := latest(t, "region", m.regions); r != nil {
		off, n = drawPiece(t, length)
		s, key, va = modelSpan{r: r}, r.r.Key(), r.iova+off
		ok = s.valid() && r.pd == pd && need&^r.access == 0
	} else {
		return
	}
	ok = ok && off+1 >= 1 && off+n <= length
	var fault Fault
	if s.s, fault = m.table.CheckRemote(m.pds[pd], qpn, key, va, n, need); ok != (fault == FaultNone) {
		t.Fatalf("check %d bytes at %d of %+v: %v, want it to succeed: %v", n, off, s, fault, ok)
	}
	if ok {
		if s.s.R.base+s.s.Off != start+off {
			t.Fatalf("span at %d, want %d", s.s.R.base+s.s.Off, start+off)
		}
		m.spans = append(m.spans, s)
	}
}

// write writes by any Span that was ever checked.
func (m *model) write(t *rapid.T) {
	if len(m.spans) == 0 {
		return
	}
	s := rapid.SampledFrom(m.spans).Draw(t, "span")
	p := rapid.SliceOfN(rapid.Byte(), 1, -1).Draw(t, "data")
	p = p[:min(len(p), int(s.s.Len))]
	list, err := Scatter(SGL{s.s}, 0, p, make([]Placement, 0, 1))
	for i := range list {
		if _, err := list[i].Do(); err != nil {
			t.Fatal(err)
		}
	}
	if ok := s.valid() || len(p) == 0; ok != (err == nil) {
		t.Fatalf("write by %+v: %v, want it to succeed: %v", s, err, ok)
	}
	if err == nil {
		at := s.s.Off
		if s.w != nil && len(p) > 0 {
			at += s.bound.addr - s.r.iova
		}
		copy(s.r.m.want[at:], p)
	}
}

// holds compares what can be seen at any time.
func (m *model) holds(t *rapid.T) {
	var regions, windows [2]int
	for _, r := range m.regions {
		if !bytes.Equal(r.m.bytes, r.m.want) {
			t.Fatalf("memory holds %x, want %x", r.m.bytes, r.m.want)
		}
		if !r.closed {
			regions[r.pd]++
		}
	}
	for _, w := range m.windows {
		if w.w.Key() != w.key {
			t.Fatalf("key %#x, want %#x", uint32(w.w.Key()), uint32(w.key))
		}
		if !w.freed {
			windows[w.pd]++
		}
	}
	for i, pd := range m.pds {
		if pd.users[UserRegion] != regions[i] || pd.users[UserWindow] != windows[i] {
			t.Fatalf("domain %d counts %v, want %d regions and %d windows", i, pd.users, regions[i], windows[i])
		}
	}
	for _, s := range m.spans {
		if s.s.R.Valid() != s.valid() {
			t.Fatalf("span %+v is valid: %v, want %v", s, s.s.R.Valid(), s.valid())
		}
	}
}

// choice is an action that is one of several.
func (m *model) choice(name string, actions ...func(*rapid.T)) func(*rapid.T) {
	return func(t *rapid.T) { actions[rapid.IntRange(0, len(actions)-1).Draw(t, name)](t) }
}

// TestTableModel walks at random through all that changes a table.
func TestTableModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		variant := counter()
		m := &model{table: NewTable(6, CountedKeys(func() uint8 { return variant() % 128 }))}
		for i := range m.pds {
			m.pds[i], _ = m.table.NewPD()
		}
		for range 2 {
			m.register(t)
			m.allocWindow(t)
		}
		change := m.choice("change", m.register, m.deregister, m.reregister, m.allocWindow, m.freeWindow, m.invalidate)
		t.Repeat(map[string]func(*rapid.T){
			"": m.holds, "change": change, "bind 1": m.bind, "bind 2": m.bind,
			"check 1": m.check, "check 2": m.check, "write 1": m.write, "write 2": m.write,
		})
	})
}
