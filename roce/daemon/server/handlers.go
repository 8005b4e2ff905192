package server

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/roce/daemon/abi"
	"github.com/goroce/goroce/roce/daemon/internal/procmem"
	"github.com/goroce/goroce/roce/internal/device"
)

// Handlers run on the session's goroutine, one at a time, under session.safely. What they have in common:
//
// What a request needs is booked first (take), then the verb is called, then the object gets its handle (add), after
// which nothing may fail. A handler that returns an error need not clean up what it has booked or what Alloc has
// mapped: answer does. What it has made by a verb it closes itself.
//
// Numbers come from the client. Those whose type here is narrower are clamped by min, and then the verb refuses them:
// a conversion alone would drop the upper bits, and could turn what is wrong into something valid.
//
// Handles are looked up in the session's own table, so a client can name no object of another. Numbers that it writes
// into its rings, as those of AHs and XRC SRQs, are of the device: package qp compares their PD or domain with the
// QP's.

// handler carries out one kind of request.
type handler func(c *session, body []byte, fds []int) (reply, error)

// takes returns a handler that calls f with the body decoded as a T. A body of another length is refused (abi.Get),
// so f sees no bytes that the client has not sent.
func takes[T any](f func(*session, *T) (reply, error)) handler {
	return func(c *session, body []byte, _ []int) (reply, error) {
		v, err := abi.Get[T](body)
		if err != nil {
			return reply{}, err
		}
		return f(c, &v)
	}
}

// handlers is the table of requests.
var handlers = [...]handler{
	abi.OpHello:         takes(hello),
	abi.OpOpen:          takes(open),
	abi.OpQueryPort:     takes(queryPort),
	abi.OpGIDs:          takes(queryGIDs),
	abi.OpPKey:          takes(queryPKey),
	abi.OpClock:         clock,
	abi.OpAllocPD:       allocPD,
	abi.OpAllocXRCD:     allocXRCD,
	abi.OpCreateChannel: createChannel,
	abi.OpCreateCQ:      takes(createCQ),
	abi.OpResizeCQ:      takes(resizeCQ),
	abi.OpRegMR:         regMR,
	abi.OpReregMR:       reregMR,
	abi.OpAllocMW:       takes(allocMW),
	abi.OpCreateAH:      takes(createAH),
	abi.OpModifyAH:      takes(modifyAH),
	abi.OpCreateSRQ:     takes(createSRQ),
	abi.OpModifySRQ:     takes(modifySRQ),
	abi.OpQuerySRQ:      takes(querySRQ),
	abi.OpCreateQP:      takes(createQP),
	abi.OpModifyQP:      takes(modifyQP),
	abi.OpQueryQP:       takes(queryQP),
	abi.OpQPFailure:     takes(qpFailure),
	abi.OpAttach:        takes(attach),
	abi.OpDetach:        takes(detach),
	abi.OpClose:         onCM(closeObject),
	abi.OpQueryDevice:   takes(queryDevice),
	abi.OpCounters:      takes(counters),
	abi.OpOpenQP:        takes(openQP),
	abi.OpHold:          hold,

	abi.OpShareDoorbells: shareDoorbells,
	abi.OpShareMemory:    shareMemory,

	abi.OpOpenCM:         openCM,
	abi.OpCreateCMID:     takes(createCMID),
	abi.OpCMEvent:        takes(cmEvent),
	abi.OpCMBind:         onCM(cmBind),
	abi.OpCMListen:       onCM(cmListen),
	abi.OpCMResolveAddr:  onCM(cmResolveAddr),
	abi.OpCMResolveRoute: onCM(cmResolveRoute),
	abi.OpCMConnect:      onCM(cmConnect),
	abi.OpCMAccept:       onCM(cmAccept),
	abi.OpCMEstablish:    onCM(cmEstablish),
	abi.OpCMReject:       onCM(cmReject),
	abi.OpCMDelay:        onCM(cmDelay),
	abi.OpCMDisconnect:   onCM(cmDisconnect),
	abi.OpCMNotify:       onCM(cmNotify),
	abi.OpCMJoin:         onCM(cmJoin),
	abi.OpCMLeave:        onCM(cmLeave),
	abi.OpCMInitQPAttr:   onCM(cmInitQPAttr),
	abi.OpCMSetOption:    onCM(cmSetOption),
	abi.OpCMQuery:        onCM(cmQuery),
	abi.OpCMMigrate:      onCM(cmMigrate),
}

