package server

import (
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/daemon/abi"
)

// accountRows has at least one row for each request, with accountCMRows.
var accountRows = map[abi.Op][]accountRow{
	abi.OpHello: {again(abi.OpHello, &abi.Hello{Magic: abi.Magic, MinVersion: abi.Version,
		MaxVersion: abi.Version})},
	abi.OpOpen:           {sessions},
	abi.OpShareDoorbells: {sessions},
	abi.OpHold:           {holds},
	abi.OpQueryDevice:    {again(abi.OpQueryDevice, &abi.Open{})},
	abi.OpQueryPort:      {again(abi.OpQueryPort, &abi.Port{Port: 1})},
	abi.OpGIDs:           {again(abi.OpGIDs, &abi.Port{Port: 1})},
	abi.OpPKey:           {again(abi.OpPKey, &abi.Port{Port: 1})},
	abi.OpCounters:       {again(abi.OpCounters, &abi.Port{Port: 1})},
	abi.OpClock:          {again(abi.OpClock, &struct{}{})},

	abi.OpAllocPD: {again(abi.OpAllocPD, &struct{}{})},
	abi.OpAllocXRCD: {again(abi.OpAllocXRCD, &abi.AllocXRCD{}),
		{name: "each of another file", begin: func(c *accountant) func(int) {
			return func(int) { c.makeWithFile(abi.OpAllocXRCD, abi.Put(nil, &abi.AllocXRCD{Flags: abi.XRCDCreate})) }
		}},
		{name: "each with targets", count: often / 10, begin: func(c *accountant) func(int) {
			return func(int) {
				x := c.make(abi.OpAllocXRCD, abi.Put(nil, &abi.AllocXRCD{}))
				c.makeTarget(x)
			}
		}}},
	abi.OpCreateChannel: {
		{name: "nobody reads them", count: often / 50, begin: func(c *accountant) func(int) {
			return func(int) {
				h := c.makeChannel(abi.OpCreateChannel)
				for range 64 {
					c.objects[c.makeCQ(h)].queue.Notify(nil)
				}
			}
		}},
		{name: "nobody reads events of CQs that are closed", count: 5, begin: func(c *accountant) func(int) {
			return func(int) {
				h := c.makeChannel(abi.OpCreateChannel)
				for range 4096 {
					cq := c.makeCQ(h)
					c.objects[cq].queue.Notify(nil)
					c.close(cq)
				}
			}
		}}},
	abi.OpCreateCQ: {
		{name: "short", begin: func(c *accountant) func(int) { return func(int) { c.makeCQ(0) } }},
		{name: "with unread events", begin: func(c *accountant) func(int) {
			h := c.makeChannel(abi.OpCreateChannel)
			return func(int) {
				cq := c.makeCQ(h)
				c.objects[cq].queue.Notify(nil)
				c.tell(cq, ib.EventCQErr)
			}
		}}},
	abi.OpResizeCQ: {{name: "up and down", begin: func(c *accountant) func(int) {
		return func(i int) { c.ask(abi.OpResizeCQ, abi.Put(nil, &abi.ResizeCQ{CQ: c.cq, Entries: uint32(1 + i%500)})) }
	}}},
	abi.OpShareMemory: {
		{name: "each another file", begin: func(c *accountant) func(int) {
			return func(int) { c.make(abi.OpShareMemory, nil) }
		}},
		{name: "one file", least: 8, begin: func(c *accountant) func(int) {
			fd := newMemfd(c.t, memfdBytes, unix.F_SEAL_SHRINK)
			c.t.Cleanup(func() { must(c.t, unix.Close(fd)) })
			return func(int) { c.make(abi.OpShareMemory, nil, fd) }
		}}},
	abi.OpRegMR: {
		{name: "every other page of a memfd", begin: func(c *accountant) func(int) {
			file := c.largeFile()
			return func(i int) { c.registerOf(abi.RegMR{File: file, Addr: uint64(2*i) * 4096}) }
		}},
		{name: "memory of a process", begin: func(c *accountant) func(int) {
			_, buf := newSharedMemory(c.t)
			at := uint64(uintptr(unsafe.Pointer(&buf[0])))
			return func(i int) { c.registerOf(abi.RegMR{Kind: abi.MemProcess, Addr: at + uint64(i)}) }
		}}},
	abi.OpReregMR: {{name: "every other page of a memfd", begin: func(c *accountant) func(int) {
		file := c.largeFile()
		h := c.registerOf(abi.RegMR{File: file})
		return func(i int) {
			c.ask(abi.OpReregMR, abi.Put(nil, &abi.ReregMR{MR: h, Mask: uint32(ib.ReregTranslation),
				RegMR: abi.RegMR{PD: c.pd, Kind: abi.MemFD, File: file, Addr: uint64(2*i) * 4096, Length: 64}}))
		}
	}}},
	abi.OpAllocMW: {{name: "type 2", begin: func(c *accountant) func(int) {
		return func(int) { c.make(abi.OpAllocMW, abi.Put(nil, &abi.AllocMW{PD: c.pd, Type: uint32(ib.MWType2)})) }
	}}},
	abi.OpCreateAH: {{name: "each of another address", begin: func(c *accountant) func(int) {
		return func(i int) {
			c.make(abi.OpCreateAH, abi.Put(nil, &abi.CreateAH{PD: c.pd,
				AH: abi.AHOf(&ib.AHAttr{DGID: addressOf(i), Port: 1})}))
		}
	}}},
	abi.OpModifyAH: {{name: "each time another address", begin: func(c *accountant) func(int) {
		ah := c.make(abi.OpCreateAH, abi.Put(nil, &abi.CreateAH{PD: c.pd,
			AH: abi.AHOf(&ib.AHAttr{DGID: c.gid, Port: 1})}))
		return func(i int) {
			c.ask(abi.OpModifyAH, abi.Put(nil, &abi.ModifyAH{Handle: ah,
				AH: abi.AHOf(&ib.AHAttr{DGID: addressOf(i), Port: 1})}))
		}
	}}},
	abi.OpCreateSRQ: {
		{name: "short, with unread events", begin: func(c *accountant) func(int) {
			return func(int) { c.tell(c.makeSRQ(), ib.EventSRQLimit, ib.EventSRQErr) }
		}},
		{name: "nobody reads events of those that are closed", begin: func(c *accountant) func(int) {
			return func(int) {
				h := c.makeSRQ()
				c.tell(h, ib.EventSRQLimit, ib.EventSRQErr)
				c.close(h)
			}
		}}},
	abi.OpModifySRQ: {{name: "up and down, with limits", begin: func(c *accountant) func(int) {
		h := c.makeSRQ()
		return func(i int) {
			c.ask(abi.OpModifySRQ, abi.Put(nil, &abi.SRQAttr{SRQ: h, Mask: uint32(ib.SRQMaxWR | ib.SRQLimit),
				MaxWR: uint32(2 + i%500), Limit: uint32(1 + i%2)}))
		}
	}}},
	abi.OpQuerySRQ: {{name: "again and again", begin: func(c *accountant) func(int) {
		h := c.makeSRQ()
		return func(int) { c.ask(abi.OpQuerySRQ, abi.Put(nil, &abi.SRQAttr{SRQ: h})) }
	}}},
	abi.OpCreateQP: {
		{name: "short, with unread events", count: bellBlock, begin: func(c *accountant) func(int) {
			return func(int) {
				c.tell(c.makeQPOf(ib.RC), ib.EventQPFatal, ib.EventQPReqErr, ib.EventQPAccessErr, ib.EventCommEst,
					ib.EventSQDrained, ib.EventLastWQE)
			}
		}},
		{name: "large", count: 200, begin: func(c *accountant) func(int) {
			return func(int) { c.makeQP(c.pd, c.cq, 512, 16, 256) }
		}},
		{name: "XRC targets", begin: func(c *accountant) func(int) {
			x := c.make(abi.OpAllocXRCD, abi.Put(nil, &abi.AllocXRCD{}))
			return func(int) { c.makeTarget(x) }
		}}},
	abi.OpModifyQP: {
		{name: "each to another peer, with all READs", count: 1000, begin: func(c *accountant) func(int) {
			return func(i int) { c.modify(c.makeQPOf(ib.RC), addressOf(i), ib.StateInit, ib.StateRTR, ib.StateRTS) }
		}},
		{name: "one QP to one peer after another", begin: func(c *accountant) func(int) {
			q := c.makeQPOf(ib.RC)
			c.modify(q, c.gid, ib.StateInit, ib.StateRTR, ib.StateRTS)
			return func(i int) {
				c.modify(q, addressOf(i), ib.StateErr, ib.StateReset, ib.StateInit, ib.StateRTR, ib.StateRTS)
			}
		}}},
	abi.OpQPFailure: {{name: "again and again", begin: func(c *accountant) func(int) {
		h := c.makeQPOf(ib.RC)
		return func(int) { c.ask(abi.OpQPFailure, abi.Put(nil, &abi.Object{Handle: h})) }
	}}},
	abi.OpQueryQP: {{name: "again and again", begin: func(c *accountant) func(int) {
		h := c.makeQPOf(ib.RC)
		return func(int) { c.ask(abi.OpQueryQP, abi.Put(nil, &abi.Object{Handle: h})) }
	}}},
	abi.OpOpenQP: {{name: "as often as may be", least: 20, begin: func(c *accountant) func(int) {
		x := c.make(abi.OpAllocXRCD, abi.Put(nil, &abi.AllocXRCD{}))
		list := c.many(often/mostOpeners+1, func() abi.Handle { return c.makeTarget(x) })
		var nums []uint32
		for _, h := range list {
			nums = append(nums, c.qpNum(h))
		}
		return func(i int) {
			c.make(abi.OpOpenQP, abi.Put(nil, &abi.OpenQP{XRCD: x, QPN: nums[i/(mostOpeners-1)],
				Type: uint32(ib.XRCTGT)}))
		}
	}}},
	abi.OpAttach: {{name: "many QPs to many groups", begin: func(c *accountant) func(int) {
		list := c.many(often/100, func() abi.Handle { return c.makeUD() })
		return func(i int) { c.ask(abi.OpAttach, abi.Put(nil, &abi.Group{QP: list[i/100], GID: groupOf(i % 100)})) }
	}}},
	abi.OpDetach: {{name: "after each attachment", begin: func(c *accountant) func(int) {
		q := c.makeUD()
		return func(i int) {
			c.ask(abi.OpAttach, abi.Put(nil, &abi.Group{QP: q, GID: groupOf(i)}))
			c.ask(abi.OpDetach, abi.Put(nil, &abi.Group{QP: q, GID: groupOf(i)}))
		}
	}}},
	abi.OpClose: {
		{name: "of one after another", begin: func(c *accountant) func(int) {
			return func(int) {
				pd := c.make(abi.OpAllocPD, nil)
				for _, h := range []abi.Handle{c.makeCQ(0), c.makeSRQ(), c.makeQPOf(ib.RC), c.makeUD(), pd} {
					c.close(h)
				}
			}
		}},
		{name: "of all but one", count: 1, begin: func(c *accountant) func(int) {
			return func(int) {
				for _, h := range c.many(often, func() abi.Handle { return c.make(abi.OpAllocPD, nil) })[1:] {
					c.close(h)
				}
			}
		}}},
}

