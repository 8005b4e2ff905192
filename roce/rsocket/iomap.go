package rsocket

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"unsafe"

	"github.com/goroce/goroce/ib"
)

// mapEntry maps a range of offsets to memory of one end.
type mapEntry struct {
	offset uint64
	sge    sge
}

func (e *mapEntry) append(b []byte, o binary.AppendByteOrder) []byte {
	return e.sge.append(o.AppendUint64(b, e.offset), o)
}

// holds reports whether the entry contains the offset.
func (e *mapEntry) holds(offset uint64) bool {
	return offset >= e.offset && offset-e.offset < uint64(e.sge.length)
}

// mappings are the buffers that the two ends have mapped for each other. Conn.mu guards them.
type mappings struct {
	table       []uint64   // iomap of this end, which the peer writes
	peerEntries []mapEntry // copies of its entries, for WriteAt

	ours []ownMapping // by index in the peer's iomap
	next int          // the slot to try first: the one after the last that was used
	at   sge          // the peer's iomap
}

// ownMapping is a buffer of this end that the peer may write into.
type ownMapping struct {
	entry mapEntry
	mr    ib.MR // nil while the slot is free
}

// newMappings returns the initial state, which the peer's record determines.
func newMappings(table []uint64, r *record) mappings {
	at := r.sgl
	at.addr += uint64(r.sgl.length) * sgeLen
	return mappings{table: table, peerEntries: make([]mapEntry, len(table)*8/mapEntryLen),
		ours: make([]ownMapping, r.mapSlots), at: at}
}

// updated reads an entry of the iomap that the peer has written.
func (m *mappings) updated(index uint32) error {
	if uint64(index) >= uint64(len(m.peerEntries)) {
		return &ProtocolError{What: "index of an iomap entry", Value: uint64(index),
			Allowed: fmt.Sprintf("less than the %d offered", len(m.peerEntries))}
	}
	words := m.table[3*index : 3*index+3]
	var raw [mapEntryLen]byte
	for i := len(words) - 1; i >= 0; i-- { // as in outbound.nextTarget
		binary.NativeEndian.PutUint64(raw[8*i:], atomic.LoadUint64(&words[i]))
	}
	e := mapEntry{offset: binary.NativeEndian.Uint64(raw[:]), sge: parseSGE(raw[8:], binary.NativeEndian)}
	if end := e.offset + uint64(e.sge.length); e.offset > math.MaxInt64 || end > math.MaxInt64 {
		return &ProtocolError{What: "offset of an iomap entry", Value: e.offset,
			Allowed: "one that a signed 64-bit number holds, with its length"}
	}
	if err := e.sge.check(); err != nil {
		return err
	}
	m.peerEntries[index] = e
	return nil
}

// find returns the first entry that contains the offset, as rsocket.c does.
func (m *mappings) find(offset uint64) *mapEntry {
	for i := range m.peerEntries {
		if m.peerEntries[i].holds(offset) {
			return &m.peerEntries[i]
		}
	}
	return nil
}

// freeSlot returns a slot of the peer's iomap, or -1.
func (m *mappings) freeSlot() int {
	for i := range m.ours {
		if slot := (m.next + i) % len(m.ours); m.ours[slot].mr == nil {
			return slot
		}
	}
	return -1
}

// overlaps reports whether a mapping of this end contains any of the offsets.
func (m *mappings) overlaps(offset, n uint64) bool {
	for i := range m.ours {
		e := &m.ours[i]
		if e.mr != nil && offset < e.entry.offset+uint64(e.entry.sge.length) && e.entry.offset < offset+n {
			return true
		}
	}
	return false
}

// release deregisters all regions.
func (m *mappings) release() {
	for i := range m.ours {
		if mr := m.ours[i].mr; mr != nil {
			_ = mr.Close()
		}
	}
}

// Map lets the peer write into buf, by its WriteAt (riowrite in C), at offsets from the given one on. Offset -1 stands
// for the address of buf, as with riomap. Map returns the offset. access must be ib.RemoteWrite.
//
// Until Unmap or Done, data that the peer writes appears in buf without a call of this end. When a message arrives that
// the peer has sent afterwards, all of the data is there. The peer's Options.MapSlots limits the number of mappings,
// which must not overlap.
func (c *Conn) Map(buf []byte, access ib.Access, offset int64) (int64, error) {
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if offset == -1 && len(buf) > 0 {
		offset = int64(uintptr(unsafe.Pointer(&buf[0])))
	}
	slot, err := c.checkMap(buf, access, offset)
	if err != nil {
		return 0, c.opError("map", err)
	}
	if err := c.awaitSend(c.hasSlot); err != nil {
		return 0, c.opError("map", err)
	}
	mr, err := c.ep.pd.RegMR(ib.MRInit{Buf: buf, Access: ib.LocalWrite | ib.RemoteWrite})
	if err != nil {
		return 0, c.opError("map", err)
	}
	m := &c.maps.ours[slot]
	m.mr, m.entry = mr, mapEntry{offset: uint64(offset),
		sge: sge{addr: mr.Addr(), key: mr.RKey(), length: uint32(len(buf))}}
	c.maps.next = (slot + 1) % len(c.maps.ours)
	return offset, c.opError("map", c.writeEntry(slot, &m.entry))
}

