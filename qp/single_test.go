package qp

import (
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/mr/mrtest"
	"github.com/goroce/goroce/wire"
)

// persister is memory that records which parts were made persistent.
type persister struct {
	*mrtest.Memory
	off, n uint64
	times  int
}

func (p *persister) Persist(off, n uint64) error {
	p.off, p.n = off, n
	p.times++
	return nil
}

// flushHost returns a QP in RTS with a region that can be made persistent.
func flushHost(t *testing.T) (*host, *persister, *mr.Region) {
	h := hostIn(t, ib.StateRTS)
	m := &persister{Memory: mrtest.New(4096)}
	r, err := h.table.Register(h.pd, m, 0x1000, ib.LocalWrite|ib.BindWindows|ib.FlushGlobal|ib.FlushPersistent)
	h.must(err)
	return h, m, r
}

// flushRequest returns the peer's FLUSH.
func flushRequest(feth wire.FETH, key ib.Key, va uint64, n uint32) wire.Packet {
	p := request(wire.RCFlush, peerPSN, nil)
	p.FETH, p.RETH = feth, wire.RETH{VA: va, RKey: key, Len: n}
	return p
}

// TestFlushCovers checks that a FLUSH makes persistent exactly its range, or the whole
// region of its R_Key.
func TestFlushCovers(t *testing.T) {
	for _, c := range []struct {
		name   string
		window bool
		extent ib.FlushExtent
		va     uint64
		n      uint32
		off    uint64 // in the memory
		length uint64
	}{
		{"range", false, ib.FlushRange, 0x1100, 0x20, 0x100, 0x20},
		{"no bytes", false, ib.FlushRange, 0x1100, 0, 0x100, 0},
		{"region", false, ib.FlushRegion, 0x1100, 0x20, 0, 4096},
		{"region, by no address of it", false, ib.FlushRegion, 0, 0, 0, 4096},
		{"range of a window", true, ib.FlushRange, 0x1810, 0x20, 0x810, 0x20},
		{"window", true, ib.FlushRegion, 0, 0, 0x800, 0x400},
	} {
		h, m, r := flushHost(t)
		key := r.Key()
		if c.window {
			w, err := h.table.AllocWindow(h.pd, ib.MWType2)
			h.must(err)
			key = ib.NextKey(w.Key())
			b := ib.MWBind{LKey: r.Key(), Addr: 0x1800, Length: 0x400, Access: ib.FlushPersistent}
			if fault := h.table.Bind(h.pd, ourNum, key, b); fault != mr.FaultNone {
				t.Fatal(fault)
			}
		}
		feth := wire.FETH{Placement: uint8(ib.FlushPersistently), Selectivity: uint8(c.extent)}
		h.handle(0, flushRequest(feth, key, c.va, c.n))
		if got, want := h.outcome(nil), "RDMA READ Response Only 500"; got != want {
			t.Errorf("%s: %q, want %q", c.name, got, want)
		}
		if m.times != 1 || m.off != c.off || m.n != c.length {
			t.Errorf("%s: %d times, at %#x %#x bytes; want %#x, %#x", c.name, m.times, m.off, m.n, c.off, c.length)
		}
	}
}

// TestFlushFields checks that undefined values in the FETH are an invalid request.
func TestFlushFields(t *testing.T) {
	for _, c := range []struct {
		feth wire.FETH
		ok   bool
	}{
		{wire.FETH{Placement: wire.FlushGlobal}, true},
		{wire.FETH{Placement: wire.FlushPersistent, Selectivity: wire.FlushRegion}, true},
		{wire.FETH{Placement: wire.FlushGlobal | wire.FlushPersistent}, true},
		{wire.FETH{Placement: wire.FlushGlobal, Resv: 1}, true}, // reserved bits are ignored
		{wire.FETH{}, false},
		{wire.FETH{Placement: 4}, false},
		{wire.FETH{Placement: wire.FlushGlobal, Selectivity: 2}, false},
		{wire.FETH{Placement: wire.FlushGlobal, Selectivity: 3}, false},
	} {
		h, _, r := flushHost(t)
		want := "RDMA READ Response Only 500"
		if !c.ok {
			want = "NAK 500, invalid request local work queue error, ERR"
		}
		got := h.outcome(func() bool { h.handle(0, flushRequest(c.feth, r.Key(), 0x1000, 8)); return true })
		if got != want {
			t.Errorf("%+v: %q, want %q", c.feth, got, want)
		}
	}
}