// withBody returns a reply with v as its body.
func withBody[T any](v T) (reply, error) { return reply{body: abi.Put(nil, &v)}, nil }

// noBody returns a reply without a body, or the error.
func noBody(err error) (reply, error) { return reply{}, err }

// hello decides who may use the daemon. A client that is refused keeps its connection, and may read the reason; it
// may still say hello again, and nothing else.
func hello(c *session, h *abi.Hello) (reply, error) {
	if h.Magic != abi.Magic {
		return noBody(fmt.Errorf("hello: magic %#x, not %#x: %w; this is the socket of goroced, for its clients only",
			h.Magic, uint32(abi.Magic), ib.ErrInvalid))
	}
	// The daemon speaks one version: after an upgrade of one side only, this text is what the user sees.
	if h.MinVersion > abi.Version || h.MaxVersion < abi.Version {
		return noBody(fmt.Errorf("hello: the daemon speaks version %d, the client %d to %d: %w; install the same "+
			"goroced for both",
			abi.Version, h.MinVersion, h.MaxVersion, abi.ErrVersion))
	}
	if allow := c.srv.opts.Allow; allow != nil {
		if err := allow(c.who.Uid, c.who.Gid); err != nil {
			return noBody(fmt.Errorf("hello: user %d: %w: %w", c.who.Uid, abi.ErrPermission, err))
		}
	}
	// A second hello is answered, but its connection is booked once.
	if !c.greeted {
		if err := c.take(abi.OpHello, heap, greetedHeap); err != nil {
			return noBody(err)
		}
		c.keepBooked(heap)
		c.greeted = true
	}
	r := abi.HelloReply{Version: abi.Version, Devices: uint32(len(c.srv.units))}
	for i, u := range c.srv.units {
		r.Names[i] = abi.NameOf(u.name)
	}
	return withBody(r)
}

// describe returns the attributes of a device, as clients may count on them. A device has its objects for all clients
// together, so its own numbers would promise too much.
func (s *Server) describe(u *unit) abi.DeviceReply {
	attr := s.accounts.promise(u.dev.Attr())
	r := abi.DeviceOf(&attr)
	r.ClockOffset, r.Index = u.clockOffset, uint32(u.index)
	return r
}

// queryDevice describes a device without opening it: a program that lists devices needs no session's resources.
func queryDevice(c *session, o *abi.Open) (reply, error) {
	u, err := c.srv.find(o.Device.String())
	if err != nil {
		return noBody(err)
	}
	return withBody(c.srv.describe(u))
}

