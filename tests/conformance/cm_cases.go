package conformance

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/goroce/goroce/ib"
)

// cmCases: what a program of rdma_cm may rely on.
func cmCases() []Case {
	return needCM([]Case{
		{Name: "cm/connect/rc", Active: cmDial(ib.RC), Passive: cmAccept(ib.RC)},
		{Name: "cm/connect/uc", Active: cmDial(ib.UC), Passive: cmAccept(ib.UC)},
		{Name: "cm/connect/parameters", Active: cmParamsActive, Passive: cmParamsPassive},
		{Name: "cm/connect/private-data", Active: cmPrivateActive, Passive: cmPrivatePassive},
		{Name: "cm/connect/data-instead-of-rtu", Active: cmEarlyData, Passive: cmNotified},
		{Name: "cm/reject/consumer", Active: cmRejectedFor([]int{28}), Passive: cmRejectFor([]int{28})},
		{Name: "cm/reject/vendor-option", Active: cmRejectedFor([]int{35}), Passive: cmRejectFor([]int{35})},
		{Name: "cm/reject/every-reason", Active: cmRejectedFor(cmReasons), Passive: cmRejectFor(cmReasons)},
		{Name: "cm/reject/reason-timeout", Active: cmRejectedFor([]int{4}), Passive: cmRejectFor([]int{4})},
		{Name: "cm/reject/the-answer", Active: cmRejectAnswer, Passive: cmAnswerRejected},
		{Name: "cm/reject/by-close", Active: cmRejectedFor([]int{28}), Passive: cmCloseRequest},
		{Name: "cm/reject/nobody-listens", Active: cmNobody(ib.RC, ib.CMRejected, 8), Passive: cmUnusedPort},
		{Name: "cm/backlog", Active: cmBeyondBacklog, Passive: cmBacklog},
		{Name: "cm/timeout/no-answer", Active: cmSilence(ib.RC), Passive: cmSilent},
		{Name: "cm/timeout/no-answer-ud", Active: cmSilence(ib.UD), Passive: cmMute(ib.UD)},
		{Name: "cm/timeout/tells-how-often-it-asked", Active: cmCountsTries, Passive: cmMute(ib.RC)},
		{Name: "cm/disconnect/by-the-active", Active: cmEnds(ib.RC, true, cmDialed), Passive: cmEnds(ib.RC, false,
			cmAccepted)},
		{Name: "cm/disconnect/by-the-passive", Active: cmEnds(ib.RC, false, cmDialed), Passive: cmEnds(ib.RC, true,
			cmAccepted)},
		{Name: "cm/disconnect/by-both", Active: cmBothEnd(cmDialed), Passive: cmBothEnd(cmAccepted)},
		{Name: "cm/disconnect/by-close", Active: cmClosed, Passive: cmEnds(ib.RC, false, cmAccepted)},
		{Name: "cm/disconnect/by-closed-channel", Active: cmChannelClosed, Passive: cmEnds(ib.RC, false, cmAccepted)},
		{Name: "cm/ud/resolve", Active: cmResolve(ib.DefaultCMQKey), Passive: cmDatagrams(0)},
		{Name: "cm/ud/q-key", Active: cmResolve(0x1234), Passive: cmDatagrams(0x1234)},
		{Name: "cm/ud/reject", Active: cmUDRejected, Passive: cmUDReject},
		{Name: "cm/ud/nobody-listens", Active: cmNobody(ib.UD, ib.CMUnreachable, 1), Passive: cmUnusedPort},
		{Name: "cm/multicast/join", Alone: cmJoin},
		{Name: "cm/multicast/datagrams", Active: mcastSend, Passive: cmMember},
		{Name: "cm/ports/in-use", Alone: cmPortInUse},
		{Name: "cm/ports/wildcards", Alone: cmWildcards},
		{Name: "cm/ports/reuse", Alone: cmReuse},
		{Name: "cm/ports/ephemeral", Alone: cmEphemeral},
		{Name: "cm/ports/foreign-address", Alone: cmForeign},
		{Name: "cm/migrate", Alone: cmMigrate},
		{Name: "cm/close-drops-events", Alone: cmDropEvents},
		{Name: "cm/wrong-state", Alone: cmWrongState},
		{Name: "cm/queue-pair-of-nobody", Active: cmNoQP, Passive: cmListens},
	})
}

