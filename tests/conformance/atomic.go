package conformance

import (
	"math"

	"github.com/goroce/goroce/ib"
)

// Offsets of the words of an atomic case. The bytes around them must not change.
const (
	wordAt   = 16 // in the peer's region
	resultAt = 8  // in the requester's
	wordMem  = 48
)

// atomicStep is an atomic operation on a word, with its expected results.
type atomicStep struct {
	wr            ib.WROpcode
	compare, swap uint64
	was, is       uint64
}

func atomicCases() []Case {
	const a, b, c = 0x0102030405060708, 0x1112131415161718, 0x2122232425262728
	steps := func(name string, list ...atomicStep) Case {
		return Case{
			Name:    name,
			Active:  func(e *End) { atomics(e, list) },
			Passive: func(e *End) { atomicsPassive(e, list[0].was, list[len(list)-1].is) },
		}
	}
	return []Case{
		steps("cas/equal-swaps", atomicStep{ib.WRCompareSwap, a, b, a, b}),
		steps("cas/different-only-reads", atomicStep{ib.WRCompareSwap, b, c, a, a}),
		steps("faa/adds", atomicStep{ib.WRFetchAdd, 0, 5, a, a + 5}),
		steps("faa/wraps", atomicStep{ib.WRFetchAdd, 0, 2, math.MaxUint64, 1}),
		steps("faa/0-reads", atomicStep{ib.WRFetchAdd, 0, 0, a, a}),
		steps("atomic/one-after-another", atomicStep{ib.WRFetchAdd, 0, 1, a, a + 1},
			atomicStep{ib.WRCompareSwap, a + 1, b, a + 1, b}, atomicStep{ib.WRCompareSwap, a, c, b, b},
			atomicStep{ib.WRFetchAdd, 0, 1, b, b + 1}),
		{Name: "atomic/many-in-flight-add-up", Active: manyAdds, Passive: manyAddsPassive},
		{Name: "atomic/unaligned-never-executes", Active: unalignedAtomic, Passive: unalignedAtomicPassive},
		{Name: "atomic/result-needs-8-bytes", Active: shortResult, Passive: untouchedPassive},
		{Name: "atomic-write/8-bytes", Needs: both(ib.CapAtomicWrite), Active: atomicWrite,
			Passive: atomicWritePassive},
		{Name: "atomic-write/inline", Needs: both(ib.CapAtomicWrite), Active: atomicWriteInline,
			Passive: atomicWritePassive},
		{Name: "flush/range-after-write", Needs: both(ib.CapFlushGlobal), Active: flushAfterWrite(ib.FlushRange),
			Passive: flushPassive},
		{Name: "flush/persistent-needs-the-right", Needs: both(ib.CapFlushGlobal), Active: flushPersistent,
			Passive: func(e *End) {
				c := e.connect(flushable)
				m := e.mem(64, ib.LocalWrite|ib.RemoteWrite|ib.FlushGlobal)
				m.expose()
				e.sync("failed")
				c.wantState(ib.StateErr)
			}},
		{Name: "flush/region-after-write", Needs: both(ib.CapFlushGlobal), Active: flushAfterWrite(ib.FlushRegion),
			Passive: flushPassive},
	}
}

func atomics(e *End, steps []atomicStep) {
	c := e.connect()
	m := e.mem(wordMem, ib.LocalWrite)
	r := e.peerMem()
	for i, s := range steps {
		wc := c.do(ib.SendWR{ID: uint64(i), Opcode: s.wr, SGL: m.sgl(resultAt, 8), RemoteAddr: r.Addr + wordAt,
			RKey: r.RKey, Compare: s.compare, Swap: s.swap})
		m.want(resultAt, word(s.was))
		m.check()
		if wc.ByteLen != 8 {
			e.fatalf("%v says that it placed %d bytes, want 8", s.wr, wc.ByteLen)
		}
	}
	e.sync("done")
}

func atomicsPassive(e *End, was, is uint64) {
	e.connect()
	m := e.mem(wordMem, ib.LocalWrite|ib.RemoteAtomic)
	m.putWord(wordAt, was)
	m.expose()
	e.sync("done")
	m.want(wordAt, word(is))
	m.check()
}

// manyAdds posts more atomics than may be in flight; all results differ.
func manyAdds(e *End) {
	c := e.connect()
	m := e.mem(8*depth, ib.LocalWrite)
	r := e.peerMem()
	for i := range depth {
		c.post(ib.SendWR{ID: uint64(i), Opcode: ib.WRFetchAdd, SGL: m.sgl(8*i, 8), RemoteAddr: r.Addr, RKey: r.RKey,
			Swap: 3})
	}
	for i := range depth {
		c.sq.done(uint64(i), ib.WCFetchAdd)
		m.want(8*i, word(uint64(3*i)))
	}
	m.check()
	e.sync("done")
}

