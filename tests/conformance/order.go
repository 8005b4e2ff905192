package conformance

import "github.com/goroce/goroce/ib"

// orderCases: the order of execution (IBTA 10.8.3.3, table 76).
func orderCases() []Case {
	return []Case{
		{Name: "order/send-shows-the-write-before-it", Active: writeThenSend, Passive: writeThenSendPassive},
		{Name: "order/read-after-write-reads-it", Active: writeThenRead, Passive: scratchPassive},
		{Name: "order/atomic-after-write-sees-it", Active: writeThenAtomic, Passive: writeThenAtomicPassive},
		{Name: "order/completions-as-posted", Active: mixed, Passive: mixedPassive},
		{Name: "order/fenced-send-carries-what-was-read", Active: readThenSend(opRead), Passive: readThenSendPassive},
		{Name: "order/fenced-write-carries-what-was-read", Active: fencedWrite, Passive: fencedWritePassive},
		{Name: "order/fenced-send-carries-an-atomic-result", Active: readThenSend(opFAA), Passive: readThenSendPassive},
		{Name: "order/more-reads-than-may-be-in-flight", Active: manyReads, Passive: manyReadsPassive},
		{Name: "order/reads-one-at-a-time", Active: oneRead, Passive: oneReadPassive},
		{Name: "sqd/finishes-what-it-began", Active: drain, Passive: drainPassive},
		{Name: "sqd/attributes-change", Active: drainedChange, Passive: drainedChangePassive},
	}
}

func writeThenSend(e *End) {
	c := e.connect()
	n := 4*int(e.mtu()) + 3
	m := e.mem(n, 0)
	r := e.peerMem()
	for i := range 4 {
		m.put(0, pattern(uint64(i), n))
		c.post(opWrite.request(1, m.all(), r), ib.SendWR{ID: 2, Opcode: ib.WRSend})
		c.sq.done(1, ib.WCWrite)
		c.sq.done(2, ib.WCSend)
		hear[bool](e, "seen")
	}
}

func writeThenSendPassive(e *End) {
	c := e.connect()
	n := 4*int(e.mtu()) + 3
	m := e.mem(n, allAccess)
	for i := range 4 {
		c.recv(uint64(i), nil)
	}
	m.expose()
	for i := range 4 {
		c.rq.received(uint64(i), 0)
		m.want(0, pattern(uint64(i), n))
		m.check()
		e.tell("seen", true)
	}
}

func writeThenRead(e *End) {
	c := e.connect()
	out, in := e.mem(64, 0), e.mem(64, ib.LocalWrite)
	r := e.peerMem()
	c.post(opWrite.request(1, out.all(), r), opRead.request(2, in.all(), r))
	c.sq.done(1, ib.WCWrite)
	c.sq.done(2, ib.WCRead)
	in.want(0, out.buf)
	in.check()
	e.sync("done")
}

func writeThenAtomic(e *End) {
	c := e.connect()
	out, in := e.mem(8, 0), e.mem(8, ib.LocalWrite)
	out.putWord(0, 41)
	r := e.peerMem()
	c.post(opWrite.request(1, out.all(), r), opFAA.request(2, in.all(), r))
	c.sq.done(1, ib.WCWrite)
	c.sq.done(2, ib.WCFetchAdd)
	in.want(0, word(41))
	in.check()
	e.sync("done")
}

func writeThenAtomicPassive(e *End) {
	e.connect()
	m := e.mem(8, allAccess)
	m.expose()
	e.sync("done")
	m.want(0, word(42))
	m.check()
}

// mixedOps are the operations that mixed posts, one after the other.
var mixedOps = []op{opWrite, opRead, opSend, opFAA, opWriteImm, opRead, opWrite, opCAS, opSendImm, opWrite, opRead,
	opSend}

func mixed(e *End) {
	c := e.connect()
	m := e.mem(64*len(mixedOps), ib.LocalWrite)
	r := e.peerMem()
	for i, o := range mixedOps {
		c.post(o.request(uint64(i), m.sgl(64*i, o.length()), r))
	}
	for i, o := range mixedOps {
		c.sq.done(uint64(i), wcOpcodes[o.wr])
	}
	c.sq.empty()
	e.sync("done")
}

