package conformance

import (
	"fmt"
	"strings"

	"github.com/goroce/goroce/ib"
)

// op is a request that transfers data, with its effects at the peer.
type op struct {
	name   string
	wr     ib.WROpcode
	recv   bool // consumes a receive
	atomic bool
	pulls  bool      // data are transferred to the requester
	access ib.Access // right that the peer's memory and QP must grant
}

// The operations of RC.
var (
	opSend        = op{name: "send", wr: ib.WRSend, recv: true}
	opSendImm     = op{name: "send-imm", wr: ib.WRSendImm, recv: true}
	opWrite       = op{name: "write", wr: ib.WRWrite, access: ib.RemoteWrite}
	opWriteImm    = op{name: "write-imm", wr: ib.WRWriteImm, recv: true, access: ib.RemoteWrite}
	opRead        = op{name: "read", wr: ib.WRRead, pulls: true, access: ib.RemoteRead}
	opCAS         = op{name: "cas", wr: ib.WRCompareSwap, pulls: true, atomic: true, access: ib.RemoteAtomic}
	opFAA         = op{name: "faa", wr: ib.WRFetchAdd, pulls: true, atomic: true, access: ib.RemoteAtomic}
	opAtomicWrite = op{name: "atomic-write", wr: ib.WRAtomicWrite, atomic: true, access: ib.RemoteWrite}
	opFlush       = op{name: "flush", wr: ib.WRFlush, access: ib.FlushGlobal}

	dataOps   = []op{opSend, opSendImm, opWrite, opWriteImm, opRead}
	remoteOps = []op{opWrite, opWriteImm, opRead, opCAS, opFAA, opAtomicWrite, opFlush}
)

// needs returns the capabilities that an operation needs.
func (o *op) needs() Needs {
	switch o.wr {
	case ib.WRAtomicWrite:
		return both(ib.CapAtomicWrite)
	case ib.WRFlush:
		return both(ib.CapFlushGlobal)
	}
	return Needs{}
}

// length returns the length of the request if the case does not set it.
func (o *op) length() int {
	if o.atomic {
		return 8
	}
	return 64
}

// request returns a request of the operation, for local memory and the peer's.
func (o *op) request(id uint64, sgl []ib.SGE, r remote) ib.SendWR {
	wr := ib.SendWR{ID: id, Opcode: o.wr, SGL: sgl, RemoteAddr: r.Addr, RKey: r.RKey, Imm: imm(id), Swap: 1}
	switch o.wr {
	case ib.WRSend, ib.WRSendImm:
		wr.RemoteAddr, wr.RKey = 0, 0
	case ib.WRFlush:
		wr.SGL = nil
		wr.Flush = ib.Flush{Length: uint32(o.length()), Level: ib.FlushGlobally}
	}
	return wr
}

// imm returns the immediate of a request, whose bytes all differ.
func imm(id uint64) uint32 { return 0x01020304 + uint32(id)<<8 }

// size is a significant length of messages.
type size struct {
	name string
	of   func(mtu int) int
}

func fixedSize(n int) func(int) int { return func(int) int { return n } }

var sizes = []size{
	{"0", fixedSize(0)}, {"1", fixedSize(1)}, {"3", fixedSize(3)}, {"8", fixedSize(8)},
	{"mtu-1", func(m int) int { return m - 1 }}, {"mtu", func(m int) int { return m }},
	{"mtu+1", func(m int) int { return m + 1 }}, {"3mtu+5", func(m int) int { return 3*m + 5 }},
	{"64KiB", fixedSize(64 << 10)}, {"1MiB", fixedSize(1 << 20)},
}

// margin is the number of bytes before and after a message that must not change.
const margin = 24

func dataCases() []Case {
	var list []Case
	for _, o := range dataOps {
		for _, s := range sizes {
			list = append(list, sizeCase(o, s, nil, ib.RC))
		}
	}
	for _, o := range []op{opSend, opWrite, opRead} {
		for _, m := range []ib.MTU{ib.MTU256, ib.MTU512, ib.MTU1024, ib.MTU2048, ib.MTU4096} {
			c := sizeCase(o, size{"3mtu+5", func(int) int { return 3*int(m) + 5 }}, &m, ib.RC)
			c.Name = fmt.Sprintf("mtu/%s/%d", o.name, m)
			list = append(list, c)
		}
	}
	return append(list,
		Case{Name: "send/many-in-order", Active: manySends, Passive: manyReceives},
		Case{Name: "send/both-ways-at-once", Active: bothWays, Passive: bothWays},
		Case{Name: "connect/psn-wraps", Active: psnWraps, Passive: psnWrapsPassive},
		Case{Name: "connect/parties-need-not-be-ready-together", Active: earlySend, Passive: lateReady},
	)
}

// sizeCase transfers one message and checks every byte at both ends.
func sizeCase(o op, s size, mtu *ib.MTU, t ib.QPType) Case {
	change := func(e *End) func(*setup) {
		return func(s *setup) {
			s.init.Type = t
			if mtu == nil {
				return
			}
			if s.mtu = *mtu; *mtu > e.mtu() {
				e.skipf("needs ports with a larger MTU than %d", e.mtu())
			}
		}
	}
	service := ""
	if t != ib.RC {
		service = strings.ToLower(t.String()) + "/"
	}
	return Case{
		Name: fmt.Sprintf("%s%s/size/%s", service, o.name, s.name),
		Active: func(e *End) {
			n := s.of(int(e.mtu()))
			c := e.connect(change(e))
			o.transfer(c, n)
		},
		Passive: func(e *End) {
			n := s.of(int(e.mtu()))
			c := e.connect(change(e))
			o.take(c, n)
		},
	}
}

