package conformance

import (
	"fmt"

	"github.com/goroce/goroce/ib"
)

// The part of a region of winMem bytes that windows open.
const (
	winMem = 4096
	winAt  = 104
	winLen = 1000
)

// winAccess are the rights of a region that peers reach only by windows.
const winAccess = ib.LocalWrite | ib.BindWindows

// piece is the part of a region that the suite's windows open.
func piece(m *region, access ib.Access) ib.MWBind {
	return ib.MWBind{LKey: m.mr.LKey(), Addr: m.addr(winAt), Length: winLen, Access: access}
}

// needWindow returns the capability for windows of a type.
func needWindow(t ib.MWType) ib.DeviceCaps {
	if t == ib.MWType1 {
		return ib.CapMemWindow
	}
	return ib.CapMemWindow2B
}

// postBind posts the bind of a window, in the way of its type, and returns the new key.
func (c *conn) postBind(w ib.MW, id uint64, b ib.MWBind) (ib.Key, error) {
	if w.Type() == ib.MWType1 {
		err := w.Bind(c.qp, id, ib.SendSignaled, b)
		return w.RKey(), err
	}
	key := ib.NextKey(w.RKey())
	_, err := c.qp.PostSend([]ib.SendWR{{ID: id, Opcode: ib.WRBindMW, Flags: ib.SendSignaled, RKey: key, Bind: b}})
	return key, err
}

// bind binds a window and waits for it.
func (c *conn) bind(w ib.MW, b ib.MWBind) ib.Key {
	key, err := c.postBind(w, 77, b)
	c.e.must(err, "bind window of %v", w.Type())
	c.sq.done(77, ib.WCBindMW)
	return key
}

// bindFails posts a bind that must fail, by PostSend or by its completion.
func (c *conn) bindFails(w ib.MW, b ib.MWBind) {
	if _, err := c.postBind(w, 77, b); err != nil {
		c.e.is(err, "binding a window wrongly", ib.ErrInvalid, ib.ErrForeign, ib.ErrClosed)
		return
	}
	c.sq.fails(77, ib.WCMWBindErr)
	c.wantState(ib.StateErr)
}

// exposeKey tells the other half about bytes that a window opens.
func (e *End) exposeKey(addr uint64, key ib.Key, n int) { e.tell("memory", remote{addr, key, n}) }

func windowCases() []Case {
	var list []Case
	for _, t := range []ib.MWType{ib.MWType1, ib.MWType2} {
		for _, c := range typedWindowCases(t) {
			c.Name = fmt.Sprintf("window/type-%d/%s", t, c.Name)
			c.Needs.Passive |= needWindow(t)
			if c.Alone != nil {
				c.Needs.Active |= needWindow(t)
			}
			list = append(list, c)
		}
	}
	return append(list, windowType1Cases()...)
}

// typedWindowCases are the rules for both types.
func typedWindowCases(t ib.MWType) []Case {
	rw := ib.RemoteRead | ib.RemoteWrite
	// opens exposes a window; the other half may also try other bytes of the region.
	opens := func(access ib.Access, at, n int) func(*End) {
		return func(e *End) {
			c := e.connect()
			m := e.mem(winMem, winAccess)
			key := c.bind(e.newMW(e.pd(), t), piece(m, access))
			e.exposeKey(m.addr(at), key, n)
			e.sync("failed")
			c.wantState(ib.StateErr)
			m.check()
		}
	}
	refused := func(o op) func(*End) { return func(e *End) { windowRefused(e, o) } }
	list := []Case{
		{Name: "opens-its-piece", Active: windowUse, Passive: func(e *End) { windowOpens(e, t, 0) }},
		{Name: "one-byte-over", Active: refused(opWrite), Passive: opens(rw, winAt, winLen+1)},
		{Name: "one-byte-before", Active: refused(opRead), Passive: opens(rw, winAt-1, winLen)},
		{Name: "grants/no-write", Active: refused(opWrite), Passive: opens(ib.RemoteRead, winAt, winLen)},
		{Name: "grants/no-read", Active: refused(opRead), Passive: opens(ib.RemoteWrite, winAt, winLen)},
		{Name: "grants/no-atomic", Active: refused(opFAA), Passive: opens(rw, winAt, 8)},
		{Name: "grants/atomic", Active: windowAtomic, Passive: func(e *End) { windowAtomicPassive(e, t) }},
		{Name: "region-stays-closed", Active: refused(opWrite), Passive: func(e *End) {
			windowClosed(e, t, func(c *conn, m *region, w ib.MW) ib.Key { c.bind(w, piece(m, rw)); return m.mr.RKey() })
		}},
		{Name: "not-bound", Active: refused(opWrite), Passive: func(e *End) {
			windowClosed(e, t, func(_ *conn, _ *region, w ib.MW) ib.Key { return w.RKey() })
		}},
		{Name: "closed", Active: refused(opRead), Passive: func(e *End) {
			windowClosed(e, t, func(c *conn, m *region, w ib.MW) ib.Key {
				key := c.bind(w, piece(m, rw))
				e.must(w.Close(), "close MW")
				return key
			})
		}},
		{Name: "bound-before-what-follows", Active: windowUseWhenTold, Passive: func(e *End) { windowThenSend(e, t) }},
		{Name: "unsignalled", Active: windowUseWhenTold, Passive: func(e *End) { windowUnsignalled(e, t) }},
		{Name: "region-is-busy", Alone: func(e *End) { windowBusy(e, t) }},
		{Name: "queue-pair-may-go-first", Alone: func(e *End) {
			c := e.lonely()
			m := e.mem(winMem, winAccess)
			w := e.newMW(e.pd(), t)
			c.bind(w, piece(m, rw))
			e.must(c.qp.Close(), "close the QP that a window was bound by")
			e.must(w.Close(), "close MW")
			e.must(m.mr.Close(), "close MR")
		}},
		{Name: "bind-is-flushed-in-error", Alone: func(e *End) {
			c := e.lonely()
			m := e.mem(winMem, winAccess)
			w := e.newMW(e.pd(), t)
			c.err()
			_, err := c.postBind(w, 1, piece(m, rw))
			e.must(err, "post a bind in ERR")
			c.sq.fails(1, ib.WCWRFlushErr)
			e.must(m.mr.Close(), "close MR")
		}},
	}
	return append(list, windowMistakes(t)...)
}

