package conformance

import "github.com/goroce/goroce/ib"

// invalidateCases: which keys may be invalidated, by a request of the own queue pair or by the peer's SEND (IBTA
// 10.6.5.2, 10.6.7.2).
func invalidateCases() []Case {
	windows := append(localInvalidations(), sendInvalidations()...)
	for i := range windows {
		c := &windows[i]
		c.Needs = both(ib.CapMemWindow2B | ib.CapLocalInv)
		if c.Alone == nil {
			c.Needs.Active = ib.CapLocalInv
		}
	}
	regions := regionInvalidations()
	for i := range regions {
		regions[i].Needs = both(ib.CapLocalInv)
	}
	return append(windows, regions...)
}

// localInvalidations are cases of LOCAL INVALIDATE of windows.
func localInvalidations() []Case {
	rw := ib.RemoteRead | ib.RemoteWrite
	return []Case{
		{Name: "invalidate/local/window", Active: func(e *End) { windowRefused(e, opWrite) }, Passive: func(e *End) {
			windowClosed(e, ib.MWType2, func(c *conn, m *region, w ib.MW) ib.Key {
				key := c.bind(w, piece(m, rw))
				c.do(ib.SendWR{ID: 1, Opcode: ib.WRLocalInv, InvalidateKey: key})
				e.must(m.mr.Close(), "close the MR that is bound no more")
				return key
			})
		}},
		{Name: "invalidate/local/window-is-free-again", Active: windowUse, Passive: func(e *End) {
			c := e.connect()
			m := e.mem(winMem, winAccess)
			w := e.newMW(e.pd(), ib.MWType2)
			first := c.bind(w, ib.MWBind{LKey: m.mr.LKey(), Addr: m.addr(0), Length: 8, Access: rw})
			c.do(ib.SendWR{ID: 1, Opcode: ib.WRLocalInv, InvalidateKey: first})
			b := piece(m, rw)
			key := ib.NextKey(first)
			c.do(ib.SendWR{ID: 2, Opcode: ib.WRBindMW, RKey: key, Bind: b})
			e.exposeKey(m.addr(winAt), key, winLen)
			windowUsed(e, m)
		}},
		{Name: "invalidate/local/window-of-another-queue-pair", Alone: func(e *End) {
			binder, c := e.lonely(), e.lonely()
			m := e.mem(winMem, winAccess)
			key := binder.bind(e.newMW(e.pd(), ib.MWType2), piece(m, rw))
			c.broken(ib.SendWR{ID: 1, Opcode: ib.WRLocalInv, InvalidateKey: key}, ib.WCMWBindErr)
			binder.wantState(ib.StateRTS)
			e.busy("MR", m.mr.Close, "window")
		}},
		{Name: "invalidate/local/window-that-is-free", Alone: func(e *End) {
			c := e.lonely()
			w := e.newMW(e.pd(), ib.MWType2)
			c.broken(ib.SendWR{ID: 1, Opcode: ib.WRLocalInv, InvalidateKey: w.RKey()}, ib.WCMWBindErr)
		}},
	}
}

// sendInvalidations are cases of SEND with invalidate of windows.
func sendInvalidations() []Case {
	rw := ib.RemoteRead | ib.RemoteWrite
	return []Case{
		{Name: "invalidate/by-send/window", Active: invalidatingSend(0),
			Passive: func(e *End) { invalidatedWindow(e, 0) }},
		{Name: "invalidate/by-send/of-several-packets", Active: invalidatingSend(5000),
			Passive: func(e *End) { invalidatedWindow(e, 5000) }},
		{Name: "invalidate/by-send/window-is-free-again", Active: func(e *End) {
			c := e.connect()
			r := e.peerMem()
			c.do(ib.SendWR{ID: 1, Opcode: ib.WRSendInv, InvalidateKey: r.RKey})
			out := e.mem(8, 0)
			c.do(opWrite.request(2, out.all(), e.peerMem()))
			e.sync("used")
		}, Passive: func(e *End) {
			c := e.connect()
			m := e.mem(winMem, winAccess)
			w := e.newMW(e.pd(), ib.MWType2)
			key := c.bind(w, piece(m, rw))
			c.recv(1, nil)
			e.exposeKey(m.addr(winAt), key, 8)
			c.rq.received(1, 0)
			key = ib.NextKey(key)
			c.do(ib.SendWR{ID: 2, Opcode: ib.WRBindMW, RKey: key, Bind: piece(m, rw)})
			e.exposeKey(m.addr(winAt), key, 8)
			e.sync("used")
		}},
		{Name: "invalidate/by-send/window-of-another-queue-pair", Active: func(e *End) {
			e.connect()
			badInvalidate(e)
		}, Passive: func(e *End) {
			binder, c := e.connect(), e.connect()
			m := e.mem(winMem, winAccess)
			key := binder.bind(e.newMW(e.pd(), ib.MWType2), piece(m, rw))
			badInvalidated(e, c, key)
			binder.wantState(ib.StateRTS)
			e.busy("MR", m.mr.Close, "window")
		}},
		{Name: "invalidate/by-send/not-before-there-is-a-receive", Active: func(e *End) {
			c := e.connect()
			r := e.peerMem()
			c.post(ib.SendWR{ID: 1, Opcode: ib.WRSendInv, InvalidateKey: r.RKey})
			e.tell("posted", true)
			c.sq.done(1, ib.WCSend)
		}, Passive: func(e *End) {
			c := e.connect()
			m := e.mem(winMem, winAccess)
			key := c.bind(e.newMW(e.pd(), ib.MWType2), piece(m, rw))
			e.exposeKey(m.addr(winAt), key, winLen)
			hear[bool](e, "posted")
			e.busy("MR", m.mr.Close, "window")
			c.recv(1, nil)
			c.rq.received(1, 0)
			e.must(m.mr.Close(), "close the MR that is bound no more")
		}},
	}
}

