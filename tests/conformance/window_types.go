package conformance

import "github.com/goroce/goroce/ib"

// windowType1Cases: windows of type 1 belong to a PD, are bound by a verb, and may
// be bound again at any time.
func windowType1Cases() []Case {
	rw := ib.RemoteRead | ib.RemoteWrite
	list := []Case{
		{Name: "window/type-1/moves-when-bound-again", Active: windowUse, Passive: func(e *End) {
			c := e.connect()
			m := e.mem(winMem, winAccess)
			w := e.newMW(e.pd(), ib.MWType1)
			first := c.bind(w, ib.MWBind{LKey: m.mr.LKey(), Addr: m.addr(2000), Length: 8, Access: rw})
			key := c.bind(w, piece(m, rw))
			if key == first {
				e.fatalf("the key stays %#x when the window is bound again", uint32(key))
			}
			e.exposeKey(m.addr(winAt), key, winLen)
			windowUsed(e, m)
		}},
		{Name: "window/type-1/old-key-dies-when-bound-again", Active: func(e *End) { windowRefused(e, opWrite) },
			Passive: func(e *End) {
				windowClosed(e, ib.MWType1, func(c *conn, m *region, w ib.MW) ib.Key {
					old := c.bind(w, piece(m, rw))
					c.bind(w, piece(m, rw))
					return old
				})
			}},
		{Name: "window/type-1/length-0-closes", Active: func(e *End) { windowRefused(e, opWrite) },
			Passive: func(e *End) {
				windowClosed(e, ib.MWType1, func(c *conn, m *region, w ib.MW) ib.Key {
					key := c.bind(w, piece(m, rw))
					c.bind(w, ib.MWBind{LKey: m.mr.LKey(), Addr: m.addr(winAt)})
					e.must(m.mr.Close(), "close the MR that is bound no more")
					return key
				})
			}},
		{Name: "window/type-1/any-queue-pair-of-the-pd-may-be-used", Active: func(e *End) {
			e.connect()
			windowUse(e)
		}, Passive: func(e *End) {
			binder := e.connect()
			e.connect()
			m := e.mem(winMem, winAccess)
			key := binder.bind(e.newMW(e.pd(), ib.MWType1), piece(m, rw))
			e.exposeKey(m.addr(winAt), key, winLen)
			windowUsed(e, m)
		}},
		{Name: "window/type-1/not-zero-based", Alone: func(e *End) {
			c := e.lonely()
			c.bindFails(e.newMW(e.pd(), ib.MWType1), piece(e.mem(winMem, winAccess), rw|ib.ZeroBased))
		}},
		{Name: "window/of-no-type", Alone: func(e *End) {
			for _, t := range []ib.MWType{0, 3} {
				w, err := e.pd().AllocMW(t)
				if err == nil {
					w.Close()
				}
				e.names(err, "allocating a window of type 0 or 3", "Type", ib.ErrInvalid, ib.ErrNotSupported)
			}
		}},
	}
	for i := range list {
		list[i].Needs.Passive |= ib.CapMemWindow
		if list[i].Alone != nil {
			list[i].Needs.Active |= ib.CapMemWindow
		}
	}
	return list
}

// windowType2Cases: windows of type 2 are bound by requests, to one queue pair, and
// must be invalidated before they are bound again (IBTA 10.6.7.2).
func windowType2Cases() []Case {
	rw := ib.RemoteRead | ib.RemoteWrite
	list := []Case{
		{Name: "window/type-2/zero-based", Active: windowUse,
			Passive: func(e *End) { windowOpens(e, ib.MWType2, ib.ZeroBased) }},
		{Name: "window/type-2/zero-based-ends-where-it-ends", Active: func(e *End) { windowRefused(e, opWrite) },
			Passive: func(e *End) {
				c := e.connect()
				m := e.mem(winMem, winAccess)
				key := c.bind(e.newMW(e.pd(), ib.MWType2), piece(m, rw|ib.ZeroBased))
				e.exposeKey(0, key, winLen+1)
				e.sync("failed")
				m.check()
			}},
		{Name: "window/type-2/another-queue-pair", Active: func(e *End) {
			e.connect()
			windowRefused(e, opWrite)
		}, Passive: func(e *End) {
			binder := e.connect()
			c := e.connect()
			m := e.mem(winMem, winAccess)
			key := binder.bind(e.newMW(e.pd(), ib.MWType2), piece(m, rw))
			e.exposeKey(m.addr(winAt), key, winLen)
			e.sync("failed")
			c.wantState(ib.StateErr)
			binder.wantState(ib.StateRTS)
			m.check()
		}},
		{Name: "window/type-2/not-bound-twice", Alone: func(e *End) {
			c := e.lonely()
			m := e.mem(winMem, winAccess)
			w := e.newMW(e.pd(), ib.MWType2)
			c.bind(w, piece(m, rw))
			_, err := c.qp.PostSend([]ib.SendWR{{ID: 2, Opcode: ib.WRBindMW, RKey: ib.NextKey(ib.NextKey(w.RKey())),
				Bind: piece(m, rw)}})
			e.must(err, "post bind")
			c.sq.fails(2, ib.WCMWBindErr)
		}},
		{Name: "window/type-2/length-0", Alone: func(e *End) {
			c := e.lonely()
			b := piece(e.mem(winMem, winAccess), rw)
			b.Length = 0
			c.bindFails(e.newMW(e.pd(), ib.MWType2), b)
		}},
		{Name: "window/type-2/not-by-the-verb", Alone: func(e *End) {
			c := e.lonely()
			w := e.newMW(e.pd(), ib.MWType2)
			err := w.Bind(c.qp, 1, ib.SendSignaled, piece(e.mem(winMem, winAccess), rw))
			e.is(err, "binding a window of type 2 by the verb", ib.ErrInvalid)
			c.sq.empty()
		}},
	}
	for i := range list {
		list[i].Needs.Passive |= ib.CapMemWindow2B
		if list[i].Alone != nil {
			list[i].Needs.Active |= ib.CapMemWindow2B
		}
	}
	return list
}
