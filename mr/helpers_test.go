package mr

import (
	"testing"
	"unsafe"

	"github.com/goroce/goroce/ib"
)

const allRights = ib.LocalWrite | ib.RemoteWrite | ib.RemoteRead | ib.RemoteAtomic

// sized is memory of any length that has no bytes.
type sized uint64

func (s sized) Len() uint64                                      { return uint64(s) }
func (sized) Direct() []byte                                     { return nil }
func (sized) ReadAt([]byte, uint64) error                        { return FaultBounds }
func (sized) WriteAt([]byte, uint64) error                       { return FaultBounds }
func (sized) CompareSwap(uint64, uint64, uint64) (uint64, error) { return 0, FaultBounds }
func (sized) FetchAdd(uint64, uint64) (uint64, error)            { return 0, FaultBounds }

// late is memory that is reached by calls, over plain bytes.
type late struct{ Memory }

func (late) Direct() []byte { return nil }

// durable is memory that notes what it was asked to make persistent.
type durable struct {
	Memory
	asked [][2]uint64 // offsets and lengths
	fail  error
}

func (d *durable) Persist(off, n uint64) error {
	d.asked = append(d.asked, [2]uint64{off, n})
	return d.fail
}

// counter returns a source of variants 0, 1, 2 ...
func counter() func() uint8 {
	n := uint8(0)
	return func() uint8 { n++; return n - 1 }
}

func newTable(t testing.TB, maxRegions int) (*Table, *PD) {
	t.Helper()
	table := NewTable(maxRegions, CountedKeys(counter()))
	pd, err := table.NewPD()
	if err != nil {
		t.Fatal(err)
	}
	return table, pd
}

func register(t testing.TB, table *Table, pd *PD, m Memory, iova uint64, access ib.Access) *Region {
	t.Helper()
	r, err := table.Register(pd, m, iova, access)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func newWindow(t testing.TB, table *Table, pd *PD, typ ib.MWType) *Window {
	t.Helper()
	w, err := table.AllocWindow(pd, typ)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// bind binds w for a QP and returns the new key.
func bind(t testing.TB, table *Table, w *Window, qpn ib.QPN, b ib.MWBind) ib.Key {
	t.Helper()
	key := ib.NextKey(w.Key())
	if fault := table.Bind(w.PD(), qpn, key, b); fault != FaultNone {
		t.Fatalf("bind: got %v, want none", fault)
	}
	return key
}

// all names all of r, and the rights of a window on it.
func all(r *Region, access ib.Access) ib.MWBind {
	return ib.MWBind{LKey: r.Key(), Addr: r.Addr(), Length: r.Len(), Access: access}
}

// aligned returns n bytes whose first lies shift bytes after a multiple of 8.
func aligned(n, shift int) []byte {
	words := make([]uint64, (n+shift+7)/8+1)
	return unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), len(words)*8)[shift : shift+n : shift+n]
}