// open makes the session a tenant of a device, for good. The reply carries the client's end of the socket for events.
func open(c *session, o *abi.Open) (r reply, err error) {
	if c.unit != nil {
		return noBody(fmt.Errorf("open device: the connection has %s already: %w", c.unit.name, ib.ErrState))
	}
	u, err := c.srv.find(o.Device.String())
	if err != nil {
		return noBody(err)
	}
	if err := c.takeSession(abi.OpOpen); err != nil {
		return noBody(err)
	}
	// From here on the session has objects that cost others: it ends with the process, even if a child holds the
	// socket.
	if err := c.watchProcess(); err != nil {
		return noBody(err)
	}
	events, theirs, err := newOutbox(c.conn)
	if err != nil {
		c.unwatchProcess()
		return noBody(err)
	}
	c.unit, c.events = u, events
	for t := range c.notes {
		// Notes are made once, so that telling a client of an event allocates nothing that its silence could add up.
		c.notes[t].message = eventOf(ib.EventType(t), 0)
	}
	c.worker = u.dev.NewWorker(device.WorkerOptions{OnStuck: c.stuck, StuckAfter: c.srv.stuckAfter, OnFault: c.Fault,
		Stalls: procmem.Stalls, Thread: unix.Gettid, Waits: procmem.Waits})
	// Booked for the session, as no object has these: answer would give them back with pending.
	c.booked, c.pending = append(c.booked, c.pending...), nil
	u.mu.Lock()
	// Last: passEvents may tell the client of events from here on, and uses what was set above.
	u.sessions[c] = struct{}{}
	u.mu.Unlock()
	answer := abi.OpenReply{DeviceReply: c.srv.describe(u), Shards: uint32(len(u.doorbells)), Doorbells: perShard}
	return reply{body: abi.Put(nil, &answer), fds: []int{theirs}, sent: func() { _ = unix.Close(theirs) }}, nil
}

// takeSession books the resources that a connection uses once it has opened a device. The descriptors are the
// connection, the pidfd and the socket for events.
func (c *session) takeSession(op abi.Op) error {
	return cmp.Or(c.take(op, descriptors, 3), c.take(op, heap, sessionHeap))
}

func queryPort(c *session, p *abi.Port) (reply, error) {
	a, err := c.unit.dev.QueryPort(int(p.Port))
	if err != nil {
		return noBody(err)
	}
	return withBody(abi.PortReply{State: uint32(a.State), PhysState: uint32(a.PhysState), CapFlags: uint32(a.Caps),
		Speed: uint32(a.Speed), MaxMTU: uint32(a.MaxMTU), ActiveMTU: uint32(a.ActiveMTU),
		MaxMsgSize: a.MaxMsgSize, GIDs: uint32(a.GIDTableLen), NetIf: abi.NameOf(a.NetIf)})
}

// Compiles only if a device's GID table fits the reply.
const _ = uint(abi.MaxGIDs - device.MaxGIDs)

func queryGIDs(c *session, p *abi.Port) (r reply, err error) {
	table, err := c.unit.dev.GIDs(int(p.Port))
	for _, e := range table[:min(len(table), abi.MaxGIDs)] {
		r.body = abi.Put(r.body, &abi.GIDEntry{GID: e.GID, Index: uint32(e.Index), NetIf: abi.NameOf(e.NetIf)})
	}
	return r, err
}

func queryPKey(c *session, p *abi.Port) (reply, error) {
	key, err := c.unit.dev.PKey(int(p.Port), int(p.Index))
	if err != nil {
		return noBody(err)
	}
	return withBody(abi.PKeyReply{PKey: key})
}

func counters(c *session, p *abi.Port) (r reply, err error) {
	// Only to refuse a port that is not there.
	if _, err := c.unit.dev.QueryPort(int(p.Port)); err != nil {
		return noBody(err)
	}
	stats := c.unit.dev.Stats()
	for hw, list := range [][]device.Counter{stats.PortCounters(), stats.Counters()} {
		for _, n := range list {
			r.body = abi.Put(r.body, &abi.Counter{Name: abi.NameOf(n.Name), Value: n.Value, HW: uint32(hw)})
		}
	}
	return r, nil
}

func clock(c *session, _ []byte, _ []int) (reply, error) {
	now, err := c.unit.dev.Clock()
	if err != nil {
		return noBody(err)
	}
	return withBody(abi.ClockReply{Now: int64(now)})
}

// holds adds an object without rings and returns the reply with its handle.
func (c *session) holds(k abi.Kind, v any, closes func() error) (reply, error) {
	return withBody(abi.Object{Handle: c.add(&object{kind: k, value: v, close: closes})})
}