// checkMap checks the arguments of Map and returns a free slot.
func (c *Conn) checkMap(buf []byte, access ib.Access, offset int64) (slot int, err error) {
	refuse := func(allowed string, err error) (int, error) {
		return 0, &MapError{Op: "map", Offset: offset, Len: len(buf), Allowed: allowed, Err: err}
	}
	switch {
	case access&^ib.LocalWrite != ib.RemoteWrite:
		return refuse("access is ib.RemoteWrite", ib.ErrInvalid)
	case len(buf) == 0 || len(buf) > math.MaxUint32:
		return refuse("1 byte to 4 GiB - 1", ib.ErrInvalid)
	case offset < 0 || offset > math.MaxInt64-int64(len(buf)):
		return refuse("an offset from 0 on, or -1", ib.ErrInvalid)
	case c.maps.overlaps(uint64(offset), uint64(len(buf))):
		return refuse("offsets that no other mapping has; Unmap it first", ib.ErrInvalid)
	}
	if slot = c.maps.freeSlot(); slot < 0 {
		return refuse(fmt.Sprintf("%d mappings at a time; the peer's Options.MapSlots (RDMA_IOMAPSIZE) says so",
			len(c.maps.ours)), ib.ErrLimit)
	}
	return slot, nil
}

func (c *Conn) hasSlot() bool { return c.out.slots > 0 }

// writeEntry writes an entry of the peer's iomap. It uses no credit for data, because rsocket.c never gives back a
// credit that was used so.
func (c *Conn) writeEntry(slot int, e *mapEntry) error {
	c.out.slots--
	wr := c.request(ib.WRWriteImm)
	wr.ID, wr.Imm = workID(sentData, 0), message(msgMap, uint32(slot))
	wr.Flags, wr.Inline = ib.SendInline, e.append(c.control[:0], c.out.order)
	wr.RemoteAddr, wr.RKey = c.maps.at.addr+uint64(slot)*mapEntryLen, c.maps.at.key
	return c.post()
}

// Unmap ends a mapping and tells the peer. The peer must not be writing to the buffer any more: a write under way
// breaks the connection. If Unmap cannot tell the peer, it fails, and has ended the mapping nevertheless.
func (c *Conn) Unmap(buf []byte) error {
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	for slot := range c.maps.ours {
		m := &c.maps.ours[slot]
		if m.mr == nil || len(buf) != m.mr.Len() || uint64(uintptr(unsafe.Pointer(&buf[0]))) != m.mr.Addr() {
			continue
		}
		err := c.awaitSend(c.hasSlot)
		if err == nil {
			err = c.writeEntry(slot, &mapEntry{})
		}
		if c.closed || c.peerClosed || c.err != nil { // the peer writes no more
			err = nil
		}
		mr := m.mr
		m.mr = nil
		return c.opError("unmap", errors.Join(err, mr.Close()))
	}
	return c.opError("unmap", &MapError{Op: "unmap", Len: len(buf), Allowed: "exactly a buffer that Map was given",
		Err: ErrNotMapped})
}

// WriteAt writes p to the offsets that the peer has mapped. If a part of them is not mapped, it writes up to there and
// returns a *MapError. Data that Write sends afterwards arrives later.
func (c *Conn) WriteAt(p []byte, off int64) (n int, err error) {
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	for n < len(p) && err == nil {
		var k int
		k, err = c.writeDirect(p[n:], off+int64(n))
		n += k
	}
	return n, c.opError("write", err)
}

// writeDirect writes the first bytes of p by one request.
func (c *Conn) writeDirect(p []byte, off int64) (int, error) {
	ready := func() bool {
		return c.out.slots > 0 && c.out.ring.free() >= min(len(p), c.out.ring.size/4)
	}
	if err := c.awaitSend(ready); err != nil {
		return 0, err
	}
	e := c.maps.find(uint64(off))
	if off < 0 || e == nil {
		return 0, &MapError{Op: "write", Offset: off, Len: len(p), Allowed: "offsets that the peer has mapped",
			Err: ErrNotMapped}
	}
	skip := uint64(off) - e.offset
	n := int(min(uint64(min(len(p), c.out.ring.free(), maxMessage)), uint64(e.sge.length)-skip))
	target := e.sge
	staged, err := c.stage(p[:n])
	if err != nil {
		return 0, err
	}
	wr := c.request(ib.WRWrite)
	wr.SGL, wr.ID = staged.sgl, workID(sentData, staged.n)
	wr.RemoteAddr, wr.RKey = target.addr+skip, target.key
	c.out.slots--
	if err := c.post(); err != nil {
		return 0, err
	}
	return n, nil
}
