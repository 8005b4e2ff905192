package conformance

import (
	"fmt"
	"slices"
	"time"
	"unsafe"

	"github.com/goroce/goroce/ib"
)

// limitCases: a request beyond a limit of the device is refused with the attribute's name, and everything within the
// limits works.
func limitCases() []Case {
	return slices.Concat(deviceCases(), creationCases(), capacityCases(), ahCases(), []Case{
		{Name: "mr/same-memory-twice", Active: sameMemory, Passive: sameMemoryPassive},
		{Name: "mr/address-of-ones-own", Active: ownAddress, Passive: ownAddressPassive},
		{Name: "mr/many", Alone: manyRegions},
	})
}

func deviceCases() []Case {
	return []Case{
		{Name: "device/attributes-make-sense", Alone: deviceAttrs},
		{Name: "device/port", Alone: func(e *End) {
			for _, port := range []int{0, -1, e.attr.Ports + 1} {
				_, err := e.dev.QueryPort(port)
				e.names(err, fmt.Sprintf("querying port %d", port), "port", ib.ErrInvalid)
				_, err = e.dev.GIDs(port)
				e.names(err, fmt.Sprintf("the GIDs of port %d", port), "port", ib.ErrInvalid)
				_, err = e.dev.PKey(port, 0)
				e.names(err, fmt.Sprintf("the P_Keys of port %d", port), "port", ib.ErrInvalid)
			}
		}},
		{Name: "device/partition-key", Alone: func(e *End) {
			key, err := e.dev.PKey(1, 0)
			e.must(err, "query P_Key")
			if key != ib.DefaultPKey {
				e.fatalf("the first P_Key is %#x", key)
			}
			_, err = e.dev.PKey(1, 1<<16)
			e.names(err, "querying P_Key 65536", "index", ib.ErrInvalid)
		}},
		{Name: "device/clock-runs", Needs: both(ib.CapTimestamp), Alone: func(e *End) {
			a, err := e.dev.Clock()
			e.must(err, "read the clock")
			e.linger(2 * time.Millisecond)
			b, err := e.dev.Clock()
			e.must(err, "read the clock")
			if b <= a {
				e.fatalf("the clock says %d, then %d", a, b)
			}
		}},
	}
}

// creationCases create objects that no device supports.
func creationCases() []Case {
	return []Case{
		{Name: "limits/queue-pair-at-its-most", Alone: func(e *End) {
			e.newConn(func(s *setup) { s.init.Cap.MaxSendSGE, s.init.Cap.MaxRecvSGE = e.attr.MaxSGE, e.attr.MaxSGE })
			e.newConn(func(s *setup) { s.init.Cap.MaxInline = e.attr.MaxInline })
			e.newConn(func(s *setup) { s.init.Cap.MaxSendWR, s.init.Cap.MaxSendSGE = min(e.attr.MaxQPWR, 4096), 1 })
		}},
		{Name: "limits/cq", Alone: func(e *End) {
			for _, n := range []int{0, -1, e.attr.MaxCQE + 1} {
				cq, err := e.dev.CreateCQ(ib.CQInit{Entries: n})
				if err == nil {
					cq.Close()
				}
				e.names(err, fmt.Sprintf("creating a CQ of %d entries", n), "Entries", ib.ErrInvalid, ib.ErrLimit)
			}
			cq := e.newCQ(ib.CQInit{Entries: 4})
			e.names(cq.Resize(e.attr.MaxCQE+1), "resizing a CQ beyond the device's limit", "Entries", ib.ErrInvalid,
				ib.ErrLimit)
		}},
		{Name: "limits/access-of-a-region", Alone: func(e *End) {
			mr, err := e.pd().RegMR(ib.MRInit{Buf: e.bytes(64), Access: 1 << 19})
			if err == nil {
				mr.Close()
			}
			e.names(err, "registering with an unknown right", "Access", ib.ErrInvalid)
		}},
		{Name: "limits/type-of-a-queue-pair", Alone: func(e *End) {
			cq := e.newQueue(1).cq
			for _, t := range []ib.QPType{0, 7, 200} {
				qp, err := e.pd().CreateQP(ib.QPInit{Type: t, SendCQ: cq, RecvCQ: cq})
				if err == nil {
					qp.Close()
				}
				e.names(err, fmt.Sprintf("creating a %v QP", t), "Type", ib.ErrInvalid, ib.ErrNotSupported)
			}
		}},
	}
}

