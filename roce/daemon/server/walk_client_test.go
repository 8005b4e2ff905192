package server

import (
	"context"
	"errors"
	"slices"
	"testing/synctest"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/daemon/abi"
	"github.com/goroce/goroce/roce/daemon/client"
)

// walkClient is a client and the objects that it has created.
type walkClient struct {
	*walkWorld
	conn    *abi.Conn
	dev     *client.Device
	side    int // its device
	gone    bool
	things  []*thing
	qps     []*walkQP
	srqs    []*walkSRQ
	ahs     []*walkAH
	windows []*walkWindow
	arenas  []*arena
}

// thing is an object of a client.
type thing struct {
	kind  abi.Kind
	value interface{ Close() error }
	uses  []*thing // objects that cannot be closed before it
	users int
	maybe int // possible users: it is not known whether they exist
	event eventState
	after func() // called when it is closed
}

const mostClients = 4

// join adds a client.
func (w *walkWorld) join() {
	if len(w.clients) == mostClients {
		return
	}
	conn, err := w.dial()
	must(w.t, err)
	c := &walkClient{walkWorld: w, conn: conn, side: w.n(2)}
	c.dev, err = client.Open(w.t.Context(), conn, w.devs[c.side].Attr().Name)
	must(w.t, err)
	c.newArenas()
	w.clients = append(w.clients, c)
}

// die ends a client's connection, whatever it is doing.
func (c *walkClient) die() {
	c.endStall(true)
	if c.gone {
		return
	}
	must(c.t, c.conn.Close())
	c.bury()
}

// bury waits for the end of a client's session. Its memory must not change any more.
func (c *walkClient) bury() {
	c.totals.died++
	must(c.t, c.dev.Close())
	c.gone = true
	c.clients = slices.DeleteFunc(c.clients, func(o *walkClient) bool { return o == c })
	c.sessions()
	for _, q := range c.qps {
		q.abandon()
	}
	for _, q := range c.srqs {
		abandon(q.recvs)
	}
	for _, a := range c.arenas {
		a.revoked()
	}
}

// add keeps a new object.
func (c *walkClient) add(k abi.Kind, v interface{ Close() error }, uses ...*thing) *thing {
	th := &thing{kind: k, value: v, uses: uses}
	for _, u := range uses {
		u.users++
	}
	c.things = append(c.things, th)
	return th
}

// granted reports whether the server did what a request asks for. It may refuse only because a limit
// is reached.
func (c *walkClient) granted(verb string, err error) bool {
	if err == nil {
		return true
	}
	c.totals.refused++
	if !errors.Is(err, ib.ErrLimit) {
		c.t.Errorf("%s: %v, want %v", verb, err, ib.ErrLimit)
	}
	return false
}

// all returns the objects of a kind.
func (c *walkClient) all(k abi.Kind) (list []*thing) {
	for _, th := range c.things {
		if th.kind == k {
			list = append(list, th)
		}
	}
	return list
}

// need returns an object of a kind, a new one at times; nil if there is none.
func (c *walkClient) need(k abi.Kind) *thing {
	list := c.all(k)
	if len(list) == 0 || len(list) < 3 && c.one(8) {
		if th := c.makeKind(k); th != nil {
			return th
		}
	}
	switch {
	case len(list) == 0:
		return nil
	case c.one(4):
		return list[c.n(len(list))]
	}
	return list[0] // so that objects have something in common
}

// make creates an object.
func (c *walkClient) make() {
	kinds := []abi.Kind{abi.KindPD, abi.KindXRCD, abi.KindChannel, abi.KindCQ,
		abi.KindSRQ, abi.KindSRQ, abi.KindSRQ, abi.KindAH, abi.KindMW, abi.KindMW}
	c.makeKind(kinds[c.n(len(kinds))])
}

func (c *walkClient) makeKind(k abi.Kind) *thing {
	var v interface{ Close() error }
	var err error
	switch k {
	case abi.KindPD:
		v, err = c.dev.AllocPD()
	case abi.KindXRCD:
		v, err = c.dev.AllocXRCD()
	case abi.KindChannel:
		v, err = c.dev.CreateChannel()
	case abi.KindCQ:
		return c.makeCQ()
	case abi.KindSRQ:
		return c.makeSRQ()
	case abi.KindAH:
		return c.makeAH(c.need(abi.KindPD))
	case abi.KindMW:
		return c.makeWindow()
	default:
		return nil
	}
	if !c.granted("create "+k.String(), err) {
		return nil
	}
	return c.add(k, v)
}

// walkEntries is how many completions a CQ holds: more than can be outstanding.
const walkEntries = 1024

func (c *walkClient) makeCQ() *thing {
	init, uses := ib.CQInit{Entries: walkEntries + c.n(200), CompVector: c.n(c.dev.Attr().CompVectors)}, []*thing(nil)
	if list := c.all(abi.KindChannel); len(list) > 0 && c.one(2) {
		h := list[c.n(len(list))]
		init.Channel, uses = h.value.(ib.Channel), []*thing{h}
	}
	cq, err := c.dev.CreateCQ(init)
	if !c.granted("create CQ", err) {
		return nil
	}
	th := c.add(abi.KindCQ, cq, uses...)
	c.arm(th)
	return th
}