func allocPD(c *session, _ []byte, _ []int) (reply, error) {
	if err := c.take(abi.OpAllocPD, pds, 1); err != nil {
		return noBody(err)
	}
	// All domains of a session have its one worker, so memory that blocks holds up this client alone.
	pd, err := c.unit.dev.AllocPDFor(c, c.worker)
	if err != nil {
		return noBody(err)
	}
	return c.holds(abi.KindPD, pd, pd.Close)
}

// channel is a completion channel: the outbox that sends its events.
type channel struct {
	*outbox
	cqs int // number of CQs that use it
}

// Close ends the channel. It is busy while CQs use it, as with ibv_destroy_comp_channel(3).
func (h *channel) Close() error {
	if h.cqs > 0 {
		return fmt.Errorf("close channel: %w by %d CQs; close them first", ib.ErrBusy, h.cqs)
	}
	h.outbox.close()
	return nil
}

func createChannel(c *session, _ []byte, _ []int) (reply, error) {
	if err := cmp.Or(c.take(abi.OpCreateChannel, channels, 1),
		c.take(abi.OpCreateChannel, descriptors, 1)); err != nil {
		return noBody(err)
	}
	box, theirs, err := newOutbox(c.conn)
	if err != nil {
		return noBody(err)
	}
	h := &channel{outbox: box}
	handle := c.add(&object{kind: abi.KindChannel, value: h, close: h.Close})
	return reply{body: abi.Put(nil, &abi.Object{Handle: handle}), fds: []int{theirs},
		sent: func() { _ = unix.Close(theirs) },
		made: handle}, nil
}

// queue is the tenant (device.Tenant) of one CQ: it sends the CQ's events to its channel. Its other methods are those
// of the session.
type queue struct {
	*session
	channel *channel
	event   note // with an encoded abi.Completion
	sent    atomic.Uint32
}

// Notify sends the event that the CQ was armed for. A shard calls it with its lock held. While the note of an earlier
// event is queued nothing is added, and nothing counted: the client polls the CQ when it reads that one.
func (q *queue) Notify(*device.CQ) {
	if q.channel != nil && q.channel.put(&q.event) {
		q.sent.Add(1)
	}
}

func createCQ(c *session, r *abi.CreateCQ) (reply, error) {
	const op = abi.OpCreateCQ
	if err := cmp.Or(c.take(op, cqs, 1), c.take(op, cqEntries, int64(r.Entries))); err != nil {
		return noBody(err)
	}
	h, err := optional[*channel](c, op, "Channel", r.Channel)
	if err != nil {
		return noBody(err)
	}
	// The tenant is the queue, not the session, so that the CQ knows its channel without a look-up under a shard's
	// lock.
	tenant := &queue{session: c, channel: h}
	cq, err := c.unit.dev.CreateCQFor(tenant, ib.CQInit{Entries: int(r.Entries),
		CompVector: int(min(r.CompVector, math.MaxInt32))})
	if err != nil {
		return noBody(err)
	}
	if h != nil {
		// The session's goroutine alone changes it: a channel and its CQs are of one session.
		h.cqs++
	}
	o := &object{kind: abi.KindCQ, value: cq, rings: c.made, queue: tenant}
	o.close = func() error {
		if err := cq.Close(); err != nil {
			return err
		}
		if h != nil {
			h.cqs--
		}
		return nil
	}
	handle := c.add(o)
	// In time: the CQ has no QP yet, so that no shard can notify.
	tenant.event.message = string(abi.Put(nil, &abi.Completion{CQ: handle}))
	return c.ringReply(handle, 0)
}

// ringReply returns the reply that describes the ring of an object.
func (c *session) ringReply(h abi.Handle, num uint32) (reply, error) {
	return withBody(abi.Ring{Handle: h, Num: num, Size: uint64(len(c.objects[h].rings.buf))})
}