// capacityCases create queue pairs that are too large.
func capacityCases() []Case {
	var list []Case
	for _, l := range []struct {
		attr string
		set  func(e *End, c *ib.QPCap)
	}{
		{"MaxSendWR", func(e *End, c *ib.QPCap) { c.MaxSendWR = e.attr.MaxQPWR + 1 }},
		{"MaxRecvWR", func(e *End, c *ib.QPCap) { c.MaxRecvWR = e.attr.MaxQPWR + 1 }},
		{"MaxSendSGE", func(e *End, c *ib.QPCap) { c.MaxSendSGE = e.attr.MaxSGE + 1 }},
		{"MaxRecvSGE", func(e *End, c *ib.QPCap) { c.MaxRecvSGE = e.attr.MaxSGE + 1 }},
		{"MaxInline", func(e *End, c *ib.QPCap) { c.MaxInline = e.attr.MaxInline + 1 }},
		{"MaxSendWR", func(_ *End, c *ib.QPCap) { c.MaxSendWR = -1 }},
	} {
		name := "limits/queue-pair/" + l.attr
		list = append(list, Case{Name: name, Alone: func(e *End) {
			cq := e.newQueue(1).cq
			init := ib.QPInit{Type: ib.RC, SendCQ: cq, RecvCQ: cq}
			l.set(e, &init.Cap)
			qp, err := e.pd().CreateQP(init)
			if err == nil {
				qp.Close()
			}
			e.names(err, fmt.Sprintf("creating a QP of %+v", init.Cap), l.attr, ib.ErrInvalid, ib.ErrLimit)
		}})
	}
	list[len(list)-1].Name = "limits/queue-pair/negative"
	return list
}

func ahCases() []Case {
	return []Case{
		{Name: "ah/query-and-modify", Alone: ahAttrs},
		{Name: "ah/bad-attributes", Alone: func(e *End) {
			for _, b := range []struct {
				what   string
				change func(*ib.AHAttr)
			}{
				{"no destination", func(a *ib.AHAttr) { a.DGID = ib.GID{} }},
				{"SGID index", func(a *ib.AHAttr) { a.SGIDIndex = e.port.GIDTableLen }},
				{"negative SGID index", func(a *ib.AHAttr) { a.SGIDIndex = -1 }},
				{"port", func(a *ib.AHAttr) { a.Port = e.attr.Ports + 1 }},
			} {
				a := e.toPeer()
				b.change(&a)
				ah, err := e.pd().CreateAH(a)
				if err == nil {
					ah.Close()
				}
				e.names(err, "creating an AH with bad "+b.what, "AH", ib.ErrInvalid)
			}
		}},
	}
}

func deviceAttrs(e *End) {
	a, p := e.attr, e.port
	for name, n := range map[string]int{
		"Ports": a.Ports, "MaxQP": a.MaxQP, "MaxQPWR": a.MaxQPWR, "MaxSGE": a.MaxSGE, "MaxCQ": a.MaxCQ,
		"MaxCQE": a.MaxCQE,
		"MaxMR":  a.MaxMR, "MaxPD": a.MaxPD, "MaxAH": a.MaxAH, "MaxSRQ": a.MaxSRQ, "MaxSRQWR": a.MaxSRQWR,
		"MaxSRQSGE":     a.MaxSRQSGE,
		"MaxQPRdAtomic": a.MaxQPRdAtomic, "MaxQPInitRdAtom": a.MaxQPInitRdAtom, "GIDTableLen": p.GIDTableLen,
	} {
		if n < 1 {
			e.fatalf("%s is %d", name, n)
		}
	}
	if a.Name == "" || a.MaxMRSize == 0 || a.NodeGUID == 0 {
		e.fatalf("name %q, GUID %#x, regions of up to %d bytes", a.Name, a.NodeGUID, a.MaxMRSize)
	}
	for c, n := range map[ib.DeviceCaps]int{ib.CapMemWindow: a.MaxMW, ib.CapXRC: a.MaxXRCD,
		ib.CapMulticast: min(a.MaxMcastGroup, a.MaxMcastQP)} {
		if a.Caps&c != 0 && n < 1 {
			e.fatalf("the device has %s, and a limit of %d", capText(c), n)
		}
	}
	if p.State != ib.PortActive || !p.ActiveMTU.Valid() || p.ActiveMTU > p.MaxMTU || p.MaxMsgSize < 1<<20 {
		e.fatalf("port %+v", p)
	}
}

