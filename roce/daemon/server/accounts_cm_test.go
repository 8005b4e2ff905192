package server

import (
	"net/netip"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/daemon/abi"
)

// What the rows of requests to the connection manager use by default: IDs of one channel whose events nobody reads.
// The defaults of device.CMLimits allow 4,096 listeners and as many requests of peers.
const (
	mostListeners = 4096
	connectOften  = 1000
)

// accountCMRows are the rows of requests to the connection manager.
var accountCMRows = map[abi.Op][]accountRow{
	abi.OpOpenCM: {{name: "with an event", count: often / 50, least: 4, begin: func(c *accountant) func(int) {
		return func(int) { c.resolve(c.newID(c.makeChannel(abi.OpOpenCM), ib.RC), nowhere) }
	}}},
	abi.OpCreateCMID: {onIDs("without anything else", 0, ib.RC, func(*accountant, abi.Handle, int) {}).within(4)},
	abi.OpCMEvent: {
		{name: "without events", begin: func(c *accountant) func(int) {
			h := c.makeChannel(abi.OpOpenCM)
			return func(int) { c.ask(abi.OpCMEvent, abi.Put(nil, &abi.Object{Handle: h})) }
		}},
		{name: "connection requests", count: connectOften, begin: func(c *accountant) func(int) {
			p := c.newPair(ib.UD)
			return func(int) { p.request() }
		}}},
	abi.OpCMBind: {onIDs("each to another port", 0, ib.RC, func(c *accountant, id abi.Handle, _ int) {
		c.bind(id)
	}).within(4)},
	abi.OpCMListen: {onIDs("each on another port", mostListeners, ib.RC, func(c *accountant, id abi.Handle, _ int) {
		c.ask(abi.OpCMListen, abi.Put(nil, &abi.CMListen{ID: id, Backlog: 1 << 30}))
	}), {name: "each on another port of several devices", count: mostListeners / 4, over: 4, least: 4,
		begin: listenEverywhere}},
	abi.OpCMResolveAddr: {onIDs("in vain, several times", 0, ib.RC, func(c *accountant, id abi.Handle, _ int) {
		for range 10 {
			c.resolve(id, nowhere)
		}
	})},
	abi.OpCMResolveRoute: {onIDs("each to another peer", 0, ib.RC, func(c *accountant, id abi.Handle, i int) {
		c.resolve(id, portAt(addressOf(i)))
		c.ask(abi.OpCMResolveRoute, abi.Put(nil, &abi.CMResolve{ID: id}))
	})},
	abi.OpCMConnect: {
		onIDs("each to another peer that does not answer", connectOften, ib.UD,
			func(c *accountant, id abi.Handle, i int) { c.connect(id, portAt(addressOf(i))) }),
		{name: "to a listener that reads no events", count: connectOften, begin: func(c *accountant) func(int) {
			p := c.newPair(ib.RC)
			return func(int) { p.dial() }
		}}},
	abi.OpCMAccept:    {ofPairs(func(p *pair, _, peer abi.Handle) { p.accept(peer) })},
	abi.OpCMReject:    {ofPairs(func(p *pair, _, peer abi.Handle) { p.reject(peer) })},
	abi.OpCMEstablish: {ofPairs(func(p *pair, id, peer abi.Handle) { p.establish(id, peer) })},
	abi.OpCMDisconnect: {
		ofPairs(func(p *pair, id, peer abi.Handle) {
			p.establish(id, peer)
			p.about(abi.OpCMDisconnect, id)
		}),
		{name: "of one connection after another", count: connectOften, begin: func(c *accountant) func(int) {
			p := c.newPair(ib.RC)
			return func(int) {
				id, peer := p.request()
				p.establish(id, peer)
				p.about(abi.OpCMDisconnect, id)
				c.close(id)
				c.close(peer)
			}
		}}},
	abi.OpCMDelay: {ofOnePair(func(p *pair, _, peer abi.Handle, i int) {
		p.ask(abi.OpCMDelay, abi.Put(nil, &abi.CMDelay{ID: peer, NS: int64(1e9 * (1 + i%10))}))
	})},
	abi.OpCMNotify: {ofOnePair(func(p *pair, _, peer abi.Handle, _ int) {
		if p.ask(abi.OpCMQuery, abi.Put(nil, &abi.Object{Handle: peer})); !p.accepted {
			p.accept(peer)
		}
		p.ask(abi.OpCMNotify, abi.Put(nil, &abi.CMValue{ID: peer, Which: uint32(ib.EventCommEst)}))
	})},
	abi.OpCMInitQPAttr: {ofOnePair(func(p *pair, id, _ abi.Handle, _ int) {
		p.ask(abi.OpCMInitQPAttr, abi.Put(nil, &abi.CMValue{ID: id, Which: uint32(ib.StateInit)}))
	})},
	abi.OpCMQuery: {ofOnePair(func(p *pair, id, _ abi.Handle, _ int) { p.about(abi.OpCMQuery, id) })},
	abi.OpCMSetOption: {onIDs("of many", 0, ib.RC, func(c *accountant, id abi.Handle, _ int) {
		for value := range int64(2) {
			c.ask(abi.OpCMSetOption, abi.Put(nil, &abi.CMValue{ID: id, Which: uint32(ib.CMOptionReuseAddr),
				Value: 1 - value}))
		}
	}).within(4)},
	abi.OpCMJoin: {onIDs("64 groups each", often/64, ib.UD, func(c *accountant, id abi.Handle, _ int) {
		c.bind(id)
		for i := range 64 {
			c.ask(abi.OpCMJoin, abi.Put(nil, &abi.CMBind{ID: id, Addr: portAt(groupOf(i))}))
		}
	})},
	abi.OpCMLeave: {onOneID("after each join", ib.UD, func(c *accountant, id abi.Handle, i int) {
		group := abi.Put(nil, &abi.CMBind{ID: id, Addr: portAt(groupOf(i))})
		c.ask(abi.OpCMJoin, group)
		c.ask(abi.OpCMLeave, group)
	})},
	abi.OpCMMigrate: {
		{name: "to and fro", begin: func(c *accountant) func(int) {
			channels := c.many(2, func() abi.Handle { return c.makeChannel(abi.OpOpenCM) })
			id := c.newID(channels[0], ib.RC)
			c.resolve(id, nowhere)
			return func(i int) { c.migrate(id, channels[1-i%2]) }
		}},
		{name: "many to one channel after another", count: 20, begin: func(c *accountant) func(int) {
			from := c.makeChannel(abi.OpOpenCM)
			list := c.many(often/10, func() abi.Handle { return c.newID(from, ib.RC) })
			return func(int) {
				to := c.makeChannel(abi.OpOpenCM)
				for _, id := range list {
					c.migrate(id, to)
				}
			}
		}}},
}