func resizeCQ(c *session, r *abi.ResizeCQ) (reply, error) {
	const op = abi.OpResizeCQ
	cq, err := lookup[*device.CQ](c, op, "CQ", r.CQ)
	if err != nil {
		return noBody(err)
	}
	// For a moment both sizes are booked, as both rings are there; replace gives the old one back.
	if err := c.take(op, cqEntries, int64(r.Entries)); err != nil {
		return noBody(err)
	}
	if err := cq.Resize(int(r.Entries)); err != nil {
		return noBody(err)
	}
	c.replace(r.CQ)
	return c.ringReply(r.CQ, 0)
}

// replace gives an object the rings that Alloc has mapped, and frees its former ones. No shard
// uses those any more, as the verb has returned.
func (c *session) replace(h abi.Handle) {
	o := c.objects[h]
	o.rings.free()
	o.rings = c.made
	c.change(o)
}

func allocMW(c *session, r *abi.AllocMW) (reply, error) {
	const op = abi.OpAllocMW
	if err := c.take(op, mws, 1); err != nil {
		return noBody(err)
	}
	pd, err := lookup[*device.PD](c, op, "PD", r.PD)
	if err != nil {
		return noBody(err)
	}
	mw, err := pd.AllocMW(ib.MWType(min(r.Type, 0xFF)))
	if err != nil {
		return noBody(err)
	}
	return withBody(abi.RegReply{Handle: c.add(&object{kind: abi.KindMW, value: mw, close: mw.Close}),
		Key: abi.Handle(mw.RKey())})
}

func createAH(c *session, r *abi.CreateAH) (reply, error) {
	const op = abi.OpCreateAH
	if err := c.take(op, ahs, 1); err != nil {
		return noBody(err)
	}
	pd, err := lookup[*device.PD](c, op, "PD", r.PD)
	if err != nil {
		return noBody(err)
	}
	ah, err := pd.CreateAH(r.AH.Attr())
	if err != nil {
		return noBody(err)
	}
	return withBody(abi.RegReply{Handle: c.add(&object{kind: abi.KindAH, value: ah, close: ah.Close}),
		Key: abi.Handle(ah.Num())})
}

func modifyAH(c *session, r *abi.ModifyAH) (reply, error) {
	ah, err := lookup[*device.AH](c, abi.OpModifyAH, "AH", r.Handle)
	if err != nil {
		return noBody(err)
	}
	return noBody(ah.Modify(r.AH.Attr()))
}

func createSRQ(c *session, r *abi.CreateSRQ) (reply, error) {
	const op = abi.OpCreateSRQ
	if err := c.take(op, srqs, 1); err != nil {
		return noBody(err)
	}
	pd, err := lookup[*device.PD](c, op, "PD", r.PD)
	if err != nil {
		return noBody(err)
	}
	init := ib.SRQInit{Type: ib.SRQType(min(r.Type, 0xFF)), SRQAttr: ib.SRQAttr{MaxWR: int(r.MaxWR),
		MaxSGE: int(r.MaxSGE), Limit: int(r.Limit)}}
	var x *xrcd
	if init.Type == ib.SRQXRC {
		var xerr error
		x, xerr = lookup[*xrcd](c, op, "XRCD", r.XRCD)
		cq, cerr := lookup[*device.CQ](c, op, "CQ", r.CQ)
		if err := errors.Join(xerr, cerr); err != nil {
			return noBody(err)
		}
		init.XRCD, init.CQ = x.core, cq
	}
	limit := init.Limit
	if init.Limit > init.MaxWR {
		return noBody(driver.Refuse(op.String(), "Limit", limit, fmt.Sprintf("0 to MaxWR, %d", init.MaxWR),
			ib.ErrInvalid))
	}
	init.Limit = 0
	srq, err := pd.CreateSRQ(init)
	if err != nil {
		return noBody(err)
	}
	o := &object{kind: abi.KindSRQ, value: srq, rings: c.made}
	// using takes the nil of a basic SRQ, too.
	o.close = x.using(func() (err error) {
		o.gone, err = srq.(*device.SRQ).Destroy()
		return err
	})
	h := c.add(o)
	if limit > 0 {
		// It is reached at once, as nothing is posted yet: so it is armed when the event can name the SRQ. That
		// fails only if the device has ended.
		if err := srq.Modify(ib.SRQAttr{Limit: limit}, ib.SRQLimit); err != nil {
			return noBody(err)
		}
	}
	return c.ringReply(h, srq.Num())
}