// windowMistakes are binds that fail and end the queue pair.
func windowMistakes(t ib.MWType) []Case {
	var list []Case
	for _, b := range []struct {
		name   string
		region ib.Access
		change func(e *End, b *ib.MWBind, m *region)
	}{
		{"region-lacks-bind-windows", ib.LocalWrite | ib.RemoteRead | ib.RemoteWrite,
			func(*End, *ib.MWBind, *region) {}},
		{"write-needs-local-write", ib.BindWindows, func(*End, *ib.MWBind, *region) {}},
		{"atomic-needs-local-write", ib.BindWindows, func(_ *End, b *ib.MWBind,
			_ *region) {
			b.Access = ib.RemoteAtomic
		}},
		{"one-byte-over", winAccess, func(_ *End, b *ib.MWBind, _ *region) { b.Length = winMem - winAt + 1 }},
		{"one-byte-before", winAccess, func(_ *End, b *ib.MWBind, m *region) { b.Addr = m.addr(0) - 1 }},
		{"address-wraps", winAccess, func(_ *End, b *ib.MWBind, _ *region) { b.Addr = 1<<64 - 8 }},
		{"unknown-region", winAccess, func(_ *End, b *ib.MWBind, _ *region) { b.LKey = badKey(b.LKey) }},
		{"stale-region", winAccess, func(e *End, b *ib.MWBind, _ *region) {
			old := e.mem(winMem, winAccess)
			*b = piece(old, ib.RemoteRead)
			e.must(old.mr.Close(), "close MR")
		}},
		{"region-of-another-pd", winAccess, func(e *End, b *ib.MWBind, _ *region) {
			*b = piece(e.memIn(e.newPD(), winMem, winAccess), ib.RemoteRead)
		}},
	} {
		list = append(list, Case{Name: "bind/" + b.name, Alone: func(e *End) {
			c := e.lonely()
			m := e.mem(winMem, b.region)
			bind := piece(m, ib.RemoteWrite)
			b.change(e, &bind, m)
			c.bindFails(e.newMW(e.pd(), t), bind)
			e.must(m.mr.Close(), "close the MR that was not bound")
		}})
	}
	return append(list,
		Case{Name: "bind/region-with-bind-windows-alone-can-be-read", Alone: func(e *End) {
			c := e.lonely()
			m := e.mem(winMem, ib.BindWindows)
			c.bind(e.newMW(e.pd(), t), piece(m, ib.RemoteRead))
		}},
		Case{Name: "bind/window-of-another-pd", Alone: func(e *End) {
			c := e.lonely()
			c.bindFails(e.newMW(e.newPD(), t), piece(e.mem(winMem, winAccess), ib.RemoteRead))
		}},
		Case{Name: "bind/closed-window", Alone: func(e *End) {
			c := e.lonely()
			w := e.newMW(e.pd(), t)
			e.must(w.Close(), "close MW")
			c.bindFails(w, piece(e.mem(winMem, winAccess), ib.RemoteRead))
		}})
}

// windowUse writes through a window and reads the data back.
func windowUse(e *End) { useWindow(e.connect(), false) }

