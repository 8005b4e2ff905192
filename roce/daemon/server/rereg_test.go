package server

import (
	"errors"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/daemon/abi"
)

// TestKeepKeys checks that a region keeps its key if the client asks for that, whatever changes, and gets
// another one otherwise.
func TestKeepKeys(t *testing.T) {
	s, _ := newServer(t)
	c := newBareSession(t, s)
	pd, other := c.make(abi.OpAllocPD, nil), c.make(abi.OpAllocPD, nil)
	file := c.make(abi.OpShareMemory, nil)
	made, err := abi.Get[abi.RegReply](c.ask(abi.OpRegMR, abi.Put(nil, &abi.RegMR{PD: pd, Kind: abi.MemFD, File: file,
		Access: 1, Length: 4096})))
	must(t, err)
	rereg := func(mask uint32, to abi.RegMR) (abi.Handle, error) {
		r, err := c.answer(abi.OpReregMR, abi.Put(nil, &abi.ReregMR{MR: made.Handle, Mask: mask, RegMR: to}), nil)
		if err != nil {
			return 0, err
		}
		got, err := abi.Get[abi.RegReply](r.body)
		must(t, err)
		return got.Key, nil
	}
	to := abi.RegMR{PD: other, Kind: abi.MemFD, File: c.make(abi.OpShareMemory, nil), Access: 7, Addr: 4096,
		Length: 4096, IOVA: 0x10000}
	for mask := uint32(1); mask < 8; mask++ {
		if key, err := rereg(mask|abi.KeepKeys, to); err != nil || key != made.Key {
			t.Errorf("mask %d: key %#x, %v, want %#x", mask, key, err, made.Key)
		}
	}
	for _, mask := range []uint32{0, 8} {
		if _, err := rereg(mask|abi.KeepKeys, to); !errors.Is(err, ib.ErrInvalid) {
			t.Errorf("mask %d: %v, want %v", mask, err, ib.ErrInvalid)
		}
	}
	if key, err := rereg(uint32(ib.ReregAccess), to); err != nil || key == made.Key {
		t.Errorf("key %#x again, %v; want another", key, err)
	}
}
