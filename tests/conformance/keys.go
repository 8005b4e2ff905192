package conformance

import (
	"fmt"
	"math"

	"github.com/goroce/goroce/ib"
)

// badKey returns a key without a region: no device has so many.
func badKey(k ib.Key) ib.Key { return k ^ 0xF5_00_00_00 }

// otherVariant returns a key with the same index and another low byte.
func otherVariant(k ib.Key) ib.Key { return k ^ 0x55 }

// target is memory that a request names, usually in a wrong way.
type target struct {
	m    *region
	addr uint64
	n    int
	lkey ib.Key
	rkey ib.Key
}

func (t *target) sgl() []ib.SGE {
	return []ib.SGE{{Addr: t.addr, Length: uint32(t.n), LKey: t.lkey}}
}

func (t *target) remote() remote { return remote{t.addr, t.rkey, t.n} }

// good returns a target of n bytes in the middle of a region.
func (e *End) good(n int, access ib.Access) *target {
	m := e.mem(n+2*margin, access)
	return &target{m, m.addr(margin), n, m.mr.LKey(), m.mr.RKey()}
}

// edge returns a target that is a region of n bytes: whatever is beside it is out of bounds.
func (e *End) edge(n int, access ib.Access) *target {
	m := e.mem(n, access)
	return &target{m, m.addr(0), n, m.mr.LKey(), m.mr.RKey()}
}

// mistake makes a target that must not be used.
type mistake struct {
	name string
	// bytes excludes it for operations on 8 bytes at a multiple of 8.
	bytes bool
	make  func(e *End, n int, access ib.Access) *target
}

// Mistakes of naming memory: "keys" are about the key, "bounds" about the address.
var (
	keyMistakes = []mistake{
		{"unknown", false, func(e *End, n int, access ib.Access) *target {
			t := e.good(n, access)
			t.lkey, t.rkey = badKey(t.lkey), badKey(t.rkey)
			return t
		}},
		{"another-variant", false, func(e *End, n int, access ib.Access) *target {
			t := e.good(n, access)
			t.lkey, t.rkey = otherVariant(t.lkey), otherVariant(t.rkey)
			return t
		}},
		{"stale", false, func(e *End, n int, access ib.Access) *target {
			t := e.good(n, access)
			e.must(t.m.mr.Close(), "close MR")
			return t
		}},
		{"of-another-pd", false, func(e *End, n int, access ib.Access) *target {
			m := e.memIn(e.newPD(), n+2*margin, access)
			return &target{m, m.addr(margin), n, m.mr.LKey(), m.mr.RKey()}
		}},
	}
	boundsMistakes = []mistake{
		{"one-byte-over", true, func(e *End, n int, access ib.Access) *target {
			t := e.edge(n-1, access)
			t.n = n
			return t
		}},
		{"one-byte-before", true, func(e *End, n int, access ib.Access) *target {
			t := e.edge(n, access)
			t.addr--
			return t
		}},
		{"8-bytes-over", false, func(e *End, n int, access ib.Access) *target {
			t := e.edge(n, access)
			t.addr += 8
			return t
		}},
		{"far-away", false, func(e *End, n int, access ib.Access) *target {
			t := e.edge(n, access)
			t.addr += 1 << 40
			return t
		}},
		{"address-wraps", true, func(e *End, n int, access ib.Access) *target {
			t := e.edge(n, access)
			t.addr = math.MaxUint64 - uint64(n/2)
			return t
		}},
		{"last-8-bytes-of-all", false, func(e *End, n int, access ib.Access) *target {
			t := e.edge(n, access)
			t.addr = math.MaxUint64 - 7
			return t
		}},
	}
)

