package conformance

import (
	"fmt"
	"time"

	"github.com/goroce/goroce/ib"
)

// defaultQKey is the Q_Key of all UD queue pairs of the suite.
const defaultQKey = 0x11111111

// endpoint is a UD queue pair that knows a queue pair of the other half.
type endpoint struct {
	*conn
	ah ib.AH // destination: the other half's device
}

// datagram creates a UD queue pair and tells the other half its address.
func (e *End) datagram(change ...func(*setup)) *endpoint {
	c := e.newConn(append([]func(*setup){func(s *setup) { s.init.Type = ib.UD }}, change...)...)
	c.meet()
	c.rtr()
	c.rts()
	d := &endpoint{c, e.newAH(c.s.pd, nil)}
	e.sync("connected")
	return d
}

// address sets the destination of a request to the other half's queue pair.
func (d *endpoint) address(wr *ib.SendWR) {
	wr.AH, wr.RemoteQPN, wr.RemoteQKey = d.ah.Num(), d.peer.QPN, defaultQKey
}

// message returns a SEND to the other half's queue pair.
func (d *endpoint) message(id uint64, sgl []ib.SGE) ib.SendWR {
	wr := ib.SendWR{ID: id, Opcode: ib.WRSend, SGL: sgl}
	d.address(&wr)
	return wr
}

func udCases() []Case {
	var list []Case
	for _, o := range []op{opSend, opSendImm} {
		for _, s := range sizes[:6] { // up to the path MTU
			list = append(list, Case{
				Name:    fmt.Sprintf("ud/%s/size/%s", o.name, s.name),
				Active:  func(e *End) { udSend(e, o, s.of(int(e.mtu()))) },
				Passive: func(e *End) { udReceive(e, o, s.of(int(e.mtu()))) },
			})
		}
	}
	for _, b := range udMistakes {
		list = append(list, Case{Name: "ud/silent/" + b.name, Active: func(e *End) { udSilent(e, b) },
			Passive: func(e *End) { udSilentPassive(e, b) }})
	}
	for _, b := range ahMistakes {
		list = append(list, Case{Name: "ud/address-handle/" + b.name, Active: func(e *End) { udBadAH(e, b.make) },
			Passive: udSilence})
	}
	return append(list,
		Case{Name: "ud/silent/no-receive", Active: udNoReceive, Passive: udNoReceivePassive},
		Case{Name: "ud/longer-than-the-mtu", Active: udTooLong, Passive: udSilence},
		Case{Name: "ud/reply-to-the-completion", Active: udAsk, Passive: udAnswer},
		Case{Name: "ud/own-qkey-by-the-high-bit", Active: udOwnQKey, Passive: func(e *End) { udReceive(e, opSend, 8) }},
		Case{Name: "ud/one-queue-pair-to-many", Active: udToMany, Passive: udMany},
		Case{Name: "ud/gathers-and-scatters", Active: udGather, Passive: udScatter},
		Case{Name: "ud/traffic-class-arrives", Active: udTrafficClass, Passive: udTrafficClassPassive},
		Case{Name: "ud/failure-stops-only-the-send-queue", Active: sendQueueError(ib.UD),
			Passive: sendQueueErrorPassive(ib.UD)},
		Case{Name: "ud/only-sends", Alone: func(e *End) {
			c := e.into(ib.StateRTS, func(s *setup) { s.init.Type = ib.UD })
			m := e.mem(8, ib.LocalWrite)
			for _, o := range []op{opWrite, opRead, opCAS} {
				_, err := c.qp.PostSend([]ib.SendWR{o.request(1, m.all(), m.remote())})
				e.names(err, "posting "+o.name+" on UD", "Opcode", ib.ErrNotSupported, ib.ErrInvalid)
			}
		}},
		Case{Name: "ud/needs-a-qkey", Alone: func(e *End) {
			c := e.into(ib.StateReset, func(s *setup) { s.init.Type = ib.UD })
			err := c.qp.Modify(ib.QPAttr{State: ib.StateInit, Port: 1}, ib.AttrState|ib.AttrPKeyIndex|ib.AttrPort)
			e.names(err, "modify UD to INIT without a Q_Key", "mask", ib.ErrInvalid)
		}},
		Case{Name: "ud/qkey-changes", Active: udQKeyChanges, Passive: udQKeyChangesPassive},
	)
}