// needCM adds the need of a connection manager on both sides.
func needCM(cases []Case) []Case {
	for i := range cases {
		cases[i].Needs = both(ib.CapCM)
	}
	return cases
}

// cmDialed and cmAccepted make a connection.
func cmDialed(c *channel, t ib.QPType) (*cmID, *conn) {
	id, q, _ := c.dial(t)
	return id, q
}

func cmAccepted(c *channel, t ib.QPType) (*cmID, *conn) {
	id, q, _ := c.accept(t)
	return id, q
}

// cmDial connects, sends a message, and disconnects.
func cmDial(t ib.QPType) func(*End) {
	return func(e *End) {
		c := e.newCM()
		id, q := cmDialed(c, t)
		e.sync("receive posted")
		q.do(ib.SendWR{ID: 1, Opcode: ib.WRSend, Flags: ib.SendInline, Inline: []byte("hello")})
		id.hangUp(true)
	}
}

func cmAccept(t ib.QPType) func(*End) {
	return func(e *End) {
		c := e.newCM()
		id, q := cmAccepted(c, t)
		q.recv(1, e.mem(16, ib.LocalWrite).sgl(0, 16))
		e.sync("receive posted")
		q.rq.received(1, 5)
		id.hangUp(false)
	}
}

func cmParamsActive(e *End) {
	c := e.newCM()
	id, q, ev := c.dial(ib.RC, func(p *ib.CMConnParam) {
		p.ResponderResources, p.InitiatorDepth, p.RetryCount = 3, 2, 5
	})
	// Those of the passive end count, even where they exceed what was asked for. rdma_rxe rounds up to powers of two.
	if p := ev.Param; p.ResponderResources != 1 || p.InitiatorDepth != 8 {
		e.fatalf("the answer: %d responder resources, initiator depth %d; want 1, 8", p.ResponderResources,
			p.InitiatorDepth)
	}
	if a := q.query(); a.MaxDestRdAtomic != 1 || a.MaxRdAtomic != 8 || a.RetryCnt != 5 || a.DestQPN != hear[ib.QPN](e,
		"QPN") {
		e.fatalf("the QP has %+v", a)
	}
	local, err := id.Query()
	e.must(err, "query")
	e.tell("address", local.Local)
	if local.Remote.Addr() != e.peer.GID.Addr() || local.Local.Addr() != e.s.me.GID.Addr() ||
		local.AH.DGID != e.peer.GID {
		e.fatalf("the ID has %+v", local)
	}
	id.hangUp(true)
}

func cmParamsPassive(e *End) {
	c := e.newCM()
	id, q, ev := c.accept(ib.RC, func(p *ib.CMConnParam) { p.ResponderResources, p.InitiatorDepth = 8, 1 })
	if p := ev.Param; p.ResponderResources != 2 || p.InitiatorDepth != 3 || p.RetryCount != 5 {
		e.fatalf("the request: %d responder resources, initiator depth %d, %d retries; want 2, 3, 5",
			p.ResponderResources, p.InitiatorDepth, p.RetryCount)
	}
	e.tell("QPN", q.qp.Num())
	far, err := id.Query()
	e.must(err, "query")
	if want := hear[netip.AddrPort](e, "address"); far.Remote != want {
		e.fatalf("the peer has address %v, want %v", far.Remote, want)
	}
	id.hangUp(false)
}

// cmLens tries private data of most+1 bytes, which must be refused, and of most bytes.
func (c *channel) cmLens(what string, most int, try func([]byte) error) {
	c.e.is(try(make([]byte, most+1)), what+" with too much private data", ib.ErrPrivateData)
	c.e.must(try([]byte(strings.Repeat("x", most))), "%s with %d bytes of private data", what, most)
}

func cmPrivateActive(e *End) {
	c := e.newCM()
	q, init := c.cmService(ib.RC)
	id := c.towards(init)
	p := cmParam(q)
	c.cmLens("Connect", 56, func(b []byte) error { p.PrivateData = b; return id.Connect(p) })
	c.holds("the answer", c.next(ib.CMConnectResponse).Param.PrivateData, strings.Repeat("x", 196), 196)
	c.cmLens("Reject", 148, func(b []byte) error { return id.Reject(ib.CMReject{PrivateData: b}) })

	id = c.towards(init)
	p.PrivateData = []byte("a")
	e.must(id.Connect(p), "connect")
	c.holds("the refusal", c.failed(ib.CMRejected, 28).Param.PrivateData, "b", 148)
}

