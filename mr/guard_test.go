package mr

import (
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/goroce/goroce/ib"
)

// A request of one shard revokes what another is writing to: when that has returned
// the memory changes no more.
func TestRevokeWaits(t *testing.T) {
	const size, qpn, rounds = 1 << 18, 17, 10
	for _, c := range []struct {
		name   string
		open   func(t *testing.T, table *Table, pd *PD, m Memory) ib.Key
		revoke func(table *Table, pd *PD, key ib.Key) Fault
	}{
		{"region", func(t *testing.T, table *Table, pd *PD, m Memory) ib.Key {
			return register(t, table, pd, m, 0, ib.LocalWrite|ib.RemoteWrite|ib.RemoteInvalidate).Key()
		}, func(table *Table, pd *PD, key ib.Key) Fault { return table.Invalidate(pd, qpn, key) }},
		{"window of type 2", func(t *testing.T, table *Table, pd *PD, m Memory) ib.Key {
			r := register(t, table, pd, m, 0, ib.LocalWrite|ib.BindWindows)
			w := newWindow(t, table, pd, ib.MWType2)
			bind(t, table, w, qpn, all(r, ib.RemoteWrite))
			return w.Key()
		}, func(table *Table, pd *PD, key ib.Key) Fault { return table.Invalidate(pd, qpn, key) }},
		{"window of type 1, bound anew", func(t *testing.T, table *Table, pd *PD, m Memory) ib.Key {
			r := register(t, table, pd, m, 0, ib.LocalWrite|ib.BindWindows)
			w := newWindow(t, table, pd, ib.MWType1)
			bind(t, table, w, qpn, all(r, ib.RemoteWrite))
			return w.Key()
		}, func(table *Table, pd *PD, key ib.Key) Fault { return table.Bind(pd, qpn, ib.NextKey(key), ib.MWBind{}) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			buf, data := make([]byte, size), make([]byte, size)
			for i := range data {
				data[i] = 0xFF
			}
			table := NewSharedTable(2*rounds, CountedKeys(func() uint8 { return 0 }))
			pd, err := table.NewPD()
			if err != nil {
				t.Fatal(err)
			}
			for range rounds {
				key := c.open(t, table, pd, Bytes(buf))
				span, fault := table.CheckRemote(pd, qpn, key, 0, size, ib.RemoteWrite)
				if fault != FaultNone {
					t.Fatal(fault)
				}
				var writes atomic.Int32
				end := make(chan error)
				go func() {
					err := span.Write(data)
					for ; err == nil; err = span.Write(data) {
						writes.Add(1)
					}
					end <- err
				}()
				for writes.Load() == 0 {
					runtime.Gosched()
				}
				if fault := c.revoke(table, pd, key); fault != FaultNone {
					t.Fatal(fault)
				}
				for i := range buf {
					store8(&buf[i], 0)
				}
				if err := <-end; !errors.Is(err, FaultKey) {
					t.Fatal(err)
				}
				for i, b := range buf {
					if b != 0 {
						t.Fatalf("byte %d was written after its key had been revoked", i)
					}
				}
			}
		})
	}
}

// Errors end an access as success does: nobody waits for them for ever.
func TestRevokeAfterErrors(t *testing.T) {
	table := NewSharedTable(4, CountedKeys(func() uint8 { return 0 }))
	pd, _ := table.NewPD()
	r := register(t, table, pd, Bytes(make([]byte, 16)), 0, ib.LocalWrite|ib.RemoteInvalidate)
	whole := Span{R: r, Len: 16}
	for _, err := range []error{whole.Read(make([]byte, 17)), whole.Write(make([]byte, 17)),
		whole.AtomicWrite([8]byte{})} {
		if !errors.Is(err, FaultBounds) {
			t.Error(err)
		}
	}
	word := Span{R: r, Off: 8, Len: 8}
	if _, err := word.FetchAdd(1); err != nil {
		t.Error(err)
	}
	if _, err := word.CompareSwap(0, 1); err != nil {
		t.Error(err)
	}
	if err := word.AtomicWrite([8]byte{}); err != nil {
		t.Error(err)
	}
	if n := r.users.Load(); n != 0 {
		t.Errorf("%d accesses are still counted, want none", n)
	}
	if fault := table.Invalidate(pd, 1, r.Key()); fault != FaultNone {
		t.Error(fault)
	}
	if err := word.Read(make([]byte, 8)); !errors.Is(err, FaultKey) || r.users.Load() != 0 {
		t.Errorf("error %v, %d accesses are counted; want %v, none", err, r.users.Load(), FaultKey)
	}
}

// TestFault: what covers memory that is not there is revoked, and who revokes it again does
// not wait for the access that has found out, which never ended.
func TestFault(t *testing.T) {
	const size, qpn = 4096, 17
	buf := make([]byte, 3*size)
	table := NewSharedTable(8, CountedKeys(func() uint8 { return 0 }))
	pd, err := table.NewPD()
	if err != nil {
		t.Fatal(err)
	}
	var regions [3]*Region
	for i := range regions {
		regions[i] = register(t, table, pd, Bytes(buf[i*size:][:size]), 0,
			ib.LocalWrite|ib.RemoteWrite|ib.RemoteInvalidate)
		if !regions[i].begin() {
			t.Fatal("a region cannot be used")
		}
	}
	middle := uintptr(unsafe.Pointer(&buf[size]))
	table.Fault(middle)
	table.Fault(middle + size - 1)
	table.Fault(0)
	for i, r := range regions {
		if want := i != 1; r.Valid() != want {
			t.Errorf("region %d is valid: %v, want %v", i, r.Valid(), want)
		}
	}
	revoked := make(chan struct{})
	go func() {
		regions[1].revoke()
		close(revoked)
	}()
	select {
	case <-revoked:
	case <-time.After(30 * time.Second):
		t.Error("who revokes it waits for an access that never ends")
	}
}
