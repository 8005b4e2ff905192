package conformance

import (
	"time"

	"github.com/goroce/goroce/ib"
)

// setup configures a connected queue pair. newSetup has the defaults.
type setup struct {
	init ib.QPInit
	pd   ib.PD
	srq  *sharedQueue // SRQ for receives

	access   ib.Access
	mtu      ib.MTU
	psn      ib.PSN // of the first packet that this end sends
	rdAtomic int    // initiator depth and responder resources
	minRNR   uint8
	timeout  uint8
	retry    uint8
	rnrRetry uint8
}

// Timeout codes: one for cases that wait for a peer that does not answer, and one for the others, which a slow guest
// must not reach.
const (
	shortTimeout = 12 // 17 ms
	longTimeout  = 18 // 1.1 s
)

// depth is the number of requests in a queue by default.
const depth = 16

// newSetup returns the defaults: RC, a CQ for each queue, and all requests signaled.
func (e *End) newSetup() *setup {
	return &setup{
		init: ib.QPInit{Type: ib.RC, SigAll: true, Cap: ib.QPCap{MaxSendWR: depth, MaxRecvWR: depth, MaxSendSGE: 4,
			MaxRecvSGE: 4, MaxInline: min(64, e.attr.MaxInline)}},
		pd: e.pd(), access: ib.RemoteWrite | ib.RemoteRead | ib.RemoteAtomic, mtu: e.mtu(), psn: 0x123456,
		rdAtomic: min(4, e.attr.MaxQPRdAtomic, e.attr.MaxQPInitRdAtom), minRNR: 1, timeout: longTimeout, retry: 7,
		rnrRetry: 7,
	}
}

// conn is a queue pair that is connected, or will be, to one of the other half.
type conn struct {
	e      *End
	s      *setup
	qp     ib.QP
	sq, rq *queue       // completions of the two work queues
	srq    *sharedQueue // where receives are posted if not to the queue pair
	peer   station
	ah     ib.AHAttr // address of the peer
}

// station is what an end of a connection tells the other one.
type station struct {
	QPN ib.QPN
	PSN ib.PSN
	SRQ uint32 // XRC: destination of requests
}

// connect creates a queue pair and connects it to the one that the other half creates by the same call. When it
// returns, both are ready.
func (e *End) connect(change ...func(*setup)) *conn {
	c := e.newConn(change...)
	c.meet()
	c.rtr()
	c.rts()
	e.sync("connected")
	return c
}

// newConn creates a queue pair and takes it to INIT.
func (e *End) newConn(change ...func(*setup)) *conn {
	s := e.newSetup()
	for _, f := range change {
		f(s)
	}
	c := &conn{e: e, s: s, srq: s.srq, ah: e.toPeer()}
	if s.init.SendCQ == nil && s.init.Type != ib.XRCTGT {
		c.sq = e.newQueue(max(s.init.Cap.MaxSendWR, depth) + 1)
		s.init.SendCQ = c.sq.cq
	}
	if s.init.RecvCQ == nil && s.init.Type != ib.XRCINI && s.init.Type != ib.XRCTGT {
		c.rq = e.newQueue(max(s.init.Cap.MaxRecvWR, depth) + 1)
		s.init.RecvCQ = c.rq.cq
	}
	c.qp = e.newQP(s.pd, s.init)
	c.toInit()
	return c
}

// on uses these CQs for the work queues.
func on(sq, rq *queue) func(*setup) {
	return func(s *setup) { s.init.SendCQ, s.init.RecvCQ = sq.cq, rq.cq }
}

// selective makes only requests with SendSignaled complete.
func selective(s *setup) { s.init.SigAll = false }

// impatient uses a short timeout and few retries for a peer that does not answer or has no receive.
func impatient(s *setup) { s.timeout, s.retry, s.rnrRetry = shortTimeout, 1, 0 }

// meet exchanges stations with the other half.
func (c *conn) meet() {
	mine := station{QPN: c.qp.Num(), PSN: c.s.psn}
	if c.srq != nil {
		mine.SRQ = c.srq.srq.Num()
	}
	c.e.tell("station", mine)
	c.peer = hear[station](c.e, "station")
}

// modify changes state and attributes.
func (c *conn) modify(a ib.QPAttr, mask ib.QPAttrMask) {
	c.e.must(c.qp.Modify(a, mask), "modify QP to %v with %v", a.State, mask)
}