func cmPrivatePassive(e *End) {
	c := e.newCM()
	q, init := c.cmService(ib.RC)
	l := c.listen(init, 0)
	id, ev := c.request()
	c.holds("the request", ev.Param.PrivateData, strings.Repeat("x", 56), 56)
	id.up(q)
	p := cmParam(q)
	c.cmLens("Accept", 196, func(b []byte) error { p.PrivateData = b; return id.Accept(p) })
	c.holds("the refusal", c.failed(ib.CMRejected, 28).Param.PrivateData, strings.Repeat("x", 148), 148)

	e.tell("port", l.port())
	id, ev = c.request()
	c.holds("the request", ev.Param.PrivateData, "a", 56)
	e.must(id.Reject(ib.CMReject{PrivateData: []byte("b")}), "reject")
}

// cmEarlyData sends before it calls Establish.
func cmEarlyData(e *End) {
	c := e.newCM()
	q, init := c.cmService(ib.RC)
	id := c.towards(init)
	e.must(id.Connect(cmParam(q)), "connect")
	c.next(ib.CMConnectResponse)
	id.up(q)
	q.do(ib.SendWR{ID: 1, Opcode: ib.WRSend, Flags: ib.SendInline, Inline: []byte("early")})
	hear[bool](e, "established")
	e.must(id.Establish(), "establish")
	id.hangUp(true)
}

func cmNotified(e *End) {
	c := e.newCM()
	q, init := c.cmService(ib.RC)
	q.recv(1, e.mem(16, ib.LocalWrite).sgl(0, 16))
	c.listen(init, 0)
	id, _ := c.request()
	id.up(q)
	e.must(id.Accept(cmParam(q)), "accept")
	q.rq.received(1, 5)
	e.must(id.Notify(ib.EventCommEst), "notify")
	c.next(ib.CMEstablished)
	e.must(id.Notify(ib.EventCommEst), "notify once more")
	e.tell("established", true)
	id.hangUp(false)
}

// cmReasons are the reasons of a REJ (IBTA 12.6.7.2) except 4, timeout, by which a peer gives an
// attempt up.
var cmReasons = []int{1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26,
	27, 28, 29, 30, 31, 32, 33, 35}

// cmRejectedFor asks once for each reason, which is in the private data. Each request has its own QP: one that comes
// while the other half still handles a repeated REQ of the same QP is stale.
func cmRejectedFor(reasons []int) func(*End) {
	return func(e *End) {
		c := e.newCM()
		port := hear[uint16](e, "port")
		for _, r := range reasons {
			q, init := c.cmService(ib.RC)
			id := c.towardsPort(init, port)
			p := cmParam(q)
			p.PrivateData = []byte{byte(r)}
			e.must(id.Connect(p), "connect")
			c.failed(ib.CMRejected, r)
			e.must(id.Close(), "close")
		}
	}
}

// cmRejectFor answers with the reason that is asked for. A REQ that was sent again because the REJ took long makes
// another request in Linux, where the first is forgotten.
func cmRejectFor(reasons []int) func(*End) {
	return func(e *End) {
		c := e.newCM()
		c.listen(ib.CMIDInit{}, 0)
		for next := 0; next < len(reasons); {
			id, ev := c.request()
			r := int(ev.Param.PrivateData[0])
			e.must(id.Reject(ib.CMReject{Reason: ib.RejectReason(r)}), "reject with reason %d", r)
			e.is(id.Reject(ib.CMReject{}), "rejecting once more", ib.ErrState)
			e.must(id.Close(), "close")
			if r == reasons[next] {
				next++
			}
		}
	}
}

func cmCloseRequest(e *End) {
	c := e.newCM()
	c.listen(ib.CMIDInit{}, 0)
	id, _ := c.request()
	e.must(id.Close(), "close the request")
}

func cmRejectAnswer(e *End) {
	c := e.newCM()
	q, init := c.cmService(ib.RC)
	id := c.towards(init)
	e.must(id.Connect(cmParam(q)), "connect")
	c.next(ib.CMConnectResponse)
	e.must(id.Reject(ib.CMReject{}), "reject the answer")
	e.sync("rejected")
	c.none()
}

func cmAnswerRejected(e *End) {
	c := e.newCM()
	q, init := c.cmService(ib.RC)
	c.listen(init, 0)
	id, _ := c.request()
	id.up(q)
	e.must(id.Accept(cmParam(q)), "accept")
	c.failed(ib.CMRejected, 28)
	e.sync("rejected")
}