// again is a row of one request that is the same each time.
func again[T any](op abi.Op, r *T) accountRow {
	return accountRow{name: "again and again", begin: func(c *accountant) func(int) {
		body := abi.Put(nil, r)
		return func(int) { c.ask(op, body) }
	}}
}

// sessions opens the device and shares doorbells on one connection after another.
var sessions = accountRow{name: "connections", count: 500, begin: func(c *accountant) func(int) {
	return func(int) { c.others = append(c.others, newBareSession(c.t, c.srv)) }
}}

// holds makes one connection after another a hold.
var holds = accountRow{name: "connections", count: 500, begin: func(c *accountant) func(int) {
	return func(int) {
		h := newGreetedSession(c.t, c.srv)
		h.ask(abi.OpHold, nil)
		c.others = append(c.others, h)
		go h.awaitRelease()
	}
}}

// many makes n objects.
func (c *accountant) many(n int, f func() abi.Handle) (list []abi.Handle) {
	for range n {
		list = append(list, f())
	}
	return list
}

func (c *accountant) makeSRQ() abi.Handle {
	c.t.Helper()
	return c.make(abi.OpCreateSRQ, abi.Put(nil, &abi.CreateSRQ{PD: c.pd, MaxWR: 16, MaxSGE: 1}))
}