// regionInvalidations are cases with regions, and with invalid keys.
func regionInvalidations() []Case {
	return []Case{
		{Name: "invalidate/local/unknown-key", Alone: func(e *End) {
			c := e.lonely()
			m := e.mem(8, ib.LocalWrite)
			c.broken(ib.SendWR{ID: 1, Opcode: ib.WRLocalInv, InvalidateKey: badKey(m.mr.LKey())}, ib.WCMWBindErr)
		}},
		{Name: "invalidate/local/region-without-the-right", Alone: func(e *End) {
			c := e.lonely()
			m := e.mem(8, ib.LocalWrite)
			c.broken(ib.SendWR{ID: 1, Opcode: ib.WRLocalInv, InvalidateKey: m.mr.LKey()}, ib.WCMWBindErr)
		}},
		{Name: "invalidate/local/region", Active: func(e *End) { windowRefused(e, opWrite) }, Passive: func(e *End) {
			c := e.connect()
			m := e.mem(64, allAccess|ib.RemoteInvalidate)
			c.do(ib.SendWR{ID: 1, Opcode: ib.WRLocalInv, InvalidateKey: m.mr.LKey()})
			m.expose()
			e.sync("failed")
			m.check()
		}},
		{Name: "invalidate/by-send/region", Active: invalidatingSend(0), Passive: func(e *End) {
			c := e.connect()
			m := e.mem(64, allAccess|ib.RemoteInvalidate)
			invalidated(e, c, m.remote(), 0)
			m.check()
		}},
		{Name: "invalidate/by-send/region-without-the-right", Active: badInvalidate, Passive: func(e *End) {
			c := e.connect()
			m := e.mem(64, allAccess)
			badInvalidated(e, c, m.mr.RKey())
			m.check()
		}},
		{Name: "invalidate/by-send/unknown-key", Active: badInvalidate, Passive: func(e *End) {
			c := e.connect()
			m := e.mem(64, allAccess)
			badInvalidated(e, c, badKey(m.mr.RKey()))
		}},
	}
}

// invalidatingSend invalidates the key that the other half exposes by a message of n bytes, and checks that the key is
// invalid.
func invalidatingSend(n int) func(*End) {
	return func(e *End) {
		c := e.connect()
		m := e.mem(n+8, ib.LocalWrite)
		m.put(0, pattern(4, n))
		r := e.peerMem()
		c.do(opWrite.request(1, m.sgl(n, 0), r))
		c.do(ib.SendWR{ID: 2, Opcode: ib.WRSendInv, SGL: m.sgl(0, n), InvalidateKey: r.RKey})
		c.broken(opRead.request(3, m.sgl(n, 8), r), ib.WCRemAccessErr)
		e.sync("failed")
	}
}

func invalidatedWindow(e *End, n int) {
	c := e.connect()
	m := e.mem(winMem, winAccess)
	key := c.bind(e.newMW(e.pd(), ib.MWType2), piece(m, ib.RemoteRead|ib.RemoteWrite))
	invalidated(e, c, remote{m.addr(winAt), key, 8}, n)
	m.check()
	e.must(m.mr.Close(), "close the MR that is bound no more")
}

// invalidated exposes a key, and receives the message that invalidates it.
func invalidated(e *End, c *conn, r remote, n int) {
	in := e.mem(n+8, ib.LocalWrite)
	c.recv(1, in.sgl(0, n))
	e.tell("memory", r)
	wc := c.rq.received(1, n)
	if wc.Flags&ib.WCWithInv == 0 || wc.InvalidatedKey != r.RKey {
		e.fatalf("the receive says key %#x, flags %#x, want %#x", uint32(wc.InvalidatedKey), wc.Flags, uint32(r.RKey))
	}
	in.want(0, pattern(4, n))
	in.check()
	e.sync("failed")
	c.wantState(ib.StateErr)
}

// badInvalidate sends an invalidation that is not allowed. The receiver may answer or not (IBTA 9.9.3: class J faults
// are not answered).
func badInvalidate(e *End) {
	c := e.connect(impatient)
	r := e.peerMem()
	c.post(ib.SendWR{ID: 1, Opcode: ib.WRSendInv, InvalidateKey: r.RKey})
	c.sq.failsAny(1, ib.WCRemAccessErr, ib.WCRemInvReqErr, ib.WCRemOpErr, ib.WCRetryExcErr)
	e.sync("failed")
}

// badInvalidated: the receive fails, and the queue pair ends.
func badInvalidated(e *End, c *conn, key ib.Key) {
	c.recv(1, nil)
	e.exposeKey(0, key, 0)
	if wc := c.rq.next(); wc.ID != 1 || wc.Status == ib.WCSuccess {
		e.fatalf("receive %d: %v, want receive 1 to fail", wc.ID, wc.Status)
	}
	c.wantState(ib.StateErr)
	e.sync("failed")
}