// cmNobody connects to a port without a listener.
func cmNobody(t ib.QPType, want ib.CMEventType, status int) func(*End) {
	return func(e *End) {
		c := e.newCM()
		id := c.towards(ib.CMIDInit{Type: t})
		e.must(id.Connect(cmParam(e.newConn())), "connect")
		c.failed(want, status)
	}
}

// cmUnusedPort exposes a port that had a listener.
func cmUnusedPort(e *End) {
	c := e.newCM()
	id := c.newID(ib.CMIDInit{})
	e.must(id.Listen(1), "listen")
	port := id.port()
	e.must(id.Close(), "close")
	e.tell("port", port)
}

// cmBacklog has room for two requests. It reads when the other half has sent three; the third gets in as its sender
// repeats it. A REQ that was repeated before its REJ arrived makes another request in Linux, where the first is
// forgotten.
func cmBacklog(e *End) {
	c := e.newCM()
	c.listen(ib.CMIDInit{}, 2)
	hear[bool](e, "three requests were sent")
	rejected := map[byte]bool{}
	for len(rejected) < 3 {
		id, ev := c.request()
		e.must(id.Reject(ib.CMReject{}), "reject")
		rejected[ev.Param.PrivateData[0]] = true
	}
}

// cmBeyondBacklog sends one request more than there is room for. None fails before it is read. The private data number
// the requests.
func cmBeyondBacklog(e *End) {
	c := e.newCM()
	port := hear[uint16](e, "port")
	for n := range byte(3) {
		q, init := c.cmService(ib.RC)
		p := cmParam(q)
		p.PrivateData = []byte{n}
		e.must(c.towardsPort(init, port).Connect(p), "connect")
	}
	e.tell("three requests were sent", true)
	for range 3 {
		c.failed(ib.CMRejected, 28)
	}
}

// shortly is the timeout of a request that is not answered.
const shortly = 500 * time.Millisecond

// unanswered connects with a new ID until the other half has read a request before it was given up, and returns that
// ID and the event that ended the attempt. A request that is given up first has no event, so the other half, if it is
// that late, must be asked again.
func (c *channel) unanswered(t ib.QPType) (*cmID, ib.CMConnParam, ib.CMEvent) {
	port := hear[uint16](c.e, "port")
	for {
		q, init := c.cmService(t)
		id := c.towardsPort(init, port)
		p := cmParam(q)
		p.Timeout = shortly
		c.e.must(id.Connect(p), "connect")
		ev := c.failed(ib.CMUnreachable, -110)
		c.e.tell("gave up", true)
		if hear[bool](c.e, "read the request") {
			return id, p, ev
		}
	}
}

// unansweredRequest is the other half of unanswered. The request that it returns has been given up.
func (c *channel) unansweredRequest() *cmID {
	for {
		ev, ok := c.nextUntil("gave up")
		c.e.tell("read the request", ok)
		switch {
		case !ok:
		case ev.Type != ib.CMConnectRequest:
			c.e.fatalf("event %v, status %d; want %v", ev.Type, ev.Status, ib.CMConnectRequest)
		default:
			return c.owned(ev.ID)
		}
	}
}

// cmSilence is not answered in its time.
func cmSilence(t ib.QPType) func(*End) {
	return func(e *End) {
		id, p, _ := e.newCM().unanswered(t)
		e.is(id.Connect(p), "connecting once more", ib.ErrState)
	}
}

// cmCountsTries says how often it has asked.
func cmCountsTries(e *End) {
	if _, _, ev := e.newCM().unanswered(ib.RC); ev.Tries < 1 {
		e.fatalf("asked %d times", ev.Tries)
	}
}

// cmMute does not answer.
func cmMute(t ib.QPType) func(*End) {
	return func(e *End) {
		c := e.newCM()
		c.listen(ib.CMIDInit{Type: t}, 0)
		c.unansweredRequest()
	}
}

// cmSilent does not answer, and gets the event that the peer has given up.
func cmSilent(e *End) {
	c := e.newCM()
	c.listen(ib.CMIDInit{}, 0)
	id := c.unansweredRequest()
	c.failed(ib.CMRejected, 4)
	q := e.newConn()
	e.is(id.Accept(cmParam(q)), "accepting what was taken back", ib.ErrState)
}