func udSend(e *End, o op, n int) {
	d := e.datagram()
	m := e.mem(n+2*margin, 0)
	m.put(margin, pattern(1, n))
	hear[bool](e, "receive posted")
	wr := o.request(1, m.sgl(margin, n), remote{})
	d.address(&wr)
	d.do(wr)
	m.check()
	e.sync("moved")
}

// udReceive checks a received datagram: the payload after 40 bytes, and the sender in the completion.
func udReceive(e *End, o op, n int) {
	d := e.datagram()
	m := e.mem(ib.GRHLen+n+margin, ib.LocalWrite)
	d.recv(1, m.sgl(0, ib.GRHLen+n))
	e.tell("receive posted", true)
	o.received(&conn{e: e, qp: d.qp, rq: &queue{e: e, cq: d.rq.cq, ch: d.rq.ch}}, ib.GRHLen+n)
	d.seen(m, 0, pattern(1, n))
	e.sync("moved")
}

// seen checks the payload of a datagram in memory. The first 40 bytes are for AHFromWC.
func (d *endpoint) seen(m *region, at int, payload []byte) {
	m.want(at, m.buf[at:at+ib.GRHLen])
	m.want(at+ib.GRHLen, payload)
	m.check()
}

// udMistake makes a datagram that the receiver drops without an answer.
type udMistake struct {
	name string
	wr   func(wr *ib.SendWR)
	room int // size of the receive, without the first 40 bytes
}

var udMistakes = []udMistake{
	{"wrong-qkey", func(wr *ib.SendWR) { wr.RemoteQKey++ }, 64},
	{"wrong-qpn", func(wr *ib.SendWR) { wr.RemoteQPN ^= 0x800000 }, 64},
	{"receive-too-short", func(*ib.SendWR) {}, 63},
}

// udSilent sends a datagram that is dropped, then one that arrives.
func udSilent(e *End, b udMistake) {
	d := e.datagram()
	m := e.mem(64, 0)
	m.put(0, pattern(1, 64))
	hear[bool](e, "ready")
	wr := d.message(1, m.all())
	b.wr(&wr)
	d.do(wr)
	d.do(d.message(2, m.sgl(0, 5)))
	e.sync("moved")
}

// udSilentPassive: the dropped datagram has not consumed the receive.
func udSilentPassive(e *End, b udMistake) {
	d := e.datagram()
	m := e.mem(ib.GRHLen+64, ib.LocalWrite)
	d.recv(1, m.sgl(0, ib.GRHLen+b.room))
	e.tell("ready", true)
	d.rq.received(1, ib.GRHLen+5)
	d.seen(m, 0, pattern(1, 5))
	d.wantState(ib.StateRTS)
	e.sync("moved")
}

// udNoReceive: a datagram without a receive causes no error at either end.
func udNoReceive(e *End) {
	d := e.datagram()
	m := e.mem(64, 0)
	d.do(d.message(1, m.all()))
	e.sync("sent")
	e.sync("receive posted")
	d.do(d.message(2, m.sgl(0, 5)))
	e.sync("moved")
}

func udNoReceivePassive(e *End) {
	d := e.datagram()
	m := e.mem(ib.GRHLen+64, ib.LocalWrite)
	e.sync("sent")
	e.linger(10 * time.Millisecond)
	d.recv(1, m.all())
	d.recv(2, m.all())
	e.sync("receive posted")
	wc := d.rq.next()
	if wc.ByteLen == ib.GRHLen+64 { // sent earlier
		wc = d.rq.next()
	}
	if wc.Status != ib.WCSuccess || wc.ByteLen != ib.GRHLen+5 {
		e.fatalf("receive %d: %v, %d bytes; want the datagram of 5", wc.ID, wc.Status, wc.ByteLen)
	}
	d.wantState(ib.StateRTS)
	e.sync("moved")
}

// udSilence receives nothing.
func udSilence(e *End) {
	d := e.datagram()
	m := e.mem(9000, ib.LocalWrite)
	d.recv(1, m.all())
	e.sync("receive posted")
	e.sync("failed")
	d.rq.empty()
	m.check()
}