// attrs returns the attributes for the setup and the peer, for all states.
func (c *conn) attrs() ib.QPAttr {
	s := c.s
	return ib.QPAttr{Port: 1, Access: s.access, QKey: defaultQKey,
		AH: c.ah, PathMTU: s.mtu, DestQPN: c.peer.QPN, RQPSN: c.peer.PSN, MaxDestRdAtomic: s.rdAtomic,
		MinRNRTimer: s.minRNR,
		SQPSN:       s.psn, MaxRdAtomic: s.rdAtomic, Timeout: s.timeout, RetryCnt: s.retry, RNRRetry: s.rnrRetry}
}

func (c *conn) to(state ib.QPState, mask ib.QPAttrMask) {
	a := c.attrs()
	a.State = state
	c.modify(a, mask)
}

func (c *conn) toInit() { c.to(ib.StateInit, ib.Required(c.s.init.Type, ib.StateInit)) }
func (c *conn) rtr()    { c.to(ib.StateRTR, ib.Required(c.s.init.Type, ib.StateRTR)) }
func (c *conn) rts()    { c.to(ib.StateRTS, ib.Required(c.s.init.Type, ib.StateRTS)) }
func (c *conn) reset()  { c.to(ib.StateReset, ib.AttrState) }
func (c *conn) err()    { c.to(ib.StateErr, ib.AttrState) }

// state queries the QP's state.
func (c *conn) state() ib.QPState { return c.query().State }

func (c *conn) query() ib.QPAttr {
	a, err := c.qp.Query()
	c.e.must(err, "query QP")
	return a
}

// wantState fails the half unless the QP reaches that state soon: a device may report an error before it has changed
// the state.
func (c *conn) wantState(want ib.QPState) {
	got := c.state()
	for end := time.Now().Add(5 * time.Second); got != want && time.Now().Before(end); got = c.state() {
		c.e.linger(time.Millisecond)
	}
	if got == want {
		return
	}
	c.e.fatalf("the QP is in %v, want %v", got, want)
}

// post posts send requests, which the device must accept. Requests of an XRC initiator go to the SRQ of the other half
// unless they have another number.
func (c *conn) post(wrs ...ib.SendWR) {
	for i := range wrs {
		if wrs[i].RemoteSRQ == 0 {
			wrs[i].RemoteSRQ = c.peer.SRQ
		}
	}
	n, err := c.qp.PostSend(wrs)
	if err != nil || n != len(wrs) {
		c.e.fatalf("post %d send requests (the first is %v): %d accepted: %w", len(wrs), wrs[0].Opcode, n, err)
	}
}

// recv posts a receive, which the device must accept.
func (c *conn) recv(id uint64, sgl []ib.SGE) {
	if c.srq != nil {
		c.srq.recv(id, sgl)
		return
	}
	if _, err := c.qp.PostRecv([]ib.RecvWR{{ID: id, SGL: sgl}}); err != nil {
		c.e.fatalf("post receive %d: %w", id, err)
	}
}

// do posts a request and waits for its successful completion.
func (c *conn) do(wr ib.SendWR) ib.WC {
	c.post(wr)
	return c.sq.done(wr.ID, wcOpcodes[wr.Opcode])
}

// broken fails the half unless the request, the last one posted, completes with status and takes the QP to ERR.
func (c *conn) broken(wr ib.SendWR, status ib.WCStatus) {
	c.post(wr)
	c.sq.fails(wr.ID, status)
	c.wantState(ib.StateErr)
}

// wcOpcodes are the opcodes of completions of successful requests.
var wcOpcodes = map[ib.WROpcode]ib.WCOpcode{
	ib.WRSend: ib.WCSend, ib.WRSendImm: ib.WCSend, ib.WRSendInv: ib.WCSend, ib.WRWrite: ib.WCWrite,
	ib.WRWriteImm: ib.WCWrite,
	ib.WRRead:     ib.WCRead, ib.WRCompareSwap: ib.WCCompareSwap, ib.WRFetchAdd: ib.WCFetchAdd,
	ib.WRLocalInv: ib.WCLocalInv,
	ib.WRBindMW:   ib.WCBindMW, ib.WRFlush: ib.WCFlush, ib.WRAtomicWrite: ib.WCAtomicWrite,
}

// lonely creates a queue pair in RTS that is connected to itself, for cases that need no peer.
func (e *End) lonely(change ...func(*setup)) *conn {
	c := e.newConn(change...)
	c.peer, c.ah = station{QPN: c.qp.Num(), PSN: c.s.psn}, e.toSelf()
	c.rtr()
	c.rts()
	return c
}