func mixedPassive(e *End) {
	c := e.connect()
	in, m := e.mem(64, ib.LocalWrite), e.mem(64, allAccess)
	n := uint64(0)
	for _, o := range mixedOps {
		if o.recv {
			c.recv(n, in.all())
			n++
		}
	}
	m.expose()
	n = 0
	for _, o := range mixedOps {
		switch {
		case o.wr == ib.WRWriteImm:
			c.rq.done(n, ib.WCRecvImm)
			n++
		case o.recv:
			c.rq.received(n, o.length())
			n++
		}
	}
	e.sync("done")
	c.rq.empty()
}

// readThenSend READs, or executes an atomic, and sends the result in the next request. The fence makes the SEND wait
// for the data.
func readThenSend(o op) func(*End) {
	return func(e *End) {
		c := e.connect()
		n := o.length()
		if !o.atomic {
			n = 8 * int(e.mtu())
		}
		m := e.mem(n, ib.LocalWrite)
		r := e.peerMem()
		e.tell("length", n)
		hear[bool](e, "receive posted")
		c.post(o.request(1, m.all(), r), ib.SendWR{ID: 2, Opcode: ib.WRSend, Flags: ib.SendFence, SGL: m.all()})
		c.sq.done(1, wcOpcodes[o.wr])
		c.sq.done(2, ib.WCSend)
		e.sync("done")
	}
}

func readThenSendPassive(e *End) {
	c := e.connect()
	most := 8 * int(e.mtu())
	source, in := e.mem(most, allAccess), e.mem(most, ib.LocalWrite)
	source.put(0, pattern(77, most))
	source.expose()
	n := hear[int](e, "length")
	c.recv(1, in.sgl(0, n))
	e.tell("receive posted", true)
	c.rq.received(1, n)
	in.want(0, pattern(77, n))
	in.check()
	e.sync("done")
}

func fencedWrite(e *End) {
	c := e.connect()
	n := 8 * int(e.mtu())
	m := e.mem(n, ib.LocalWrite)
	from, to := e.peerMem(), e.peerMem()
	write := opWrite.request(2, m.all(), to)
	write.Flags = ib.SendFence
	c.post(opRead.request(1, m.all(), from), write)
	c.sq.done(1, ib.WCRead)
	c.sq.done(2, ib.WCWrite)
	e.sync("done")
}

func fencedWritePassive(e *End) {
	e.connect()
	n := 8 * int(e.mtu())
	from, to := e.mem(n, ib.RemoteRead), e.mem(n, ib.LocalWrite|ib.RemoteWrite)
	from.put(0, pattern(78, n))
	from.expose()
	to.expose()
	e.sync("done")
	to.want(0, pattern(78, n))
	to.check()
}

// manyReads posts more READs than the peer has responder resources: the requester holds the others back.
func manyReads(e *End) { readAll(e, e.connect()) }

func manyReadsPassive(e *End) {
	e.connect()
	readAllPassive(e)
}

func oneAtATime(s *setup) { s.rdAtomic = 1 }

func oneRead(e *End) { readAll(e, e.connect(oneAtATime)) }

func oneReadPassive(e *End) {
	e.connect(oneAtATime)
	readAllPassive(e)
}

const readSize = 3000

func readAll(e *End, c *conn) {
	m := e.mem(depth*readSize, ib.LocalWrite)
	r := e.peerMem()
	for i := range depth {
		at := remote{Addr: r.Addr + uint64(i), RKey: r.RKey}
		c.post(opRead.request(uint64(i), m.sgl(i*readSize, readSize), at))
	}
	data := pattern(6, readSize+depth)
	for i := range depth {
		c.sq.done(uint64(i), ib.WCRead)
		m.want(i*readSize, data[i:i+readSize])
	}
	m.check()
	e.sync("done")
}

func readAllPassive(e *End) {
	m := e.mem(readSize+depth, ib.RemoteRead)
	m.put(0, pattern(6, readSize+depth))
	m.expose()
	e.sync("done")
	m.check()
}
