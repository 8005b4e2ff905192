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

// counter returns a source of variants 0, 1, 2 ...
func counter() func() uint8 {
	n := uint8(0)
	return func() uint8 { n++; return n - 1 }
}

func newTable(t testing.TB, maxRegions int) (*Table, *PD) {
	t.Helper()
	table := NewTable(maxRegions, counter())
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

// aligned returns n bytes whose first lies shift bytes after a multiple of 8.
func aligned(n, shift int) []byte {
	words := make([]uint64, (n+shift+7)/8+1)
	return unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), len(words)*8)[shift : shift+n : shift+n]
}
