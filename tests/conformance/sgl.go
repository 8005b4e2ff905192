package conformance

import (
	"fmt"
	"math"

	"github.com/goroce/goroce/ib"
)

// shape is the lengths of the pieces of a message in memory.
type shape struct {
	name string
	of   func(limit, mtu int) []int
}

var shapes = []shape{
	{"2-pieces", func(_, _ int) []int { return []int{100, 57} }},
	{"zero-length-pieces", func(_, _ int) []int { return []int{0, 100, 0, 57} }},
	{"pieces-across-packets", func(_, mtu int) []int { return []int{mtu - 3, mtu + 7, 1, mtu} }},
	{"as-many-as-the-limit", func(limit, _ int) []int {
		pieces := make([]int, limit)
		for i := range pieces {
			pieces[i] = 3 + i%5
		}
		return pieces
	}},
}

// gap is the number of bytes between pieces.
const gap = 9

func sum(list []int) (n int) {
	for _, v := range list {
		n += v
	}
	return n
}

// scattered registers memory for the pieces and returns it with the SGL.
func (e *End) scattered(pieces []int, access ib.Access) (*region, []ib.SGE) {
	m := e.mem(sum(pieces)+gap*(len(pieces)+1), access)
	var sgl []ib.SGE
	at := gap
	for _, n := range pieces {
		sgl = append(sgl, m.sge(at, n))
		at += n + gap
	}
	return m, sgl
}

// spread calls f for each piece with its offsets in the region and in the message.
func spread(pieces []int, f func(at, off, n int)) {
	at, off := gap, 0
	for _, n := range pieces {
		f(at, off, n)
		at += n + gap
		off += n
	}
}

// limit returns the number of SGEs that both devices support.
func (e *End) limit() int { return min(e.attr.MaxSGE, e.peer.Attr.MaxSGE) }

func withSGEs(n int) func(*setup) {
	return func(s *setup) { s.init.Cap.MaxSendSGE, s.init.Cap.MaxRecvSGE = max(n, 1), max(n, 1) }
}

func sglCases() []Case {
	var list []Case
	for _, sh := range shapes {
		for _, o := range []op{opSend, opWrite} {
			list = append(list, gatherCase(o, sh))
		}
		list = append(list, scatterCase(opSend, sh), scatterCase(opRead, sh))
	}
	for _, o := range dataOps {
		list = append(list, Case{Name: "sgl/empty/" + o.name, Active: emptyActive(o), Passive: emptyPassive(o)})
	}
	return append(list,
		Case{Name: "sgl/of-a-region", Alone: regionSGE},
		Case{Name: "sgl/pieces-of-several-regions", Active: severalRegions, Passive: func(e *End) {
			c := e.connect()
			opWrite.take(c, 150)
		}},
		Case{Name: "sgl/too-many/send", Alone: func(e *End) {
			c := e.lonely(withSGEs(2))
			m := e.mem(64, ib.LocalWrite)
			tooMany := make([]ib.SGE, e.attr.MaxSGE+1)
			for i := range tooMany {
				tooMany[i] = m.sge(i, 1)
			}
			n, err := c.qp.PostSend([]ib.SendWR{{ID: 1, Opcode: ib.WRWrite, SGL: tooMany}})
			e.names(err, "posting more SGEs than the device has", "SGL", ib.ErrInvalid)
			if n != 0 {
				e.fatalf("%d requests accepted", n)
			}
		}},
		Case{Name: "sgl/too-many/receive", Alone: func(e *End) {
			c := e.lonely(withSGEs(2))
			m := e.mem(64, ib.LocalWrite)
			tooMany := make([]ib.SGE, e.attr.MaxSGE+1)
			for i := range tooMany {
				tooMany[i] = m.sge(i, 1)
			}
			n, err := c.qp.PostRecv([]ib.RecvWR{{ID: 1, SGL: tooMany}})
			e.names(err, "posting more SGEs than the device has", "SGL", ib.ErrInvalid)
			if n != 0 {
				e.fatalf("%d receives accepted", n)
			}
		}},
	)
}