// walkSRQ is an SRQ and its receives.
type walkSRQ struct {
	*thing
	s     ib.SRQ
	xrcd  *thing // of an XRC SRQ
	pd    *thing
	recvs []*post
}

func (c *walkClient) makeSRQ() *thing {
	pd := c.need(abi.KindPD)
	if pd == nil {
		return nil
	}
	init := ib.SRQInit{SRQAttr: ib.SRQAttr{MaxWR: 16, MaxSGE: 3, Limit: c.n(4)}}
	uses, q := []*thing{pd}, &walkSRQ{pd: pd}
	if c.one(2) {
		x, cq := c.need(abi.KindXRCD), c.need(abi.KindCQ)
		if c.one(2) {
			cq = c.makeCQ() // can be closed with the SRQ
		}
		if x == nil || cq == nil {
			return nil
		}
		init.Type, init.XRCD, init.CQ = ib.SRQXRC, x.value.(ib.XRCD), cq.value.(ib.CQ)
		uses, q.xrcd = append(uses, x, cq), x
	}
	s, err := pd.value.(ib.PD).CreateSRQ(init)
	if !c.granted("create SRQ", err) {
		return nil
	}
	q.s, q.thing = s, c.add(abi.KindSRQ, s, uses...)
	c.srqs = append(c.srqs, q)
	q.after = func() {
		abandon(q.recvs)
		c.srqs = slices.DeleteFunc(c.srqs, func(o *walkSRQ) bool { return o == q })
	}
	return q.thing
}

// close closes an object. For one that is in use this must be refused.
func (c *walkClient) close() {
	if len(c.things) > 0 {
		c.closeThing(c.things[c.n(len(c.things))])
	}
}

func (c *walkClient) closeThing(th *thing) {
	c.poll()
	err := th.value.Close()
	if c.busy(th, "close", err) {
		return
	}
	if err != nil {
		c.t.Errorf("close a %v without users: %v", th.kind, err)
		return
	}
	c.closed(th)
}

// busy reports whether a verb was refused because an object has users. If it has users for sure, and the verb was not
// refused, the test fails.
func (c *walkClient) busy(th *thing, verb string, err error) bool {
	refused := errors.Is(err, ib.ErrBusy) && th.users+th.maybe > 0
	if refused {
		c.totals.busy++
	} else if th.users > 0 && !errors.Is(err, ib.ErrLimit) {
		c.t.Errorf("%s a %v with %d users: %v, want %v", verb, th.kind, th.users, err, ib.ErrLimit)
	}
	return refused
}

// closeSRQ closes an XRC SRQ, which its target QPs do not keep from being closed, also while they
// receive into it. At times its CQ follows, if it has no other users.
func (c *walkClient) closeSRQ() {
	i := slices.IndexFunc(c.srqs, func(s *walkSRQ) bool { return s.xrcd != nil })
	if i < 0 {
		return
	}
	th := c.srqs[i].thing
	c.closeThing(th)
	if cq := th.uses[2]; cq.users == 0 && !c.one(4) {
		c.closeThing(cq)
	}
}

// closed notes that an object is closed.
func (c *walkClient) closed(th *thing) {
	for _, u := range th.uses {
		u.users--
	}
	c.things = slices.DeleteFunc(c.things, func(o *thing) bool { return o == th })
	if th.after != nil {
		th.after()
	}
}

// closeAll closes all objects of a client, users before what they use.
func (c *walkClient) closeAll() {
	for len(c.things) > 0 && !c.t.Failed() {
		i := c.n(len(c.things))
		for c.things[i].users+c.things[i].maybe > 0 {
			i = (i + 1) % len(c.things)
		}
		c.closeThing(c.things[i])
	}
}

// register registers one of the client's arenas.
func (c *walkClient) register() {
	list := slices.DeleteFunc(slices.Clone(c.arenas), func(a *arena) bool { return a.mr != nil })
	pd := c.need(abi.KindPD)
	if len(list) == 0 || pd == nil {
		return
	}
	a := list[c.n(len(list))]
	m, err := pd.value.(ib.PD).RegMR(ib.MRInit{Buf: a.region(), Access: walkRights})
	if c.granted("register memory", err) {
		c.enroll(a, c.add(abi.KindMR, m, pd), pd)
	}
}

const walkRights = ib.LocalWrite | ib.RemoteWrite | ib.RemoteRead | ib.RemoteAtomic | ib.BindWindows

// enroll notes that an arena is registered.
func (c *walkClient) enroll(a *arena, m, pd *thing) {
	a.mr, a.pd = m, pd
	m.after = func() {
		c.totals.revoked++
		a.revoked()
	}
}