// windowUseWhenTold is windowUse after a message has said that the window exists.
func windowUseWhenTold(e *End) { useWindow(e.connect(), true) }

func useWindow(c *conn, whenTold bool) {
	e := c.e
	out, in := e.mem(winLen, 0), e.mem(winLen, ib.LocalWrite)
	out.put(0, pattern(5, winLen))
	if whenTold {
		c.recv(1, nil)
		c.rq.received(1, 0)
	}
	r := e.peerMem()
	c.post(opWrite.request(1, out.all(), r), opRead.request(2, in.all(), r))
	c.sq.done(1, ib.WCWrite)
	c.sq.done(2, ib.WCRead)
	in.want(0, out.buf)
	in.check()
	e.sync("used")
}

// windowOpens binds a window and lets the other half use all of it. zero is ib.ZeroBased or 0.
func windowOpens(e *End, t ib.MWType, zero ib.Access) {
	c := e.connect()
	m := e.mem(winMem, winAccess)
	key := c.bind(e.newMW(e.pd(), t), piece(m, ib.RemoteRead|ib.RemoteWrite|zero))
	addr := m.addr(winAt)
	if zero != 0 {
		addr = 0
	}
	e.exposeKey(addr, key, winLen)
	windowUsed(e, m)
}

// windowUsed waits until the other half has written everything that a window opens.
func windowUsed(e *End, m *region) {
	e.sync("used")
	m.want(winAt, pattern(5, winLen))
	m.check()
}

// windowRefused tries an access that the exposed window does not allow.
func windowRefused(e *End, o op) {
	c := e.connect()
	r := e.peerMem()
	m := e.mem(r.Len, ib.LocalWrite)
	c.broken(o.request(1, m.all(), r), ib.WCRemAccessErr)
	m.check()
	e.sync("failed")
}

// windowClosed exposes a key that opens nothing.
func windowClosed(e *End, t ib.MWType, key func(*conn, *region, ib.MW) ib.Key) {
	c := e.connect()
	m := e.mem(winMem, winAccess)
	e.exposeKey(m.addr(winAt), key(c, m, e.newMW(e.pd(), t)), winLen)
	e.sync("failed")
	c.wantState(ib.StateErr)
	m.check()
}

func windowAtomic(e *End) {
	c := e.connect()
	m := e.mem(8, ib.LocalWrite)
	c.do(opFAA.request(1, m.all(), e.peerMem()))
	m.want(0, word(41))
	m.check()
	e.sync("used")
}

func windowAtomicPassive(e *End, t ib.MWType) {
	c := e.connect()
	m := e.mem(winMem, winAccess)
	m.putWord(winAt, 41)
	key := c.bind(e.newMW(e.pd(), t), piece(m, ib.RemoteAtomic))
	e.exposeKey(m.addr(winAt), key, 8)
	e.sync("used")
	m.want(winAt, word(42))
	m.check()
}

// windowThenSend posts a SEND after the bind: who receives it can use the window (IBTA 10.8.3.3).
func windowThenSend(e *End, t ib.MWType) {
	c := e.connect()
	m := e.mem(winMem, winAccess)
	key, err := c.postBind(e.newMW(e.pd(), t), 1, piece(m, ib.RemoteRead|ib.RemoteWrite))
	e.must(err, "post bind")
	c.post(ib.SendWR{ID: 2, Opcode: ib.WRSend})
	e.exposeKey(m.addr(winAt), key, winLen)
	c.sq.done(1, ib.WCBindMW)
	c.sq.done(2, ib.WCSend)
	windowUsed(e, m)
}

func windowUnsignalled(e *End, t ib.MWType) {
	c := e.connect(selective)
	m := e.mem(winMem, winAccess)
	w := e.newMW(e.pd(), t)
	b := piece(m, ib.RemoteRead|ib.RemoteWrite)
	key := ib.NextKey(w.RKey())
	if t == ib.MWType1 {
		e.must(w.Bind(c.qp, 1, 0, b), "bind")
		key = w.RKey()
	} else {
		c.post(ib.SendWR{ID: 1, Opcode: ib.WRBindMW, RKey: key, Bind: b})
	}
	c.post(ib.SendWR{ID: 2, Opcode: ib.WRSend, Flags: ib.SendSignaled})
	c.sq.done(2, ib.WCSend)
	e.exposeKey(m.addr(winAt), key, winLen)
	windowUsed(e, m)
}

func windowBusy(e *End, t ib.MWType) {
	c := e.lonely()
	m := e.mem(winMem, winAccess)
	w := e.newMW(e.pd(), t)
	c.bind(w, piece(m, ib.RemoteRead))
	e.busy("MR", m.mr.Close, "window")
	e.must(w.Close(), "close MW")
	e.must(m.mr.Close(), "close MR when no window is bound to it")
}