// transfer transfers n bytes to or from the other half, which calls take.
func (o *op) transfer(c *conn, n int) {
	e := c.e
	m := e.mem(n+2*margin, ib.LocalWrite)
	r := e.peerMem()
	r.Addr += margin
	if !o.pulls {
		m.put(margin, pattern(1, n))
	}
	wc := c.do(o.request(1, m.sgl(margin, n), r))
	if o.pulls {
		m.want(margin, pattern(1, n))
		if int(wc.ByteLen) != n {
			e.fatalf("%v of %d bytes says %d", o.wr, n, wc.ByteLen)
		}
	}
	m.check()
	if o.unseen(c) {
		c.do(ib.SendWR{ID: 2, Opcode: ib.WRSend})
	}
	e.sync("moved")
	c.sq.empty()
}

// unseen reports whether neither half can tell when the data have arrived: UC has no acknowledgements, and a WRITE
// makes no completion at the receiver. A SEND after it shows it.
func (o *op) unseen(c *conn) bool { return c.s.init.Type == ib.UC && !o.recv }

// take is the other half of transfer.
func (o *op) take(c *conn, n int) {
	e := c.e
	m := e.mem(n+2*margin, ib.LocalWrite|o.access)
	if o.pulls {
		m.put(margin, pattern(1, n))
	}
	switch {
	case o.recv:
		c.recv(1, m.sgl(margin, n))
	case o.unseen(c):
		c.recv(2, nil)
	}
	m.expose()
	switch {
	case o.recv:
		o.received(c, n)
	case o.unseen(c):
		c.rq.received(2, 0)
	}
	if !o.pulls {
		m.want(margin, pattern(1, n))
	}
	e.sync("moved")
	m.check()
	if c.rq != nil {
		c.rq.empty()
	}
}

// received checks the completion of receive 1.
func (o *op) received(c *conn, n int) {
	want := ib.WCRecv
	if o.wr == ib.WRWriteImm {
		want = ib.WCRecvImm
	}
	wc := c.rq.done(1, want)
	if int(wc.ByteLen) != n {
		c.e.fatalf("receive of %d bytes says %d", n, wc.ByteLen)
	}
	withImm := o.wr == ib.WRWriteImm || o.wr == ib.WRSendImm
	if has := wc.Flags&ib.WCWithImm != 0; has != withImm || withImm && wc.Imm != imm(1) {
		c.e.fatalf("receive has immediate: %v, %#x; want %v, %#x", has, wc.Imm, withImm, imm(1))
	}
	if wc.QPN != c.qp.Num() {
		c.e.fatalf("receive completes for QP %#x, not %#x", wc.QPN, c.qp.Num())
	}
}

// many is a number of messages that exceeds the queues.
const many = 5 * depth

// manySends keeps the send queue full; all messages differ in length.
func manySends(e *End) {
	c := e.connect()
	m := e.mem(many, ib.LocalWrite)
	hear[bool](e, "receives posted")
	for i := range many {
		if i >= depth {
			c.sq.done(uint64(i-depth), ib.WCSend)
		}
		c.post(ib.SendWR{ID: uint64(i), Opcode: ib.WRSend, SGL: m.sgl(0, i)})
	}
	for i := many - depth; i < many; i++ {
		c.sq.done(uint64(i), ib.WCSend)
	}
}

func manyReceives(e *End) {
	c := e.connect()
	m := e.mem(many, ib.LocalWrite)
	for i := range depth {
		c.recv(uint64(i), m.all())
	}
	e.tell("receives posted", true)
	for i := range many {
		c.rq.received(uint64(i), i)
		if i+depth < many {
			c.recv(uint64(i+depth), m.all())
		}
	}
}

// bothWays runs the same at both ends: WRITEs in both directions at the same time.
func bothWays(e *End) {
	const n = 20_000
	c := e.connect()
	out := e.mem(n, ib.LocalWrite)
	in := e.mem(n, ib.LocalWrite|ib.RemoteWrite)
	out.put(0, pattern(uint64(len(e.role)), n))
	in.expose()
	r := e.peerMem()
	for i := range 8 {
		c.post(ib.SendWR{ID: uint64(i), Opcode: ib.WRWrite, SGL: out.all(), RemoteAddr: r.Addr, RKey: r.RKey})
	}
	for i := range 8 {
		c.sq.done(uint64(i), ib.WCWrite)
	}
	e.sync("written")
	other := Active
	if e.role == Active {
		other = Passive
	}
	in.want(0, pattern(uint64(len(other)), n))
	in.check()
	out.check()
}

func nearWrap(s *setup) { s.psn = ib.PSNMask - 1 }

func psnWraps(e *End) {
	c := e.connect(nearWrap)
	opWrite.transfer(c, 5*int(e.mtu()))
}

func psnWrapsPassive(e *End) {
	c := e.connect(nearWrap)
	opWrite.take(c, 5*int(e.mtu()))
}

// earlySend sends before the peer's QP has left INIT: the request is retransmitted until it is answered.
func earlySend(e *End) {
	quick := func(s *setup) { s.timeout = shortTimeout + 2 }
	c := e.newConn(quick)
	m := e.mem(64, ib.LocalWrite)
	m.put(0, pattern(5, 64))
	c.meet()
	c.rtr()
	c.rts()
	c.post(ib.SendWR{ID: 1, Opcode: ib.WRSend, SGL: m.all()})
	e.tell("sent", true)
	c.sq.done(1, ib.WCSend)
}

func lateReady(e *End) {
	c := e.newConn()
	m := e.mem(64, ib.LocalWrite)
	c.meet()
	c.recv(1, m.all())
	hear[bool](e, "sent")
	c.rtr()
	c.rq.received(1, 64)
	m.want(0, pattern(5, 64))
	m.check()
	c.rts()
}
