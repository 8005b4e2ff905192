package server

import (
	"slices"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/daemon/abi"
)

// walkWindow is a memory window.
type walkWindow struct {
	*thing
	ib.MW
	owner    *walkClient
	pd       *thing
	key      ib.Key     // of the latest bind
	binding  bool       // it is under way
	openings []*opening // that have not ended
}

// opening is what a bind opens: a part of an arena.
type opening struct {
	window *walkWindow
	arena  *arena
	mr     *thing
	qp     *walkQP // of type 2: its peer has access; nil of type 1
	key    ib.Key
	bind   ib.MWBind
	from   int // in arena.mem
	state  openingState
	inv    *post   // the only reason why it may have ended: a SEND that invalidates it
	writes []*post // that name its key
}

type openingState int

const (
	mayBeOpen openingState = iota // a bind, or an invalidation, is under way or has failed
	isOpen
	notOpen
)

// become changes the state of an opening. An opening that has not ended keeps its region from being
// deregistered. Once it has ended, no peer writes by its key.
func (o *opening) become(s openingState) {
	switch o.state {
	case mayBeOpen:
		o.mr.maybe--
	case isOpen:
		o.mr.users--
	case notOpen:
		return
	}
	o.inv = nil
	switch o.state = s; s {
	case mayBeOpen:
		o.mr.maybe++
	case isOpen:
		o.mr.users++
	case notOpen:
		o.end()
	}
}

// endedMost bounds walkWorld.ended.
const endedMost = 16

// end frees the slots of WRITEs. But in a live device a worker may still write to memory of the
// process (mr.NewSharedTable).
func (o *opening) end() {
	c := o.window.owner
	o.window.openings = slices.DeleteFunc(o.window.openings, func(x *opening) bool { return x == o })
	if !c.live || !o.arena.private {
		for _, p := range o.writes {
			p.free()
		}
	}
	if c.ended = append(c.ended, o); len(c.ended) > endedMost {
		c.ended = c.ended[1:]
	}
}

// endOpenings ends the openings of a client that fit.
func (c *walkClient) endOpenings(fits func(*opening) bool) {
	for _, w := range c.windows {
		for _, o := range slices.Clone(w.openings) {
			if fits(o) {
				o.become(notOpen)
			}
		}
	}
}

// makeWindow allocates a window. It can be closed at any time.
func (c *walkClient) makeWindow() *thing {
	pd := c.need(abi.KindPD)
	if pd == nil {
		return nil
	}
	mw, err := pd.value.(ib.PD).AllocMW([]ib.MWType{ib.MWType1, ib.MWType2}[c.n(2)])
	if !c.granted("allocate MW", err) {
		return nil
	}
	w := &walkWindow{owner: c, MW: mw, thing: c.add(abi.KindMW, mw, pd), pd: pd, key: mw.RKey()}
	c.windows = append(c.windows, w)
	w.after = func() {
		for _, o := range slices.Clone(w.openings) {
			o.become(notOpen)
		}
		c.windows = slices.DeleteFunc(c.windows, func(o *walkWindow) bool { return o == w })
	}
	return w.thing
}

// closeWindow closes a window, which peers may be using.
func (c *walkClient) closeWindow() {
	if len(c.windows) > 0 {
		c.closeThing(c.windows[c.n(len(c.windows))].thing)
	}
}

// bind posts the binding of a window to a part of an arena; at times only the end of the one before.
func (c *walkClient) bind() {
	if len(c.windows) < 2 || c.one(30) {
		c.makeWindow()
	}
	if len(c.windows) == 0 {
		return
	}
	w := c.windows[c.n(len(c.windows))]
	type2 := w.Type() == ib.MWType2
	q := c.someQP(func(q *walkQP) bool {
		return q.pd == w.pd && (q.typ == ib.RC || !type2 && (q.typ == ib.UC || q.typ == ib.XRCINI))
	})
	list := slices.DeleteFunc(c.registered(w.pd), func(a *arena) bool {
		return c.stalled != nil && c.stalled.arena == a // it is to be deregistered
	})
	if q == nil || len(list) == 0 || w.binding || type2 && len(w.openings) > 0 && !c.one(30) {
		return
	}
	a := list[c.n(len(list))]
	o := &opening{window: w, arena: a, mr: a.mr, key: ib.NextKey(w.key)}
	if type2 {
		o.qp = q
	}
	o.draw()
	if !type2 && c.one(8) {
		o.bind = ib.MWBind{}
	}
	c.postBind(q, o)
}

