package conformance

import (
	"bytes"
	"context"
	"net/netip"
	"time"

	"github.com/goroce/goroce/ib"
)

// channel is an event channel of the connection manager.
type channel struct {
	e  *End
	ch ib.CM
}

func (e *End) newCM() *channel {
	ch, err := e.dev.(ib.CMDevice).OpenCM()
	e.must(err, "open an event channel of the connection manager")
	e.own("event channel", ch.Close)
	return &channel{e, ch}
}

// next waits for the next event, which must be of that type.
func (c *channel) next(want ib.CMEventType) ib.CMEvent {
	ev, err := c.ch.NextEvent(c.e.ctx)
	if err != nil {
		if c.e.ctx.Err() != nil {
			err = context.Cause(c.e.ctx)
		}
		c.e.fatalf("no event %v: %w", want, err)
	}
	if ev.Type != want {
		c.e.fatalf("event %v, status %d; want %v", ev.Type, ev.Status, want)
	}
	return ev
}

// nextUntil returns the next event, or false if there is none until the other half tells `told`. It waits for that in
// either case.
func (c *channel) nextUntil(told string) (ib.CMEvent, bool) {
	over, cancel := context.WithCancel(c.e.ctx)
	defer cancel()
	heard := make(chan error, 1)
	go func() {
		var v bool
		heard <- c.e.s.hear(c.e.ctx, told, &v)
		cancel()
	}()
	ev, err := c.ch.NextEvent(over)
	if err != nil && over.Err() == nil {
		c.e.fatalf("no event: %w", err)
	}
	c.e.must(<-heard, "hear %s", told)
	return ev, err == nil
}

// failed waits for the next event, which must have that type and status.
func (c *channel) failed(want ib.CMEventType, status int) ib.CMEvent {
	ev := c.next(want)
	if ev.Status != status && !c.e.apply(func(r rule) bool {
		return r.Effect.Kind == effectCM && r.Effect.WantCM == status && r.Effect.GotCM == ev.Status
	}) {
		c.e.fatalf("event %v with status %d, want %d", ev.Type, ev.Status, status)
	}
	return ev
}

// none fails the half if there is an event.
func (c *channel) none() {
	over, cancel := context.WithCancel(c.e.ctx)
	cancel()
	if ev, err := c.ch.NextEvent(over); err == nil {
		c.e.fatalf("event %v, status %d, that nothing calls for", ev.Type, ev.Status)
	}
}

// cmID is an ID of a channel.
type cmID struct {
	ib.CMID
	c *channel
}

func (c *channel) newID(init ib.CMIDInit) *cmID {
	id, err := c.ch.CreateID(init)
	c.e.must(err, "create CM ID")
	return c.owned(id)
}

// owned registers an ID to be closed after the case.
func (c *channel) owned(id ib.CMID) *cmID {
	c.e.own("CM ID", id.Close)
	return &cmID{id, c}
}

// at returns the address of a port of the device.
func (e *End) at(port uint16) netip.AddrPort { return netip.AddrPortFrom(e.s.me.GID.Addr(), port) }

// listen creates a listener at a free port, and tells the other half the port.
func (c *channel) listen(init ib.CMIDInit, backlog int) *cmID {
	id := c.newID(init)
	c.e.must(id.Bind(c.e.at(0)), "bind to %v", c.e.at(0))
	c.e.must(id.Listen(backlog), "listen")
	c.e.tell("port", id.port())
	return id
}

// port returns the ID's port.
func (id *cmID) port() uint16 {
	q, err := id.Query()
	id.c.e.must(err, "query CM ID")
	return q.Local.Port()
}

// request waits for a peer's request.
func (c *channel) request() (*cmID, ib.CMEvent) {
	ev := c.next(ib.CMConnectRequest)
	return c.owned(ev.ID), ev
}

// towards creates an ID that has resolved the other half's listener.
func (c *channel) towards(init ib.CMIDInit) *cmID {
	return c.towardsPort(init, hear[uint16](c.e, "port"))
}

func (c *channel) towardsPort(init ib.CMIDInit, port uint16) *cmID {
	id := c.newID(init)
	dst := netip.AddrPortFrom(c.e.peer.GID.Addr(), port)
	c.e.must(id.ResolveAddr(c.e.at(0), dst, 10*time.Second), "resolve %v", dst)
	c.next(ib.CMAddrResolved)
	c.e.must(id.ResolveRoute(10*time.Second), "resolve route")
	c.next(ib.CMRouteResolved)
	return id
}

// cmParam returns the parameters of both ends by default.
func cmParam(c *conn) ib.CMConnParam {
	return ib.CMConnParam{QPN: c.qp.Num(), ResponderResources: 1, InitiatorDepth: 1, RetryCount: 7, RNRRetry: 7}
}

// up takes the QP of c from INIT to RTS with the ID's attributes, which must be the same for RTR and RTS.
func (id *cmID) up(c *conn) {
	var before ib.QPAttr
	for _, state := range []ib.QPState{ib.StateRTR, ib.StateRTS} {
		attr, mask, err := id.InitQPAttr(state)
		id.c.e.must(err, "attributes for %v", state)
		attr.MinRNRTimer = 1
		c.modify(attr, mask)
		attr.State = 0
		if state == ib.StateRTS && attr != before {
			id.c.e.fatalf("attributes for RTR are %+v, for RTS %+v", before, attr)
		}
		before = attr
	}
}

// cmService creates a QP of that service in INIT, and returns the CMIDInit for it.
func (c *channel) cmService(t ib.QPType) (*conn, ib.CMIDInit) {
	return c.e.newConn(service(t)), ib.CMIDInit{Type: t}
}

// dial connects to the other half's listener.
func (c *channel) dial(t ib.QPType, change ...func(*ib.CMConnParam)) (*cmID, *conn, ib.CMEvent) {
	q, init := c.cmService(t)
	id := c.towards(init)
	p := cmParam(q)
	for _, f := range change {
		f(&p)
	}
	c.e.must(id.Connect(p), "connect")
	ev := c.next(ib.CMConnectResponse)
	id.up(q)
	c.e.must(id.Establish(), "establish")
	return id, q, ev
}

// accept accepts one request of a listener.
func (c *channel) accept(t ib.QPType, change ...func(*ib.CMConnParam)) (*cmID, *conn, ib.CMEvent) {
	q, init := c.cmService(t)
	c.listen(init, 0)
	id, ev := c.request()
	id.up(q)
	p := cmParam(q)
	for _, f := range change {
		f(&p)
	}
	c.e.must(id.Accept(p), "accept")
	c.next(ib.CMEstablished)
	return id, q, ev
}

// holds fails the half unless private data are text and zeros, n bytes in total.
func (c *channel) holds(what string, data []byte, text string, n int) {
	want := append([]byte(text), make([]byte, n-len(text))...)
	if !bytes.Equal(data, want) {
		c.e.fatalf("private data of %s: %d bytes %.20q, want %d bytes %.20q", what, len(data), data, n, text)
	}
}

// hangUp disconnects, or waits until the other half does, and waits for the end of timewait.
func (id *cmID) hangUp(first bool) {
	if first {
		id.c.e.must(id.Disconnect(), "disconnect")
	}
	id.c.next(ib.CMDisconnected)
	id.c.e.must(id.Disconnect(), "disconnect once more")
	id.c.next(ib.CMTimewaitExit)
}