// makeUD creates a UD QP in INIT.
func (c *accountant) makeUD() abi.Handle {
	c.t.Helper()
	h := c.makeQPOf(ib.UD)
	body := abi.QPAttrOf(h, &ib.QPAttr{State: ib.StateInit, Port: 1, QKey: 5}, ib.Required(ib.UD, ib.StateInit))
	c.ask(abi.OpModifyQP, abi.Put(nil, &body))
	return h
}

func (c *accountant) makeTarget(x abi.Handle) abi.Handle {
	c.t.Helper()
	return c.make(abi.OpCreateQP, abi.Put(nil, &abi.CreateQP{XRCD: x, Type: uint32(ib.XRCTGT)}))
}

// makeWithFile makes an object with a new file.
func (c *accountant) makeWithFile(op abi.Op, body []byte) {
	c.t.Helper()
	fd := newMemfd(c.t, 1, 0)
	c.make(op, body, fd)
	must(c.t, unix.Close(fd))
}

// largeFile shares a memfd with two pages for each of often.
func (c *accountant) largeFile() abi.Handle {
	c.t.Helper()
	fd := newMemfd(c.t, 2*int64(often)*4096, unix.F_SEAL_SHRINK)
	defer unix.Close(fd)
	return c.make(abi.OpShareMemory, nil, fd)
}

// registerOf registers 64 bytes, of a memfd unless r says something else.
func (c *accountant) registerOf(r abi.RegMR) abi.Handle {
	c.t.Helper()
	if r.PD, r.Length = c.pd, 64; r.Kind == 0 {
		r.Kind = abi.MemFD
	}
	return c.make(abi.OpRegMR, abi.Put(nil, &r))
}

// groupOf is one of a hundred multicast groups.
func groupOf(i int) ib.GID {
	return ib.GIDFromAddr(netip.AddrFrom4([4]byte{239, 1, 1, byte(i % 100)}))
}
