package conformance

import (
	"fmt"

	"github.com/goroce/goroce/ib"
)

func signalCases() []Case {
	list := []Case{
		{Name: "signal/unsignalled-makes-no-completion", Active: oneOfMany, Passive: scratchPassive},
		{Name: "signal/space-comes-back", Active: spaceComesBack, Passive: scratchPassive},
		{Name: "signal/failure-always-completes", Active: unsignalledFailure, Passive: untouchedPassive},
		{Name: "signal/sig-all-completes-each", Active: sigAll, Passive: scratchPassive},
		{Name: "inline/memory-is-free-at-once", Active: inlineReuse, Passive: inlineReusePassive},
		{Name: "inline/too-long", Alone: inlineTooLong},
	}
	for _, o := range []op{opSend, opWrite, opWriteImm} {
		for _, s := range []struct {
			name string
			of   func(limit int) int
		}{{"0", fixedSize(0)}, {"1", fixedSize(1)}, {"limit", func(l int) int { return l }}} {
			list = append(list, Case{
				Name:    fmt.Sprintf("inline/%s/%s", o.name, s.name),
				Active:  func(e *End) { inlineSend(e, o, s.of(e.inline())) },
				Passive: func(e *End) { c := e.connect(); o.take(c, s.of(e.peer.inline())) },
			})
		}
	}
	return list
}

// inlineLimit is the MaxInline that inline cases request.
const inlineLimit = 128

func (h *hello) inline() int { return min(inlineLimit, h.Attr.MaxInline) }

// inline returns how much the device sends inline.
func (e *End) inline() int { return e.s.me.inline() }

func (e *End) inlineQP() func(*setup) {
	return func(s *setup) { s.init.Cap.MaxInline = e.inline() }
}

func inlineSend(e *End, o op, n int) {
	c := e.connect(e.inlineQP())
	r := e.peerMem()
	r.Addr += margin
	wr := o.request(1, nil, r)
	wr.Flags, wr.Inline = ib.SendInline, pattern(1, n)
	c.do(wr)
	e.sync("moved")
}

// inlineReuse overwrites the payload when PostSend has returned.
func inlineReuse(e *End) {
	c := e.connect(e.inlineQP())
	r := e.peerMem()
	payload := make([]byte, min(32, e.inline()))
	for i := range 8 {
		copy(payload, pattern(uint64(i), len(payload)))
		c.post(ib.SendWR{ID: uint64(i), Opcode: ib.WRWrite, Flags: ib.SendInline, Inline: payload,
			RemoteAddr: r.Addr + uint64(64*i), RKey: r.RKey})
		clear(payload)
	}
	for i := range 8 {
		c.sq.done(uint64(i), ib.WCWrite)
	}
	e.sync("done")
}

func inlineReusePassive(e *End) {
	e.connect()
	m := e.mem(8*64, ib.LocalWrite|ib.RemoteWrite)
	m.expose()
	e.sync("done")
	for i := range 8 {
		m.want(64*i, pattern(uint64(i), min(32, e.peer.inline())))
	}
	m.check()
}

func inlineTooLong(e *End) {
	c := e.lonely(e.inlineQP())
	wr := ib.SendWR{ID: 1, Opcode: ib.WRSend, Flags: ib.SendInline, Inline: make([]byte, e.attr.MaxInline+1)}
	n, err := c.qp.PostSend([]ib.SendWR{wr})
	e.names(err, "posting more inline than the device takes", "Inline", ib.ErrInvalid)
	if n != 0 {
		e.fatalf("%d requests accepted", n)
	}
}

func oneOfMany(e *End) {
	c := e.connect(selective)
	m := e.mem(8, ib.LocalWrite)
	r := e.peerMem()
	for i := range 10 {
		c.post(ib.SendWR{ID: uint64(i), Opcode: ib.WRWrite, SGL: m.all(), RemoteAddr: r.Addr, RKey: r.RKey})
	}
	c.post(ib.SendWR{ID: 10, Opcode: ib.WRWrite, Flags: ib.SendSignaled, SGL: m.all(), RemoteAddr: r.Addr,
		RKey: r.RKey})
	c.sq.done(10, ib.WCWrite)
	c.sq.empty()
	e.sync("done")
}

// scratchPassive exposes memory whose contents do not matter.
func scratchPassive(e *End) {
	e.connect()
	m := e.mem(64, allAccess)
	m.expose()
	e.sync("done")
}

// spaceComesBack posts many times the capacity of the queue, and polls only the one signaled request of each round.
func spaceComesBack(e *End) {
	c := e.connect(selective)
	m := e.mem(8, ib.LocalWrite)
	r := e.peerMem()
	for round := range 10 {
		for i := range depth {
			wr := ib.SendWR{ID: uint64(round*depth + i), Opcode: ib.WRWrite, SGL: m.all(), RemoteAddr: r.Addr,
				RKey: r.RKey}
			if i == depth-1 {
				wr.Flags = ib.SendSignaled
			}
			c.post(wr)
		}
		c.sq.done(uint64(round*depth+depth-1), ib.WCWrite)
	}
	e.sync("done")
}

func unsignalledFailure(e *End) {
	c := e.connect(selective)
	m := e.mem(8, ib.LocalWrite)
	r := e.peerMem()
	c.broken(ib.SendWR{ID: 7, Opcode: ib.WRWrite, SGL: m.all(), RemoteAddr: r.Addr, RKey: badKey(r.RKey)},
		ib.WCRemAccessErr)
	e.sync("done")
}

func sigAll(e *End) {
	c := e.connect()
	m := e.mem(8, ib.LocalWrite)
	r := e.peerMem()
	for i := range 10 {
		c.post(ib.SendWR{ID: uint64(i), Opcode: ib.WRWrite, SGL: m.all(), RemoteAddr: r.Addr, RKey: r.RKey})
	}
	for i := range 10 {
		c.sq.done(uint64(i), ib.WCWrite)
	}
	e.sync("done")
}