func manyAddsPassive(e *End) {
	e.connect()
	m := e.mem(wordMem, ib.LocalWrite|ib.RemoteAtomic)
	m.putWord(0, 0)
	m.expose()
	e.sync("done")
	m.want(0, word(3*depth))
	m.check()
}

// unalignedAtomic: a device refuses the request when it is posted, or the responder answers that it is invalid (IBTA
// 9.4.5).
func unalignedAtomic(e *End) {
	c := e.connect()
	m := e.mem(wordMem, ib.LocalWrite)
	r := e.peerMem()
	wr := ib.SendWR{ID: 1, Opcode: ib.WRFetchAdd, SGL: m.sgl(resultAt, 8), RemoteAddr: r.Addr + wordAt + 4,
		RKey: r.RKey, Swap: 1}
	if _, err := c.qp.PostSend([]ib.SendWR{wr}); err != nil {
		e.names(err, "posting an unaligned atomic", "RemoteAddr", ib.ErrInvalid)
	} else {
		c.sq.fails(1, ib.WCRemInvReqErr)
	}
	m.check()
	e.sync("done")
}

func unalignedAtomicPassive(e *End) {
	e.connect()
	m := e.mem(wordMem, ib.LocalWrite|ib.RemoteAtomic)
	m.expose()
	e.sync("done")
	m.check()
}

// shortResult gives too little room for the result.
func shortResult(e *End) {
	c := e.connect()
	m := e.mem(wordMem, ib.LocalWrite)
	r := e.peerMem()
	wr := ib.SendWR{ID: 1, Opcode: ib.WRFetchAdd, SGL: m.sgl(resultAt, 4), RemoteAddr: r.Addr, RKey: r.RKey, Swap: 0}
	if _, err := c.qp.PostSend([]ib.SendWR{wr}); err != nil {
		e.is(err, "posting an atomic with room for 4 bytes", ib.ErrInvalid)
	} else {
		c.sq.fails(1, ib.WCLocLenErr)
	}
	m.check()
	e.sync("done")
}

// untouchedPassive exposes memory with all rights, which must not change.
func untouchedPassive(e *End) {
	e.connect()
	m := e.mem(wordMem, allAccess)
	m.expose()
	e.sync("done")
	m.check()
}

func atomicWrite(e *End) {
	c := e.connect()
	m := e.mem(wordMem, ib.LocalWrite)
	m.put(resultAt, pattern(7, 8))
	r := e.peerMem()
	c.do(ib.SendWR{ID: 1, Opcode: ib.WRAtomicWrite, SGL: m.sgl(resultAt, 8), RemoteAddr: r.Addr + wordAt, RKey: r.RKey})
	m.check()
	e.sync("done")
}

func atomicWriteInline(e *End) {
	c := e.connect()
	r := e.peerMem()
	c.do(ib.SendWR{ID: 1, Opcode: ib.WRAtomicWrite, Flags: ib.SendInline, Inline: pattern(7, 8),
		RemoteAddr: r.Addr + wordAt, RKey: r.RKey})
	e.sync("done")
}

func atomicWritePassive(e *End) {
	e.connect()
	m := e.mem(wordMem, ib.LocalWrite|ib.RemoteWrite)
	m.expose()
	e.sync("done")
	m.want(wordAt, pattern(7, 8))
	m.check()
}

func flushable(s *setup) { s.access |= ib.FlushGlobal }

// flushAfterWrite writes and flushes: when the FLUSH has completed, all observers see the data.
func flushAfterWrite(extent ib.FlushExtent) func(*End) {
	return func(e *End) {
		c := e.connect(flushable)
		m := e.mem(5000, ib.LocalWrite)
		m.put(0, pattern(9, 5000))
		r := e.peerMem()
		c.post(ib.SendWR{ID: 1, Opcode: ib.WRWrite, SGL: m.all(), RemoteAddr: r.Addr, RKey: r.RKey},
			ib.SendWR{ID: 2, Opcode: ib.WRFlush, RemoteAddr: r.Addr, RKey: r.RKey,
				Flush: ib.Flush{Length: 5000, Extent: extent, Level: ib.FlushGlobally}})
		c.sq.done(1, ib.WCWrite)
		c.sq.done(2, ib.WCFlush)
		m.check()
		e.sync("done")
	}
}

// flushPersistent requests more than the peer's region and queue pair grant.
func flushPersistent(e *End) {
	c := e.connect()
	r := e.peerMem()
	c.post(ib.SendWR{ID: 1, Opcode: ib.WRFlush, RemoteAddr: r.Addr, RKey: r.RKey,
		Flush: ib.Flush{Length: 8, Level: ib.FlushPersistently}})
	c.sq.failsAny(1, ib.WCRemAccessErr, ib.WCRemInvReqErr)
	e.sync("failed")
}

func flushPassive(e *End) {
	e.connect(flushable)
	m := e.mem(5000, ib.LocalWrite|ib.RemoteWrite|ib.FlushGlobal)
	m.expose()
	e.sync("done")
	m.want(0, pattern(9, 5000))
	m.check()
}