func ahAttrs(e *End) {
	ah := e.newAH(e.pd(), func(a *ib.AHAttr) { a.TrafficClass, a.HopLimit = 0x20, 9 })
	if ah.Num() == 0 {
		e.fatalf("the AH has number 0")
	}
	check := func(class, hops uint8) {
		a, err := ah.Query()
		e.must(err, "query AH")
		if a.DGID != e.peer.GID || a.SGIDIndex != e.s.me.GIDIndex || a.TrafficClass != class || a.HopLimit != hops {
			e.fatalf("query says %+v", a)
		}
	}
	check(0x20, 9)
	a := e.toPeer()
	a.TrafficClass, a.HopLimit = 0x40, 5
	e.must(ah.Modify(a), "modify AH")
	check(0x40, 5)
	a.DGID = ib.GID{}
	e.names(ah.Modify(a), "modifying an AH to no destination", "AH", ib.ErrInvalid)
	check(0x40, 5)
}

// sameMemory: two regions on the same bytes have separate keys and rights.
func sameMemory(e *End) {
	c := e.connect()
	m := e.mem(64, 0)
	m.put(0, pattern(2, 64))
	c.do(opWrite.request(1, m.all(), e.peerMem()))
	c.broken(opWrite.request(2, m.all(), e.peerMem()), ib.WCRemAccessErr)
	e.sync("done")
}

func sameMemoryPassive(e *End) {
	e.connect()
	m := e.mem(64, allAccess)
	again, err := e.pd().RegMR(ib.MRInit{Buf: m.buf, Access: ib.RemoteRead})
	e.must(err, "register the same memory again")
	e.own("MR", again.Close)
	if again.RKey() == m.mr.RKey() {
		e.fatalf("two regions have the key %#x", uint32(again.RKey()))
	}
	m.expose()
	e.tell("memory", remote{again.Addr(), again.RKey(), 64})
	e.sync("done")
	m.want(0, pattern(2, 64))
	m.check()
}

// ownIOVA returns an address to register memory under. Its offset in a page is that of the memory, as devices that map
// pages require.
func (m *region) ownIOVA() uint64 {
	const page = 4096
	return 0x7700_0000_0000 + uint64(uintptr(unsafe.Pointer(&m.buf[0])))%page
}

func ownAddress(e *End) {
	c := e.connect()
	m := e.mem(64, 0)
	m.put(0, pattern(2, 64))
	r := e.peerMem()
	r.Addr += 100
	c.do(opWrite.request(1, m.all(), r))
	e.sync("done")
}

// ownAddressPassive registers memory under another address, for its peer and for itself.
func ownAddressPassive(e *End) {
	e.connect()
	m := e.rawMem(4096)
	var err error
	m.mr, err = e.pd().RegMR(ib.MRInit{Buf: m.buf, IOVA: m.ownIOVA(), Access: allAccess})
	e.must(err, "register memory at an address of one's own")
	e.own("MR", m.mr.Close)
	if m.mr.Addr() != m.ownIOVA() {
		e.fatalf("the region is at %#x, want %#x", m.mr.Addr(), m.ownIOVA())
	}
	m.expose()
	e.sync("done")
	m.want(100, pattern(2, 64))
	m.check()
	c, q := e.lonely(), e.mem(8, allAccess)
	c.do(opWrite.request(1, m.sgl(100, 8), q.remote()))
	q.want(0, pattern(2, 64)[:8])
	q.check()
}

// manyRegions: the keys of regions that exist at the same time differ.
func manyRegions(e *End) {
	keys := map[ib.Key]bool{}
	buf := e.bytes(64)
	for range 200 {
		mr, err := e.pd().RegMR(ib.MRInit{Buf: buf})
		e.must(err, "register MR %d", len(keys))
		e.own("MR", mr.Close)
		keys[mr.LKey()] = true
	}
	if len(keys) != 200 {
		e.fatalf("200 regions have %d keys", len(keys))
	}
}