// udTooLong: a datagram is one packet. A device may refuse it when it is posted.
func udTooLong(e *End) {
	d := e.datagram()
	m := e.mem(int(e.port.ActiveMTU)+1, 0)
	e.sync("receive posted")
	if _, err := d.qp.PostSend([]ib.SendWR{d.message(1, m.all())}); err != nil {
		e.is(err, "posting a datagram longer than the MTU", ib.ErrInvalid)
	} else {
		d.sq.fails(1, ib.WCLocLenErr)
	}
	e.sync("failed")
}

// ahMistakes are address handles that a request must not name.
var ahMistakes = []struct {
	name string
	make func(e *End) ib.AHNum
}{
	{"unknown", func(e *End) ib.AHNum { return 0x00F00000 }},
	{"zero", func(e *End) ib.AHNum { return 0 }},
	{"closed", func(e *End) ib.AHNum {
		ah := e.newAH(e.pd(), nil)
		e.must(ah.Close(), "close AH")
		return ah.Num()
	}},
	{"of-another-pd", func(e *End) ib.AHNum { return e.newAH(e.newPD(), nil).Num() }},
}

func udBadAH(e *End, make func(*End) ib.AHNum) {
	d := e.datagram()
	m := e.mem(8, 0)
	e.sync("receive posted")
	wr := d.message(1, m.all())
	wr.AH = make(e)
	if _, err := d.qp.PostSend([]ib.SendWR{wr}); err != nil {
		e.is(err, "posting with a bad address handle", ib.ErrInvalid, ib.ErrClosed, ib.ErrForeign)
	} else {
		d.sq.fails(1, ib.WCLocQPOpErr)
	}
	e.sync("failed")
}

// udAsk and udAnswer: the answer goes back to the sender of the datagram, found only by its completion and its first 40
// bytes.
func udAsk(e *End) {
	d := e.datagram()
	m := e.mem(ib.GRHLen+64, ib.LocalWrite)
	d.recv(1, m.all())
	hear[bool](e, "receive posted")
	d.do(d.message(1, m.sgl(0, 10)))
	wc := d.rq.received(1, ib.GRHLen+20)
	if wc.SrcQP != d.peer.QPN {
		e.fatalf("the answer is from QP %#x, not %#x", uint32(wc.SrcQP), uint32(d.peer.QPN))
	}
}

func udAnswer(e *End) {
	d := e.datagram()
	m := e.mem(ib.GRHLen+64, ib.LocalWrite)
	d.recv(1, m.all())
	e.tell("receive posted", true)
	wc := d.rq.received(1, ib.GRHLen+10)
	if wc.Flags&ib.WCGRH == 0 || wc.SrcQP != d.peer.QPN {
		e.fatalf("the datagram is from QP %#x, not %#x, GRH: %v", uint32(wc.SrcQP), uint32(d.peer.QPN),
			wc.Flags&ib.WCGRH != 0)
	}
	gids, err := e.dev.GIDs(1)
	e.must(err, "query GIDs")
	attr, err := ib.AHFromWC(gids, &wc, m.buf)
	e.must(err, "make an address vector from the completion")
	if attr.DGID != e.peer.GID || attr.SGIDIndex != e.s.me.GIDIndex {
		e.fatalf("the datagram came from %v to row %d, not from %v to row %d", attr.DGID.Addr(), attr.SGIDIndex,
			e.peer.GID.Addr(), e.s.me.GIDIndex)
	}
	back := e.newAH(e.pd(), func(a *ib.AHAttr) { *a = attr })
	d.do(ib.SendWR{ID: 1, Opcode: ib.WRSend, SGL: m.sgl(0, 20), AH: back.Num(), RemoteQPN: wc.SrcQP,
		RemoteQKey: defaultQKey})
}

// udOwnQKey: a Q_Key with the highest bit set stands for the sender's own (IBTA
// 10.2.5).
func udOwnQKey(e *End) {
	d := e.datagram()
	m := e.mem(8, 0)
	m.put(0, pattern(1, 8))
	hear[bool](e, "receive posted")
	wr := d.message(1, m.all())
	wr.RemoteQKey = 0x80000000 | 0x1234
	d.do(wr)
	e.sync("moved")
}