// draw chooses what an opening opens: whole slots, the data to send, the words, or several of these.
func (o *opening) draw() {
	c := o.window.owner
	bounds := []int{arenaEdge}
	for i := range arenaSlots + 1 {
		bounds = append(bounds, arenaEdge+arenaSource+i*slotBytes)
	}
	bounds = append(bounds, arenaBytes-arenaEdge)
	first := c.n(len(bounds) - 1)
	last := first + 1 + c.n(len(bounds)-1-first)
	if c.one(3) {
		first, last = 0, len(bounds)-1
	}
	all := ib.RemoteWrite | ib.RemoteRead | ib.RemoteAtomic
	o.from = bounds[first]
	o.bind = ib.MWBind{LKey: o.arena.key(), Addr: o.arena.addr(o.from), Length: uint64(bounds[last] - o.from),
		Access: []ib.Access{all, all, ib.RemoteRead, ib.RemoteWrite}[c.n(4)]}
	if o.window.Type() == ib.MWType2 && c.one(2) {
		o.bind.Access |= ib.ZeroBased
	}
}

func (c *walkClient) postBind(q *walkQP, o *opening) {
	w := o.window
	p := c.newPost(post{qp: q, verb: ib.WRBindMW})
	var n int
	var err error
	if w.Type() == ib.MWType2 {
		n, err = q.PostSend([]ib.SendWR{{ID: p.id, Opcode: p.verb, RKey: o.key, Bind: o.bind}})
	} else if err = w.Bind(q.QP, p.id, 0, o.bind); err == nil {
		n = 1
	}
	if !c.posted(p, n, err) {
		return
	}
	q.sends = append(q.sends, p)
	earlier := slices.Clone(w.openings)
	if w.Type() == ib.MWType1 {
		for _, x := range earlier {
			x.become(mayBeOpen)
		}
		if w.RKey() != o.key {
			c.t.Errorf("a window of type 1 has key %#x, want %#x", w.RKey(), o.key)
		}
	}
	w.key, w.binding = o.key, true
	if o.bind.Length > 0 {
		o.mr.maybe++
		w.openings = append(w.openings, o)
	} else {
		o.state = notOpen
	}
	p.end = func(ok bool) { c.bound(o, earlier, ok) }
}

// bound notes the end of a bind. If it has succeeded, the openings from before have ended.
func (c *walkClient) bound(o *opening, earlier []*opening, ok bool) {
	o.window.binding = false
	if !ok {
		return // it may be bound all the same, if a request before has failed
	}
	c.totals.bound++
	for _, x := range earlier {
		if x.state == isOpen {
			c.t.Errorf("window %#x is bound, which was open by key %#x", o.key, x.key)
		}
		x.become(notOpen)
	}
	o.become(isOpen)
}

// invalidate posts the invalidation of a window of type 2 by its owner.
func (c *walkClient) invalidate() {
	var list []*opening
	for _, w := range c.windows {
		for _, o := range w.openings {
			if o.state == isOpen && o.qp != nil && !o.qp.ended {
				list = append(list, o)
			}
		}
	}
	if len(list) == 0 {
		return
	}
	o := list[c.n(len(list))]
	p := c.newPost(post{qp: o.qp, verb: ib.WRLocalInv})
	n, err := o.qp.PostSend([]ib.SendWR{{ID: p.id, Opcode: p.verb, InvalidateKey: o.key}})
	if c.posted(p, n, err) {
		o.qp.sends = append(o.qp.sends, p)
		o.become(mayBeOpen)
		p.end = func(ok bool) { c.invalidated(o, ok) }
	}
}