func modifySRQ(c *session, r *abi.SRQAttr) (reply, error) {
	srq, err := lookup[*device.SRQ](c, abi.OpModifySRQ, "SRQ", r.SRQ)
	if err != nil {
		return noBody(err)
	}
	err = srq.Modify(ib.SRQAttr{MaxWR: int(r.MaxWR), Limit: int(r.Limit)}, ib.SRQAttrMask(min(r.Mask, 0xFF)))
	// Without SRQMaxWR the verb asks for no ring, and the reply has no body.
	if err != nil || c.made == nil {
		return noBody(err)
	}
	c.replace(r.SRQ)
	return c.ringReply(r.SRQ, srq.Num())
}

func querySRQ(c *session, r *abi.SRQAttr) (reply, error) {
	srq, err := lookup[*device.SRQ](c, abi.OpQuerySRQ, "SRQ", r.SRQ)
	if err != nil {
		return noBody(err)
	}
	a, err := srq.Query()
	if err != nil {
		return noBody(err)
	}
	return withBody(abi.SRQAttr{SRQ: r.SRQ, MaxWR: uint32(a.MaxWR), MaxSGE: uint32(a.MaxSGE), Limit: uint32(a.Limit)})
}

// retract takes back the events of a closed object that wait for the client to read others. The object has no handle
// any more, so no event of it is queued again.
func (c *session) retract(o *object) {
	// What was taken back does not count as sent: libibverbs waits in ibv_destroy_cq until the program has
	// acknowledged as many events as the answer says.
	if q := o.queue; q != nil && q.channel != nil && q.channel.retract(&q.event) {
		q.sent.Add(^uint32(0))
	}
	for _, n := range o.notes {
		if c.events.retract(n) {
			o.events.Add(^uint32(0))
		}
	}
}

// closeObject closes the object of a handle. The request says the kind, too: a client that has confused handles is
// refused, and does not lose another object.
func closeObject(c *session, r *abi.Close) (reply, error) {
	if _, err := lookup[any](c, abi.OpClose, "Handle", r.Handle); err != nil {
		return noBody(err)
	}
	o := c.objects[r.Handle]
	if o.kind != r.Kind {
		return noBody(driver.Refuse(abi.OpClose.String(), "Handle", fmt.Sprintf("%d, of kind %v", r.Handle, o.kind),
			fmt.Sprintf("one of kind %v, as the request says", r.Kind), ib.ErrInvalid))
	}
	return c.destroy(o)
}

// destroy closes an object, and counts its events. It answers once the client may use the object's memory for
// something else. A failure of close, as ib.ErrBusy, leaves the object as it is, with its handle.
func (c *session) destroy(o *object) (reply, error) {
	if err := o.close(); err != nil {
		return noBody(err)
	}
	// Before retract: no new note of the object can be queued, since Event finds no handle.
	c.remove(o)
	c.retract(o)
	if err := c.retire(abi.OpClose, o.gone, func() { c.release(o) }); err != nil {
		return noBody(err)
	}
	// The verb has returned, so no shard sends events of the object any more.
	count := abi.CloseReply{Events: o.events.Load()}
	if o.queue != nil {
		count.Completions = o.queue.sent.Load()
	}
	if o.cm != nil {
		_, count.Signals = o.cm.channel.waiting()
	}
	return withBody(count)
}
