package mrtest_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/mr/mrtest"
)

// One packet into late memory: nothing happens until the test says so, and then
// in order, from data that no longer depends on the packet's buffer.
func TestLateWrite(t *testing.T) {
	table := mr.NewTable(1, mr.CountedKeys(func() uint8 { return 0 }))
	pd, _ := table.NewPD()
	m := mrtest.New(32)
	r, err := table.Register(pd, m, 0x1000, ib.LocalWrite|ib.RemoteAtomic)
	if err != nil {
		t.Fatal(err)
	}
	sgl, _ := table.Resolve(pd, []ib.SGE{{Addr: 0x1008, Length: 4, LKey: r.Key()},
		{Addr: 0x1000, Length: 2, LKey: r.Key()}}, ib.LocalWrite, nil)
	packet := []byte("abcdef")
	late, err := mr.Scatter(sgl, 0, packet, make([]mr.Placement, 0, 4))
	if err != nil {
		t.Fatal(err)
	}
	late = append(late, mr.Placement{Kind: mr.PlaceFetchAdd, R: r, Off: 16, A: 3},
		mr.Placement{Kind: mr.PlaceCompareSwap, R: r, Off: 16, A: 3, B: 9})
	for i := range late {
		late[i].ID = uint64(10 + i)
	}
	var q mrtest.Queue
	q.Add(late...)
	clear(packet)
	if q.Len() != 4 || m.Writes+m.Atomics != 0 {
		t.Fatalf("%d placements, %d writes and %d atomics done; want 4 and none", q.Len(), m.Writes, m.Atomics)
	}
	complete := func(wantID, wantOld uint64, wantErr error) {
		t.Helper()
		id, old, ok, err := q.Complete()
		if !ok || id != wantID || old != wantOld || !errors.Is(err, wantErr) {
			t.Errorf("placement %d returned %d, %v, %v; want placement %d to return %d, %v", id, old, ok, err, wantID,
				wantOld, wantErr)
		}
	}
	complete(10, 0, nil)
	if got := string(m.B[8:12]); got != "abcd" {
		t.Errorf("memory holds %q, want abcd", got)
	}
	broken := errors.New("page is gone")
	m.Fail = broken
	complete(11, 0, broken)
	m.Fail = nil
	complete(12, 0, nil)
	complete(13, 3, nil)
	if got := binary.NativeEndian.Uint64(m.B[16:]); got != 9 {
		t.Errorf("word is %d, want 9", got)
	}
	if !bytes.Equal(m.B[:2], []byte{0, 0}) {
		t.Error("a failed write wrote")
	}
	if _, _, ok, _ := q.Complete(); ok {
		t.Error("a fifth placement")
	}

	q.Add(late[2], late[3])
	if id, ok := q.Drop(); !ok || id != 12 {
		t.Errorf("dropped placement %d, %v; want 12", id, ok)
	}
	if err := table.Deregister(r); err != nil {
		t.Fatal(err)
	}
	complete(13, 0, mr.FaultKey)
}

func TestBounds(t *testing.T) {
	m := mrtest.New(16)
	for _, off := range []uint64{9, 16, 17, 1<<64 - 1} {
		_, e1 := m.FetchAdd(off, 1)
		_, e2 := m.CompareSwap(off, 1, 2)
		for _, err := range []error{m.ReadAt(make([]byte, 8), off), m.WriteAt(make([]byte, 8), off), m.Persist(off, 8),
			e1, e2} {
			if err != mr.FaultBounds {
				t.Errorf("offset %#x: %v, want %v", off, err, mr.FaultBounds)
			}
		}
	}
}

func TestPersist(t *testing.T) {
	table := mr.NewTable(1, mr.CountedKeys(func() uint8 { return 0 }))
	pd, _ := table.NewPD()
	m := mrtest.New(16)
	r, err := table.Register(pd, m, 0, ib.FlushPersistent)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Flush(ib.FlushPersistently, 0, 16); err != nil || m.Persists != 1 {
		t.Errorf("%v, %d times; want once", err, m.Persists)
	}
	m.Fail = errors.New("medium is gone")
	if err := r.Flush(ib.FlushPersistently, 0, 16); err != m.Fail {
		t.Errorf("flush to a broken medium: %v, want %v", err, m.Fail)
	}
}