const udPeers = 4

func udToMany(e *End) {
	d := e.datagram()
	m := e.mem(64, 0)
	for i, qpn := range hear[[]ib.QPN](e, "queue pairs") {
		wr := d.message(uint64(i), m.sgl(0, i))
		wr.RemoteQPN = qpn
		d.do(wr)
	}
}

func udMany(e *End) {
	d := e.datagram()
	m := e.mem(udPeers*64, ib.LocalWrite)
	var list []ib.QPN
	var conns []*conn
	for i := range udPeers {
		c := e.into(ib.StateRTS, func(s *setup) { s.init.Type = ib.UD })
		c.recv(uint64(i), m.sgl(64*i, 64))
		conns, list = append(conns, c), append(list, c.qp.Num())
	}
	e.tell("queue pairs", list)
	for i, c := range conns {
		if wc := c.rq.received(uint64(i), ib.GRHLen+i); wc.SrcQP != d.peer.QPN {
			e.fatalf("the datagram is from QP %#x, not %#x", uint32(wc.SrcQP), uint32(d.peer.QPN))
		}
	}
}

func udGather(e *End) {
	d := e.datagram()
	m := e.mem(64, 0)
	m.put(0, pattern(1, 64))
	hear[bool](e, "receive posted")
	d.do(d.message(1, []ib.SGE{m.sge(0, 10), m.sge(20, 0), m.sge(30, 20)}))
}

// udScatter splits the first 40 bytes between two pieces of memory.
func udScatter(e *End) {
	d := e.datagram()
	m := e.mem(200, ib.LocalWrite)
	d.recv(1, []ib.SGE{m.sge(0, 13), m.sge(50, 30), m.sge(100, 50)})
	e.tell("receive posted", true)
	d.rq.received(1, ib.GRHLen+30)
	sent := pattern(1, 64)
	payload := append(append([]byte{}, sent[:10]...), sent[30:50]...)
	m.want(0, m.buf[:13])
	m.want(50, m.buf[50:77])
	m.want(77, payload[:3])
	m.want(100, payload[3:])
	m.check()
}

const trafficClass = 0x68

func udTrafficClass(e *End) {
	d := e.datagram()
	m := e.mem(8, 0)
	hear[bool](e, "receive posted")
	wr := d.message(1, m.all())
	wr.AH = e.newAH(e.pd(), func(a *ib.AHAttr) { a.TrafficClass = trafficClass }).Num()
	d.do(wr)
}

func udTrafficClassPassive(e *End) {
	d := e.datagram()
	m := e.mem(ib.GRHLen+8, ib.LocalWrite)
	d.recv(1, m.all())
	e.tell("receive posted", true)
	wc := d.rq.received(1, ib.GRHLen+8)
	gids, err := e.dev.GIDs(1)
	e.must(err, "query GIDs")
	attr, err := ib.AHFromWC(gids, &wc, m.buf)
	e.must(err, "make an address vector from the completion")
	// Routers may use the two ECN bits (RFC 3168).
	if attr.TrafficClass&^3 != trafficClass&^3 {
		e.fatalf("the traffic class is %#x, want %#x", attr.TrafficClass, trafficClass)
	}
}

// udQKeyChanges: the current Q_Key decides which datagrams a queue pair accepts.
func udQKeyChanges(e *End) {
	d := e.datagram()
	m := e.mem(8, 0)
	hear[bool](e, "changed")
	d.do(d.message(1, m.sgl(0, 1)))
	wr := d.message(2, m.sgl(0, 2))
	wr.RemoteQKey = 0x2222
	d.do(wr)
}

func udQKeyChangesPassive(e *End) {
	d := e.datagram()
	m := e.mem(100, ib.LocalWrite)
	d.recv(1, m.all())
	d.modify(ib.QPAttr{State: ib.StateRTS, QKey: 0x2222}, ib.AttrState|ib.AttrQKey)
	if got := d.query().QKey; got != 0x2222 {
		e.fatalf("the Q_Key is %#x after setting 0x2222", got)
	}
	e.tell("changed", true)
	d.rq.received(1, ib.GRHLen+2)
}