// reregister lets a region be another arena.
func (c *walkClient) reregister() {
	i, j := c.n(len(c.arenas)), c.n(len(c.arenas))
	a, b := c.arenas[i], c.arenas[j]
	if a.mr == nil || b.mr != nil {
		return
	}
	c.poll()
	m, pd := a.mr, a.pd
	err := m.value.(ib.MR).Rereg(ib.ReregTranslation, nil, ib.MRInit{Buf: b.region()})
	if !c.busy(m, "re-register", err) && c.granted("re-register memory", err) {
		m.after()
		c.enroll(b, m, pd)
	}
}

// refused asks for something that the server must refuse.
func (c *walkClient) refused() {
	pd := c.need(abi.KindPD)
	if pd == nil {
		return
	}
	p := pd.value.(ib.PD)
	verb, err := "", error(nil)
	switch c.n(6) {
	case 0:
		verb = "register memory for peers, but not for this end, to write to"
		_, err = p.RegMR(ib.MRInit{Buf: c.arenas[c.n(len(c.arenas))].region(), Access: ib.RemoteWrite})
	case 1:
		verb = "re-register with rights that do not exist"
		m := c.need(abi.KindMR)
		if m == nil || m.users+m.maybe > 0 {
			return
		}
		err = m.value.(ib.MR).Rereg(ib.ReregTranslation|ib.ReregAccess, nil,
			ib.MRInit{Buf: c.arenas[c.n(len(c.arenas))].region(), Access: ib.RemoteWrite})
	case 2:
		verb = "create CQ without entries"
		_, err = c.dev.CreateCQ(ib.CQInit{})
	case 3:
		verb = "create SRQ whose limit exceeds it"
		_, err = p.CreateSRQ(ib.SRQInit{SRQAttr: ib.SRQAttr{MaxWR: 4, MaxSGE: 1, Limit: 5}})
	case 4:
		verb = "create QP without CQs"
		_, err = p.CreateQP(ib.QPInit{Type: ib.RC, Cap: ib.QPCap{MaxSendWR: 4, MaxSendSGE: 1}})
	case 5:
		verb = "resize CQ to what it never can have"
		cq := c.need(abi.KindCQ)
		if cq == nil {
			return
		}
		err = cq.value.(ib.CQ).Resize(1 << 30)
	}
	c.totals.refused++
	if !errors.Is(err, ib.ErrInvalid) && !errors.Is(err, ib.ErrLimit) {
		c.t.Errorf("%s: %v, want %v or %v", verb, err, ib.ErrInvalid, ib.ErrLimit)
	}
}

// resize changes the size of a CQ or an SRQ.
func (c *walkClient) resize() {
	if list := c.all(abi.KindCQ); len(list) > 0 && c.one(2) {
		c.granted("resize CQ", list[c.n(len(list))].value.(ib.CQ).Resize(walkEntries+c.n(1000)))
	} else if len(c.srqs) > 0 {
		err := c.srqs[c.n(len(c.srqs))].s.Modify(ib.SRQAttr{MaxWR: 16 << c.n(3)}, ib.SRQMaxWR)
		if !errors.Is(err, ib.ErrInvalid) { // since it holds more receives
			c.granted("resize SRQ", err)
		}
	}
}

var isOver, endIsOver = context.WithCancel(context.Background())

func init() { endIsOver() }

// eventState says what is known of the next event of a CQ: nothing, that a completion raises it, or that one has.
type eventState uint8

const (
	eventUnknown eventState = iota
	eventArmed
	eventRaised
)

// arm arms a CQ, which has no completion.
func (c *walkClient) arm(cq *thing) {
	solicited := c.one(2)
	must(c.t, cq.value.(ib.CQ).Arm(solicited))
	if !solicited && len(cq.uses) > 0 {
		cq.event = eventArmed
	}
}

// wait takes an event of a channel, or an asynchronous one, if there is one. In virtual time the event of a completion
// has come when the completion has.
func (c *walkClient) wait() {
	if _, err := c.dev.NextEvent(isOver); err != nil && !errors.Is(err, context.Canceled) {
		c.t.Errorf("wait for an event: %v, want none or %v", err, context.Canceled)
	}
	list := c.all(abi.KindChannel)
	if len(list) == 0 {
		return
	}
	h := list[c.n(len(list))]
	if !c.live {
		synctest.Wait()
	}
	cq, err := h.value.(ib.Channel).Wait(isOver)
	if err != nil && !errors.Is(err, context.Canceled) {
		c.t.Errorf("wait on a channel: %v, want none or %v", err, context.Canceled)
	}
	for _, th := range c.all(abi.KindCQ) {
		switch {
		case err == nil && th.value == cq:
			th.event = eventUnknown
			c.poll()
			c.arm(th)
		case err != nil && len(th.uses) > 0 && th.uses[0] == h && th.event == eventRaised && !c.live:
			c.t.Error("a CQ that was armed has got a completion, and its channel no event")
		}
	}
}