func keyCases() []Case {
	var list []Case
	for _, topic := range []struct {
		name     string
		mistakes []mistake
	}{{"keys", keyMistakes}, {"bounds", boundsMistakes}} {
		for _, m := range topic.mistakes {
			for _, o := range []op{opSend, opWrite, opRead, opFAA} {
				if o.atomic && m.bytes {
					continue
				}
				list = append(list, localCase(topic.name, o, m))
			}
			list = append(list, receiveCase(topic.name, m))
			for _, o := range remoteOps {
				if o.atomic && m.bytes {
					continue
				}
				list = append(list, remoteCase(topic.name, o, m))
			}
		}
	}
	for _, o := range []op{opWrite, opRead} {
		list = append(list, Case{
			Name:    "zero-bytes/remote-key-does-not-matter/" + o.name,
			Active:  func(e *End) { zeroLength(e, o) },
			Passive: untouchedPassive,
		})
	}
	return append(list,
		Case{Name: "zero-bytes/local-key-does-not-matter", Active: zeroLengthLocal, Passive: func(e *End) {
			c := e.connect()
			opSend.take(c, 8)
		}},
		Case{Name: "bounds/long-write-is-checked-whole", Active: longOver, Passive: longOverPassive},
		Case{Name: "keys/second-piece", Active: secondPiece, Passive: func(e *End) {
			c := e.connect()
			m := e.mem(64, allAccess)
			m.expose()
			e.sync("failed")
			c.wantState(ib.StateRTS)
			m.check()
		}},
		Case{Name: "keys/in-turn", Active: keysInTurn, Passive: keysInTurnPassive},
	)
}

// localAccess returns the right that the requester's memory needs: LocalWrite for data that come in.
func (o *op) localAccess() ib.Access {
	if o.pulls {
		return ib.LocalWrite
	}
	return 0
}

// localCase names the requester's memory wrongly: the request fails locally and the peer does not notice it.
func localCase(topic string, o op, m mistake) Case {
	return Case{
		Name: fmt.Sprintf("%s/local/%s/%s", topic, o.name, m.name),
		Active: func(e *End) {
			c := e.connect()
			t := m.make(e, o.length(), o.localAccess())
			wr := o.request(1, t.sgl(), e.peerMem())
			// The memory for a result may be checked when the result arrives. An atomic may have been executed by then,
			// so this one changes nothing.
			wr.Swap = 0
			c.broken(wr, ib.WCLocProtErr)
			e.sync("failed")
			t.m.check()
		},
		Passive: func(e *End) {
			c := e.connect()
			mem := e.mem(o.length(), allAccess)
			if o.recv {
				c.recv(1, mem.all())
			}
			mem.expose()
			e.sync("failed")
			c.rq.empty()
			c.wantState(ib.StateRTS)
			mem.check()
		},
	}
}

// receiveCase names memory wrongly in a receive: the receive fails when a message arrives, and the sender gets an
// operational error (IBTA 9.9.3, table 57).
func receiveCase(topic string, m mistake) Case {
	return Case{
		Name: fmt.Sprintf("%s/local/receive/%s", topic, m.name),
		Active: func(e *End) {
			c := e.connect()
			mem := e.mem(64, 0)
			hear[bool](e, "posted")
			c.broken(ib.SendWR{ID: 1, Opcode: ib.WRSend, SGL: mem.all()}, ib.WCRemOpErr)
			e.sync("failed")
		},
		Passive: func(e *End) {
			c := e.connect()
			t := m.make(e, 64, ib.LocalWrite)
			c.recv(1, t.sgl())
			e.tell("posted", true)
			c.rq.fails(1, ib.WCLocProtErr)
			e.sync("failed")
			c.wantState(ib.StateErr)
			t.m.check()
		},
	}
}

// remoteCase names the peer's memory wrongly: the peer answers with a remote access error, both queue pairs end, and
// the memory does not change.
func remoteCase(topic string, o op, m mistake) Case {
	return Case{
		Name:  fmt.Sprintf("%s/remote/%s/%s", topic, o.name, m.name),
		Needs: o.needs(),
		Active: func(e *End) {
			refusedRequest(e, o, ib.WCRemAccessErr)
		},
		Passive: func(e *End) {
			refusingPassive(e, o, qpAccess, func() *target { return m.make(e, o.length(), ib.LocalWrite|o.access) })
		},
	}
}

// qpAccess are the rights of queue pairs that grant everything.
const qpAccess = ib.QPAccessMask &^ ib.FlushPersistent