// gatherCase sends a message from several pieces; the peer has one piece of memory.
func gatherCase(o op, sh shape) Case {
	return Case{
		Name: "sgl/gather/" + o.name + "/" + sh.name,
		Active: func(e *End) {
			pieces := sh.of(e.limit(), int(e.mtu()))
			c := e.connect(withSGEs(len(pieces)))
			m, sgl := e.scattered(pieces, ib.LocalWrite)
			data := pattern(1, sum(pieces))
			spread(pieces, func(at, off, n int) { m.put(at, data[off:off+n]) })
			r := e.peerMem()
			r.Addr += margin
			c.do(o.request(1, sgl, r))
			m.check()
			e.sync("moved")
		},
		Passive: func(e *End) {
			n := sum(sh.of(e.limit(), int(e.mtu())))
			c := e.connect()
			o.take(c, n)
		},
	}
}

// scatterCase receives or READs a message into several pieces.
func scatterCase(o op, sh shape) Case {
	whole := func(e *End) {
		n := sum(sh.of(e.limit(), int(e.mtu())))
		c := e.connect()
		if o.pulls {
			o.take(c, n)
		} else {
			o.transfer(c, n)
		}
	}
	pieces := func(e *End) {
		pieces := sh.of(e.limit(), int(e.mtu()))
		c := e.connect(withSGEs(len(pieces)))
		m, sgl := e.scattered(pieces, ib.LocalWrite)
		if o.pulls {
			r := e.peerMem()
			r.Addr += margin
			c.do(o.request(1, sgl, r))
		} else {
			c.recv(1, sgl)
			m.expose()
			o.received(c, sum(pieces))
		}
		data := pattern(1, sum(pieces))
		spread(pieces, func(at, off, n int) { m.want(at, data[off:off+n]) })
		m.check()
		e.sync("moved")
	}
	c := Case{Name: "sgl/scatter/" + o.name + "/" + sh.name, Active: whole, Passive: pieces}
	if o.pulls {
		c.Active, c.Passive = pieces, whole
	}
	return c
}

// emptyActive sends a message of no bytes, without an SGE.
func emptyActive(o op) func(*End) {
	return func(e *End) {
		c := e.connect()
		r := e.peerMem()
		wc := c.do(o.request(1, nil, r))
		if o.pulls && wc.ByteLen != 0 {
			e.fatalf("%v without an SGE says %d bytes", o.wr, wc.ByteLen)
		}
		e.sync("moved")
	}
}

func emptyPassive(o op) func(*End) {
	return func(e *End) {
		c := e.connect()
		m := e.mem(64, ib.LocalWrite|o.access)
		if o.recv {
			c.recv(1, nil)
		}
		m.expose()
		if o.recv {
			o.received(c, 0)
		}
		e.sync("moved")
		m.check()
	}
}

func severalRegions(e *End) {
	c := e.connect()
	a, b := e.mem(100, ib.LocalWrite), e.mem(50, 0)
	data := pattern(1, 150)
	a.put(0, data[:100])
	b.put(0, data[100:])
	r := e.peerMem()
	r.Addr += margin
	c.do(opWrite.request(1, []ib.SGE{a.sge(0, 100), b.sge(0, 50)}, r))
	a.check()
	b.check()
	e.sync("moved")
}

// regionSGE: MR.SGE names a part of the region, and panics outside of it as a slice expression does.
func regionSGE(e *End) {
	m := e.mem(100, 0)
	for _, r := range [][2]int{{0, 100}, {0, 0}, {10, 20}, {99, 1}, {100, 0}} {
		if got := m.mr.SGE(r[0], r[1]); got != m.sge(r[0], r[1]) {
			e.fatalf("SGE(%d, %d) is %+v, want %+v", r[0], r[1], got, m.sge(r[0], r[1]))
		}
	}
	for _, r := range [][2]int{{0, 101}, {-1, 1}, {1, -1}, {100, 1}, {101, 0}, {math.MaxInt, 1}, {1, math.MaxInt}} {
		func() {
			defer func() {
				err, _ := recover().(error)
				e.is(err, fmt.Sprintf("SGE(%d, %d) of 100 bytes", r[0], r[1]), ib.ErrInvalid)
			}()
			m.mr.SGE(r[0], r[1])
		}()
	}
}