// nowhere is an address of a family that the device lacks.
var nowhere = abi.CMAddrOf(netip.MustParseAddrPort("[2001:db8::1]:7471"))

// servicePort is where pairs listen.
const servicePort = 7471

func portAt(g ib.GID) abi.CMAddr { return abi.CMAddrOf(netip.AddrPortFrom(g.Addr(), servicePort)) }

// listenEverywhere makes listeners on all devices, one after another.
func listenEverywhere(c *accountant) func(int) {
	h := c.keepSocket(abi.OpOpenCM, abi.Put(nil, &abi.OpenCM{Flags: abi.CMAllDevices}))
	return func(int) {
		c.ask(abi.OpCMListen, abi.Put(nil, &abi.CMListen{ID: c.newID(h, ib.RC), Backlog: 1 << 30}))
	}
}

// onIDs is a row of a request on one new ID after another, all on one channel.
func onIDs(name string, count int, typ ib.QPType, f func(c *accountant, id abi.Handle, i int)) accountRow {
	return accountRow{name: name, count: count, begin: func(c *accountant) func(int) {
		h := c.makeChannel(abi.OpOpenCM)
		return func(i int) { f(c, c.newID(h, typ), i) }
	}}
}

// onOneID is a row of a request on an ID that is bound.
func onOneID(name string, typ ib.QPType, f func(c *accountant, id abi.Handle, i int)) accountRow {
	return accountRow{name: name, begin: func(c *accountant) func(int) {
		id := c.newID(c.makeChannel(abi.OpOpenCM), typ)
		c.bind(id)
		return func(i int) { f(c, id, i) }
	}}
}

// within returns a row where less of what is booked is in use: for an ID its events and a connection are booked, too.
func (row accountRow) within(times int) accountRow {
	row.least = times
	return row
}

func (c *accountant) newID(channel abi.Handle, typ ib.QPType) abi.Handle {
	c.t.Helper()
	return c.make(abi.OpCreateCMID, abi.Put(nil, &abi.CreateCMID{Channel: channel, Type: uint32(typ)}))
}

// bind binds an ID to the device's address.
func (c *accountant) bind(id abi.Handle) {
	c.t.Helper()
	here := abi.CMAddrOf(netip.AddrPortFrom(c.gid.Addr(), 0))
	c.ask(abi.OpCMBind, abi.Put(nil, &abi.CMBind{ID: id, Addr: here}))
}

