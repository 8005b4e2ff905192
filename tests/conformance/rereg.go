package conformance

import "github.com/goroce/goroce/ib"

func reregCases() []Case {
	memory := []Case{
		{Name: "rereg/memory/new-is-open", Active: reregUse, Passive: func(e *End) { reregMemory(e, true) }},
		{Name: "rereg/memory/old-address-is-closed", Active: reregRefused,
			Passive: func(e *End) { reregMemory(e, false) }},
	}
	for i := range memory {
		memory[i].Needs.Passive = ib.CapRereg
	}
	return append(append(reregRights(), reregPDs()...), memory...)
}

func reregRights() []Case {
	return []Case{
		{Name: "rereg/rights/taken", Active: reregRefused, Passive: reregPassive(func(e *End, m *region) remote {
			m.rereg(ib.ReregAccess, nil, ib.MRInit{Access: ib.LocalWrite | ib.RemoteRead})
			return m.remote()
		})},
		{Name: "rereg/rights/given", Active: reregUse, Passive: reregPassive(func(e *End, _ *region) remote {
			closed := e.mem(64, ib.LocalWrite)
			closed.rereg(ib.ReregAccess, nil, ib.MRInit{Access: allAccess})
			return closed.remote()
		})},
		{Name: "rereg/old-key-dies", Active: reregRefused, Passive: reregPassive(func(e *End, m *region) remote {
			old := m.remote()
			m.rereg(ib.ReregAccess, nil, ib.MRInit{Access: allAccess})
			if m.mr.RKey() == old.RKey || m.mr.LKey() == old.RKey {
				e.fatalf("the key is still %#x", uint32(old.RKey))
			}
			return old
		})},
		{Name: "rereg/refused-changes-nothing", Active: reregUse, Passive: reregPassive(func(e *End, m *region) remote {
			err := m.mr.Rereg(ib.ReregAccess, nil, ib.MRInit{Access: ib.RemoteWrite})
			e.names(err, "reregistering memory that peers may write and we may not", "Access", ib.ErrInvalid)
			return m.remote()
		})},
		{Name: "rereg/of-nothing", Alone: func(e *End) {
			m := e.mem(64, allAccess)
			e.names(m.mr.Rereg(0, nil, ib.MRInit{}), "reregistering with an empty mask", "mask", ib.ErrInvalid)
			e.names(m.mr.Rereg(0x80, nil, ib.MRInit{}), "reregistering with an unknown bit", "mask", ib.ErrInvalid)
		}},
		{Name: "rereg/closed", Alone: func(e *End) {
			m := e.mem(64, allAccess)
			e.must(m.mr.Close(), "close MR")
			e.is(m.mr.Rereg(ib.ReregAccess, nil, ib.MRInit{Access: allAccess}), "reregistering a closed MR",
				ib.ErrClosed)
		}},
		{Name: "rereg/bound-to-windows", Needs: both(ib.CapMemWindow), Alone: func(e *End) {
			c := e.lonely()
			m := e.mem(winMem, winAccess)
			w := e.newMW(e.pd(), ib.MWType1)
			c.bind(w, piece(m, ib.RemoteRead))
			e.is(m.mr.Rereg(ib.ReregAccess, nil, ib.MRInit{Access: allAccess}), "reregistering an MR with windows",
				ib.ErrBusy)
			e.must(w.Close(), "close MW")
			m.rereg(ib.ReregAccess, nil, ib.MRInit{Access: allAccess})
		}},
	}
}

func reregPDs() []Case {
	return []Case{
		{Name: "rereg/pd/out", Active: reregRefused, Passive: reregPassive(func(e *End, _ *region) remote {
			pd := e.newPD()
			m := e.mem(64, allAccess)
			m.rereg(ib.ReregPD, pd, ib.MRInit{})
			return m.remote()
		})},
		{Name: "rereg/pd/in", Active: reregUse, Passive: reregPassive(func(e *End, _ *region) remote {
			m := e.memIn(e.newPD(), 64, allAccess)
			m.rereg(ib.ReregPD, e.pd(), ib.MRInit{})
			return m.remote()
		})},
		{Name: "rereg/pd/moves-its-hold", Alone: func(e *End) {
			from, to := e.newPD(), e.newPD()
			m := e.memIn(from, 64, allAccess)
			m.rereg(ib.ReregPD, to, ib.MRInit{})
			e.must(from.Close(), "close the PD that the MR left")
			e.busy("PD", to.Close, "region|MR")
		}},
	}
}

// rereg changes a region that is not in use.
func (m *region) rereg(mask ib.ReregMask, pd ib.PD, init ib.MRInit) {
	m.e.must(m.mr.Rereg(mask, pd, init), "reregister with mask %#x", uint8(mask))
}

func reregUse(e *End) {
	c := e.connect()
	m := e.mem(8, ib.LocalWrite)
	m.put(0, pattern(8, 8))
	c.do(opWrite.request(1, m.all(), e.peerMem()))
	e.sync("used")
}

func reregRefused(e *End) {
	c := e.connect()
	m := e.mem(8, ib.LocalWrite)
	c.broken(opWrite.request(1, m.all(), e.peerMem()), ib.WCRemAccessErr)
	e.sync("used")
}

// reregPassive changes a region with all rights, or another one, and exposes what change returns.
func reregPassive(change func(e *End, m *region) remote) func(*End) {
	return func(e *End) {
		e.connect()
		m := e.mem(64, allAccess)
		e.tell("memory", change(e, m))
		e.sync("used")
	}
}

// reregMemory replaces the memory of a region.
func reregMemory(e *End, fresh bool) {
	e.connect()
	m, other := e.mem(64, allAccess), e.rawMem(128)
	old := m.remote()
	m.rereg(ib.ReregTranslation, nil, ib.MRInit{Buf: other.buf})
	if m.mr.Len() != 128 {
		e.fatalf("the region has %d bytes, want 128", m.mr.Len())
	}
	r := m.remote()
	if !fresh {
		r.Addr = old.Addr
	}
	e.tell("memory", r)
	e.sync("used")
	if fresh {
		other.want(0, pattern(8, 8))
	}
	other.check()
	m.check()
}
