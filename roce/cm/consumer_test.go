package cm

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// phase is what a consumer knows of an ID.
type phase uint8

const (
	gone phase = iota
	asked
	answered // Replied
	requested
	accepted
	up
	leaving // after our Disconnect
	down
	resolving
	asking // a datagram service was asked for
)

var phaseText = [...]string{"gone", "asked", "answered", "requested", "accepted", "up", "leaving", "down", "resolving",
	"asking"}

func (p phase) String() string { return phaseText[p] }

// grammar has the events that an ID may get in each phase, and the next phase.
var grammar = [...]map[EventKind]phase{
	asked:     {Replied: answered, Rejected: gone, Unreachable: gone},
	answered:  {Rejected: gone},
	requested: {Dropped: gone},
	accepted:  {Established: up, Rejected: gone, Unreachable: gone},
	up:        {Disconnected: down},
	leaving:   {Disconnected: down},
	down:      {TimewaitExit: gone},
	resolving: {Resolved: gone, Rejected: gone, Unreachable: gone},
	asking:    {Dropped: gone},
}

// link is a consumer's state of an ID.
type link struct {
	phase  phase
	conn   ConnParams
	qpn    ib.QPN
	lazy   bool // the consumer does nothing about it
	events []string

	lingers bool // Release said so, and Forgotten has not come
}

// consumer uses a manager as a program might: it answers events, sometimes changes its mind, and checks that the events
// that it gets are consistent.
type consumer struct {
	*Manager
	w     *model
	name  string
	gid   ib.GID
	rng   *rand.Rand
	links map[ID]*link
	ids   []ID       // of links that are not gone, in order
	ended map[ID]any // how links went that were not orderly disconnected
	qpn   ib.QPN

	listener ListenID
	drain    bool // accept and confirm all; begin nothing
}

func (c *consumer) fail(format string, args ...any) {
	c.w.t.Helper()
	c.w.t.Fatalf("seed %d: %s at %d ms: %s", c.w.seed, c.name, c.w.now/millisecond, fmt.Sprintf(format, args...))
}

func (c *consumer) begin(id ID, l *link) {
	if id == 0 || c.links[id] != nil {
		c.fail("ID %#x is not new", uint32(id))
	}
	l.lazy = c.rng.IntN(10) == 0
	c.links[id] = l
	c.ids = append(c.ids, id)
	c.w.react(c, id)
}

func (c *consumer) end(id ID, why any) {
	c.links[id].phase = gone
	for i, other := range c.ids {
		if other == id {
			c.ids = append(c.ids[:i], c.ids[i+1:]...)
			break
		}
	}
	c.ended[id] = why
}

// must checks a call that must succeed according to what the consumer knows.
func (c *consumer) must(call string, err error) {
	if err != nil {
		c.fail("%s: %v", call, err)
	}
}

// hear takes all events out of the manager.
func (c *consumer) hear() {
	var e Event
	for c.NextEvent(&e) {
		if e.Kind == Request {
			p := requested
			if e.Datagram {
				p = asking
			}
			c.begin(e.ID, &link{phase: p, conn: e.Conn})
		} else if l := c.links[e.ID]; e.Kind == Forgotten && l != nil && l.lingers {
			l.lingers = false
		} else {
			c.told(&e)
			c.w.react(c, e.ID)
		}
		c.links[e.ID].events = append(c.links[e.ID].events, e.Kind.String())
		c.w.heard[e.Kind]++
	}
}

// told handles an event of a known ID.
func (c *consumer) told(e *Event) {
	l := c.links[e.ID]
	if l == nil || l.phase == gone {
		c.fail("event %v for ID %#x, which is gone: %+v", e.Kind, uint32(e.ID), l)
	}
	next, ok := grammar[l.phase][e.Kind]
	if !ok {
		c.fail("event %v in phase %v, after %v", e.Kind, l.phase, l.events)
	}
	if e.Kind == Established && e.Conn != l.conn {
		c.fail("Established with %+v, accepted were %+v", e.Conn, l.conn)
	}
	l.phase = next
	switch {
	case next == gone:
		c.end(e.ID, e.Kind)
	case e.Kind == Replied:
		l.conn = e.Conn
	case e.Kind == Disconnected:
		c.ended[e.ID] = e.Kind // the peer may hear of it later
	}
}