func (c *accountant) resolve(id abi.Handle, to abi.CMAddr) {
	c.t.Helper()
	c.ask(abi.OpCMResolveAddr, abi.Put(nil, &abi.CMResolve{ID: id, Remote: to}))
}

// connect asks a peer for a connection.
func (c *accountant) connect(id abi.Handle, to abi.CMAddr) {
	c.t.Helper()
	c.resolve(id, to)
	c.ask(abi.OpCMResolveRoute, abi.Put(nil, &abi.CMResolve{ID: id}))
	c.ask(abi.OpCMConnect, abi.Put(nil, &abi.CMConnect{ID: id}))
	c.settle()
}

// settle lets messages arrive, and their answers.
func (c *accountant) settle() {
	for range 4 {
		c.device.step()
	}
}

func (c *accountant) migrate(id, to abi.Handle) {
	c.t.Helper()
	c.ask(abi.OpCMMigrate, abi.Put(nil, &abi.CMValue{ID: id, Value: int64(to)}))
}

// pair makes connections of the client with itself.
type pair struct {
	*accountant
	typ           ib.QPType
	channel, away abi.Handle // of the listener and of who dials
	accepted      bool
}

func (c *accountant) newPair(typ ib.QPType) *pair {
	c.t.Helper()
	p := &pair{accountant: c, typ: typ, channel: c.makeChannel(abi.OpOpenCM), away: c.makeChannel(abi.OpOpenCM)}
	l := c.newID(p.channel, typ)
	c.ask(abi.OpCMBind, abi.Put(nil, &abi.CMBind{ID: l, Addr: portAt(c.gid)}))
	c.ask(abi.OpCMListen, abi.Put(nil, &abi.CMListen{ID: l, Backlog: 1 << 30}))
	return p
}

// ofPairs is a row of a request on one new connection after another. f gets both ends of it.
func ofPairs(f func(p *pair, id, peer abi.Handle)) accountRow {
	return accountRow{name: "of many connections", count: connectOften, begin: func(c *accountant) func(int) {
		p := c.newPair(ib.RC)
		return func(int) {
			id, peer := p.request()
			f(p, id, peer)
		}
	}}
}

// ofOnePair is a row of a request on a connection.
func ofOnePair(f func(p *pair, id, peer abi.Handle, i int)) accountRow {
	return accountRow{name: "of one connection", begin: func(c *accountant) func(int) {
		p := c.newPair(ib.RC)
		id, peer := p.request()
		return func(i int) { f(p, id, peer, i) }
	}}
}

// about does a request whose body is a handle.
func (p *pair) about(op abi.Op, h abi.Handle) {
	p.t.Helper()
	p.ask(op, abi.Put(nil, &abi.Object{Handle: h}))
	p.settle()
}

// param returns parameters with a new QP.
func (p *pair) param() abi.CMParam {
	p.t.Helper()
	return abi.CMParam{QPN: p.qpNum(p.makeQPOf(p.typ)), RetryCount: 7, RNRRetry: 7}
}

// dial asks the listener for a connection.
func (p *pair) dial() abi.Handle {
	p.t.Helper()
	id := p.newID(p.away, p.typ)
	p.resolve(id, portAt(p.gid))
	p.ask(abi.OpCMResolveRoute, abi.Put(nil, &abi.CMResolve{ID: id}))
	p.ask(abi.OpCMConnect, abi.Put(nil, &abi.CMConnect{ID: id, Param: p.param()}))
	p.settle()
	return id
}

// request asks for a connection, and takes the request.
func (p *pair) request() (id, peer abi.Handle) {
	p.t.Helper()
	id = p.dial()
	for {
		ev, err := abi.Get[abi.CMEvent](p.ask(abi.OpCMEvent, abi.Put(nil, &abi.Object{Handle: p.channel})))
		must(p.t, err)
		switch ev.Type {
		case uint32(ib.CMConnectRequest):
			return id, ev.ID
		case abi.CMNoEvent:
			p.t.Fatal("no connection request arrives")
		}
	}
}

func (p *pair) accept(peer abi.Handle) {
	p.t.Helper()
	p.ask(abi.OpCMAccept, abi.Put(nil, &abi.CMConnect{ID: peer, Param: p.param()}))
	p.settle()
	p.accepted = true
}

func (p *pair) reject(peer abi.Handle) {
	p.t.Helper()
	p.ask(abi.OpCMReject, abi.Put(nil, &abi.CMReject{ID: peer, PrivateLen: 100}))
	p.settle()
}

func (p *pair) establish(id, peer abi.Handle) {
	p.t.Helper()
	p.accept(peer)
	p.about(abi.OpCMEstablish, id)
}
