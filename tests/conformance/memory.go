package conformance

import (
	"bytes"
	"encoding/binary"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/goroce/goroce/ib"
)

// region is registered memory with its expected contents. Guard bytes before and after it detect writes outside the
// region.
type region struct {
	e      *End
	mr     ib.MR
	buf    []byte // the region's bytes
	whole  []byte // with the guards
	expect []byte // expected contents of whole
}

// guard is the number of guard bytes on each side.
const guard = 64

// allAccess are the rights of most regions.
const allAccess = ib.LocalWrite | ib.RemoteWrite | ib.RemoteRead | ib.RemoteAtomic

// mem registers n bytes in the half's own PD. Their initial contents depend on n and the role, so the memory of the two
// halves differs.
func (e *End) mem(n int, access ib.Access) *region { return e.memIn(e.pd(), n, access) }

func (e *End) memIn(pd ib.PD, n int, access ib.Access) *region {
	m := e.rawMem(n)
	var err error
	m.mr, err = pd.RegMR(ib.MRInit{Buf: m.buf, Access: access})
	e.must(err, "register %d bytes with access %#x", n, uint32(access))
	e.own("MR", m.mr.Close)
	if m.mr.Len() != n {
		e.fatalf("a region of %d bytes says it has %d", n, m.mr.Len())
	}
	return m
}

// rawMem returns memory that is not registered.
func (e *End) rawMem(n int) *region {
	whole := e.bytes(n + 2*guard)
	copy(whole, pattern(uint64(n)+uint64(len(e.role)), len(whole)))
	return &region{e: e, whole: whole, expect: bytes.Clone(whole), buf: whole[guard : guard+n : guard+n]}
}

// bytes returns n bytes to register, aligned to a cache line.
func (e *End) bytes(n int) []byte {
	if alloc := e.s.party.Alloc; alloc != nil {
		return alloc(n)
	}
	b := make([]byte, n+64)
	off := int(-uintptr(unsafe.Pointer(&b[0])) & 63)
	return b[off : off+n : off+n]
}

// pattern returns n bytes that depend on seed only, the same in both halves (splitmix64).
func pattern(seed uint64, n int) []byte {
	b := make([]byte, (n+7)&^7)
	for i := 0; i < len(b); i += 8 {
		seed += 0x9E3779B97F4A7C15
		z := seed
		z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
		z = (z ^ z>>27) * 0x94D049BB133111EB
		binary.LittleEndian.PutUint64(b[i:], z^z>>31)
	}
	return b[:n]
}

// addr returns the address of byte off of the region for SGEs and peers.
func (m *region) addr(off int) uint64 { return m.mr.Addr() + uint64(off) }

// sge returns the SGE of n bytes.
func (m *region) sge(off, n int) ib.SGE {
	return ib.SGE{Addr: m.addr(off), Length: uint32(n), LKey: m.mr.LKey()}
}

// sgl returns a list of that SGE.
func (m *region) sgl(off, n int) []ib.SGE { return []ib.SGE{m.sge(off, n)} }

// all returns the SGL of the whole region.
func (m *region) all() []ib.SGE { return m.sgl(0, len(m.buf)) }

// put writes to the region, and expects the data there.
func (m *region) put(off int, data []byte) {
	copy(m.buf[off:], data)
	m.want(off, data)
}

// want expects data that the device should have written.
func (m *region) want(off int, data []byte) { copy(m.expect[guard+off:guard+len(m.buf)], data) }

// check fails the half unless every byte is as expected, including the guards.
func (m *region) check() {
	if bytes.Equal(m.whole, m.expect) {
		return
	}
	i, n := 0, 0
	for j := len(m.whole) - 1; j >= 0; j-- {
		if m.whole[j] != m.expect[j] {
			i = j
			n++
		}
	}
	m.e.fatalf("memory differs in %d of %d bytes; the first at offset %d is %#02x, want %#02x", n, len(m.buf), i-guard,
		m.whole[i], m.expect[i])
}

// remote is what a peer must know about a region.
type remote struct {
	Addr uint64
	RKey ib.Key
	Len  int
}

func (m *region) remote() remote { return remote{m.mr.Addr(), m.mr.RKey(), len(m.buf)} }

// expose tells the other half about the region, which gets it with peerMem.
func (m *region) expose() { m.e.tell("memory", m.remote()) }

func (e *End) peerMem() remote { return hear[remote](e, "memory") }

// putWord writes 8 bytes of the region as a number in host byte order, which atomics use.
func (m *region) putWord(off int, v uint64) { m.put(off, word(v)) }

// awaitWord waits until a peer has written that number, if there is no completion for it.
func (m *region) awaitWord(off int, v uint64) {
	for atomic.LoadUint64((*uint64)(unsafe.Pointer(&m.buf[off]))) != v {
		m.e.linger(time.Millisecond)
	}
	m.want(off, word(v))
}

func word(v uint64) []byte { return binary.NativeEndian.AppendUint64(nil, v) }