// invalidated notes the end of an invalidation.
func (c *walkClient) invalidated(o *opening, ok bool) {
	if ok && o.state != notOpen {
		c.totals.invalidated++
		o.become(notOpen)
	}
}

// fillInvalidate fills in which window of the peer a SEND invalidates.
func (c *walkClient) fillInvalidate(p *post, wr *ib.SendWR) bool {
	peer := p.qp.peer
	for _, w := range peer.owner.windows {
		for _, o := range w.openings {
			if o.state == isOpen && o.qp == peer && c.fillSend(p, wr) {
				wr.InvalidateKey, p.message.ends = o.key, o
				p.start = func() {
					o.become(mayBeOpen)
					o.inv = p
				}
				p.end = func(ok bool) { c.invalidated(o, ok) }
				return true
			}
		}
	}
	return false
}

// lets reports whether an opening gives request p of a peer the right to n bytes at offset at of the arena.
func (o *opening) lets(p *post, at, n int, right ib.Access) bool {
	return o.state == isOpen && o.bind.Access&right != 0 && at >= o.from && at+n <= o.from+int(o.bind.Length) &&
		(o.qp == p.qp.peer || o.qp == nil && o.window.pd == p.peerPD())
}

// addr returns the address by which peers name an offset in the arena.
func (o *opening) addr(at int) uint64 {
	if o.bind.Access&ib.ZeroBased != 0 {
		return uint64(at - o.from)
	}
	return o.bind.Addr + uint64(at-o.from)
}

// aims returns the arenas of the peer to which p has access: at times only those that windows open.
func (c *walkClient) aims(p *post, right ib.Access) (list []*arena) {
	peer := p.qp.peer.owner
	for _, w := range peer.windows {
		for _, o := range w.openings {
			if o.lets(p, o.from, 1, right) {
				list = append(list, o.arena)
			}
		}
	}
	if len(list) == 0 || c.one(4) {
		return peer.registered(p.peerPD())
	}
	return list
}

// target names memory of the peer: by a window that opens it, or by its region.
func (c *walkClient) target(p *post, a *arena, at, n int, right ib.Access) (addr uint64, key ib.Key) {
	p.region, p.arena = a.key(), a
	for _, w := range a.owner.windows {
		for _, o := range w.openings {
			if o.arena == a && o.lets(p, at, n, right) && c.one(2) {
				p.via = o
				if right == ib.RemoteWrite {
					o.writes = append(o.writes, p)
				}
				c.totals.byWindow++
				return o.addr(at), o.key
			}
		}
	}
	return a.addr(at), a.key()
}

// strayTarget names a slot that is in no use, by a key that does not open it, or no longer.
func (c *walkClient) strayTarget(p *post, wr *ib.SendWR) bool {
	peer := p.qp.peer
	list := slices.Clone(c.ended)
	for _, w := range peer.owner.windows {
		list = append(list, w.openings...)
	}
	if len(list) == 0 {
		return false
	}
	o := list[c.n(len(list))]
	s := &o.arena.slots[c.n(arenaSlots)]
	if s.of != nil || o.state == mayBeOpen || o.lets(p, s.at, 1, ib.RemoteWrite) {
		return false
	}
	p.stray = true
	wr.RemoteAddr, wr.RKey = o.addr(s.at), o.key
	return true
}

// checkRefusal checks whether the peer may refuse access to its memory: if the key does not open it
// any more. A SEND that invalidates it comes too late for WRITEs that were posted before (IBTA
// 10.8.3.3).
func (c *walkClient) checkRefusal(p *post) {
	o := p.via
	switch {
	case p.qp.typ == ib.XRCINI && !slices.Contains(p.qp.peer.owner.srqs, p.srq):
		return // it names no SRQ, or one that is closed
	case p.stray, p.verb == ib.WRSendInv, p.arena != nil && (p.arena.mr == nil || p.arena.key() != p.region):
		return
	case o != nil && o.state != isOpen && !(o.inv != nil && o.inv.qp == p.qp && p.id < o.inv.id && p.writes()):
		return
	}
	c.t.Errorf("%v: the peer refuses access to memory that it has opened: %+v", p, p.verb)
}