// act makes a random call that the phase of an ID allows.
func (c *consumer) act(id ID) {
	l, now := c.links[id], c.w.now
	roll := c.rng.IntN(100)
	if c.drain && l.phase != up {
		roll = 0
	}
	if l.lazy && !c.drain {
		return
	}
	switch {
	case roll >= 95 && !c.drain:
		l.lingers = c.Release(now, id)
		if err := c.Disconnect(now, id, nil); !errors.Is(err, ErrUnknownID) {
			c.fail("Disconnect after Release: %v", err)
		}
		c.end(id, "released")
	case l.phase == requested && roll < 70:
		l.qpn = c.newQPN()
		p := Params{QPN: l.qpn, ResponderResources: uint8(c.rng.IntN(8)), InitiatorDepth: uint8(c.rng.IntN(8)),
			RNRRetry: 7}
		conn, err := c.Accept(now, id, p)
		c.must("Accept", err)
		l.phase, l.conn = accepted, conn
	case l.phase == requested && roll < 80, l.phase == answered && roll >= 80 && roll < 85:
		c.must("Reject", c.Reject(now, id, ib.RejectConsumer, nil, nil))
		c.end(id, "rejected")
	case l.phase == requested, l.phase == answered && roll >= 85:
		c.must("Delay", c.Delay(now, id, ib.Instant(c.rng.Int64N(int64(3*second)))))
	case l.phase == answered:
		c.must("Confirm", c.Confirm(now, id, nil))
		l.phase = up
	case l.phase == accepted && roll < 20 && c.w.confirmed(c, id):
		c.DataArrived(now, id)
	case l.phase == up && !c.drain && roll < 60:
		c.must("Disconnect", c.Disconnect(now, id, nil))
		l.phase = leaving
	case l.phase == asking:
		status := ib.SIDRStatus(c.rng.IntN(2)) * ib.SIDRReject
		c.must("Answer", c.Answer(now, id, Answer{Status: status, QPN: 5, QKey: 6}))
		c.end(id, "answered")
	}
}

// start makes a connection request, or a service request.
func (c *consumer) start(peer *consumer) {
	path := Path{Local: c.gid, Remote: peer.gid}
	giveUp := driver.Never
	if c.rng.IntN(3) == 0 {
		giveUp = c.w.now + ib.Instant(c.rng.Int64N(int64(10*second)))
	}
	if c.rng.IntN(5) == 0 {
		id, err := c.Resolve(c.w.now, Resolve{Path: path, ServiceID: testService, GiveUp: giveUp})
		c.must("Resolve", err)
		c.begin(id, &link{phase: resolving})
		return
	}
	l := &link{phase: asked, qpn: c.newQPN()}
	if c.rng.IntN(10) == 0 {
		c.Unlisten(c.listener)
		c.listener, _ = c.Listen(testService, netip.Addr{}, false)
	}
	id, err := c.Connect(c.w.now, Connect{
		Params: Params{QPN: l.qpn, Service: ib.RC, ResponderResources: uint8(c.rng.IntN(8)),
			InitiatorDepth: uint8(c.rng.IntN(8)), RetryCount: 7, RNRRetry: 7},
		Path: path, ServiceID: testService + uint64(c.rng.IntN(20)/19), SrcPort: 9, PathMTU: ib.MTU1024,
		AckTimeout: uint8(8 + c.rng.IntN(13)), GiveUp: giveUp,
	})
	c.must("Connect", err)
	c.begin(id, l)
}

// newQPN returns a QP number, in some runs one that was used before.
func (c *consumer) newQPN() ib.QPN {
	if c.w.reuse && c.qpn > 2 && c.rng.IntN(8) == 0 {
		return 2 + ib.QPN(c.rng.IntN(int(c.qpn-1)))
	}
	c.qpn++
	return c.qpn
}