// cmEnds makes a connection, and disconnects or waits for the peer's disconnect.
func cmEnds(t ib.QPType, first bool, connect func(*channel, ib.QPType) (*cmID, *conn)) func(*End) {
	return func(e *End) {
		id, _ := connect(e.newCM(), t)
		id.hangUp(first)
		id.c.none()
	}
}

func cmBothEnd(connect func(*channel, ib.QPType) (*cmID, *conn)) func(*End) {
	return func(e *End) {
		id, _ := connect(e.newCM(), ib.RC)
		e.sync("connected")
		id.hangUp(true)
		id.c.none()
	}
}

func cmClosed(e *End) {
	id, _ := cmDialed(e.newCM(), ib.RC)
	e.must(id.Close(), "close the ID of a connection")
	id.c.none()
}

func cmChannelClosed(e *End) {
	c := e.newCM()
	id, _ := cmDialed(c, ib.RC)
	e.must(c.ch.Close(), "close the channel of a connection")
	_, err := c.ch.NextEvent(e.ctx)
	e.is(err, "reading a closed channel", ib.ErrClosed)
	e.is(id.Disconnect(), "disconnecting a closed ID", ib.ErrClosed)
}

func cmMigrate(e *End) {
	from, to := e.newCM(), e.newCM()
	id := from.newID(ib.CMIDInit{})
	e.must(id.ResolveAddr(e.at(0), e.at(7), time.Second), "resolve")
	e.must(id.Migrate(to.ch), "migrate")
	from.none()
	if ev := to.next(ib.CMAddrResolved); ev.ID != id.CMID {
		e.fatalf("the event that moved is of another ID")
	}
	e.must(id.ResolveRoute(time.Second), "resolve route")
	to.next(ib.CMRouteResolved)
	e.must(from.ch.Close(), "close the old channel")
	_, err := id.Query()
	e.must(err, "query the ID that moved")
}

func cmDropEvents(e *End) {
	c := e.newCM()
	id := c.newID(ib.CMIDInit{})
	e.must(id.ResolveAddr(e.at(0), e.at(7), time.Second), "resolve")
	e.must(id.Close(), "close")
	e.must(id.Close(), "close again")
	c.none()
}

func cmWrongState(e *End) {
	c := e.newCM()
	q := e.newConn()
	for name, call := range map[string]func(*cmID) error{
		"ResolveRoute": func(id *cmID) error { return id.ResolveRoute(time.Second) },
		"Connect":      func(id *cmID) error { return id.Connect(cmParam(q)) },
		"Accept":       func(id *cmID) error { return id.Accept(cmParam(q)) },
		"Establish":    func(id *cmID) error { return id.Establish() },
		"Reject":       func(id *cmID) error { return id.Reject(ib.CMReject{}) },
		"Disconnect":   func(id *cmID) error { return id.Disconnect() },
		"InitQPAttr":   func(id *cmID) error { _, _, err := id.InitQPAttr(ib.StateRTR); return err },
	} {
		e.is(call(c.newID(ib.CMIDInit{})), fmt.Sprintf("%s on a new ID", name), ib.ErrState)
	}
	id := c.newID(ib.CMIDInit{})
	e.must(id.Bind(e.at(0)), "bind")
	e.is(id.Bind(e.at(0)), "binding twice", ib.ErrState)
	e.must(id.Listen(1), "listen")
	e.is(id.Listen(1), "listening twice", ib.ErrState)
	e.must(id.Disconnect(), "disconnecting a listener")
	e.is(id.ResolveAddr(e.at(0), e.at(7), time.Second), "resolving on a listener", ib.ErrState)
	everywhere := c.newID(ib.CMIDInit{})
	e.must(everywhere.Listen(1), "listen at all addresses")
	e.is(everywhere.Disconnect(), "disconnecting a listener at all addresses", ib.ErrState)
	c.none()
}

// cmNoQP accepts or connects with a QP that does not exist.
func cmNoQP(e *End) {
	c := e.newCM()
	id := c.towards(ib.CMIDInit{})
	e.names(id.Connect(ib.CMConnParam{QPN: 0xFFFFF0}), "connecting a QP that is nobody's", "QPN", ib.ErrInvalid)
	e.sync("refused")
}

func cmListens(e *End) {
	c := e.newCM()
	c.listen(ib.CMIDInit{}, 0)
	e.sync("refused")
	c.none()
}