// grants sets the rights of the queue pair.
func grants(a ib.Access) func(*setup) { return func(s *setup) { s.access = a } }

// fullAccess returns the rights of qpAccess that the device supports.
func (e *End) fullAccess() ib.Access {
	a := ib.RemoteWrite | ib.RemoteRead | ib.RemoteAtomic
	if e.attr.Caps&ib.CapFlushGlobal != 0 {
		a |= ib.FlushGlobal
	}
	return a
}

// refusedRequest posts a request that the peer must refuse.
func refusedRequest(e *End, o op, status ib.WCStatus) {
	c := e.connect()
	t := e.good(o.length(), ib.LocalWrite)
	r := e.peerMem()
	c.broken(o.request(1, t.sgl(), r), status)
	t.m.check()
	e.sync("failed")
}

// refusingPassive exposes a target that must not be used in this way. If the operation takes a receive, it is flushed.
func refusingPassive(e *End, o op, access ib.Access, make func() *target) {
	c := e.connect(grants(access & e.fullAccess()))
	t := make()
	spare := e.mem(64, ib.LocalWrite)
	if o.recv {
		c.recv(1, spare.all())
	}
	e.tell("memory", t.remote())
	e.sync("failed")
	if o.recv {
		c.rq.fails(1, ib.WCWRFlushErr)
	}
	c.wantState(ib.StateErr)
	t.m.check()
	spare.check()
}

// zeroLength: a request of no bytes accesses no memory, so its key does not matter (IBTA 9.7.4.1.5).
func zeroLength(e *End, o op) {
	c := e.connect()
	r := e.peerMem()
	r.RKey, r.Addr = badKey(r.RKey), 12345
	c.do(o.request(1, nil, r))
	c.wantState(ib.StateRTS)
	e.sync("done")
}

func zeroLengthLocal(e *End) {
	c := e.connect()
	m := e.mem(8+2*margin, 0)
	m.put(margin, pattern(1, 8))
	_ = e.peerMem()
	c.do(ib.SendWR{ID: 1, Opcode: ib.WRSend, SGL: []ib.SGE{{Addr: 1, Length: 0, LKey: badKey(m.mr.LKey())},
		m.sge(margin, 8)}})
	e.sync("moved")
	c.sq.empty()
}

// secondPiece: a message is transferred completely or not at all.
func secondPiece(e *End) {
	c := e.connect()
	m := e.mem(64, 0)
	bad := m.sge(32, 32)
	bad.LKey = badKey(bad.LKey)
	c.broken(opWrite.request(1, []ib.SGE{m.sge(0, 32), bad}, e.peerMem()), ib.WCLocProtErr)
	e.sync("failed")
}

// longOver: the whole message is checked before its first byte is written.
func longOver(e *End) {
	c := e.connect()
	n := 3*int(e.mtu()) + 1
	m := e.mem(n, 0)
	c.broken(opWrite.request(1, m.all(), e.peerMem()), ib.WCRemAccessErr)
	e.sync("failed")
}

func longOverPassive(e *End) {
	c := e.connect()
	m := e.mem(3*int(e.mtu()), allAccess)
	m.expose()
	e.sync("failed")
	c.wantState(ib.StateErr)
	m.check()
}

// keysInTurn uses regions that come and go: each key opens its own region only, and only while that is registered.
func keysInTurn(e *End) {
	c := e.connect()
	m := e.mem(64, ib.LocalWrite)
	m.put(0, pattern(3, 64))
	for i := range 8 {
		r := e.peerMem()
		c.do(opWrite.request(uint64(i), m.all(), r))
		e.sync("written")
	}
}

func keysInTurnPassive(e *End) {
	e.connect()
	seen := map[ib.Key]bool{}
	for range 8 {
		m := e.mem(64, allAccess)
		if seen[m.mr.RKey()] {
			e.fatalf("key %#x is used again for other memory", uint32(m.mr.RKey()))
		}
		seen[m.mr.RKey()] = true
		m.expose()
		e.sync("written")
		m.want(0, pattern(3, 64))
		m.check()
		e.must(m.mr.Close(), "close MR")
	}
}
