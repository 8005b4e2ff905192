package server

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/roce/daemon/abi"
	"github.com/goroce/goroce/roce/internal/device"
)

// Clients use the connection managers of the devices' ports by event channels and IDs, as programs in this process do.
// The device writes the messages, so a client cannot forge one: it can name only QPs of its own process, and addresses
// of the device. IDs of a channel are on the device that the client has opened or, if it asks for that, on the device
// that has their address, as with Linux's cma.c. All clients of a user share one account (device.CMOwner), for all
// devices.

// cmAccounts are the users' accounts at the connection managers, by user ID.
type cmAccounts struct {
	mu     sync.Mutex
	owners map[uint32]*cmOwner
}

// cmOwner is the account of a user, as long as there is a session that has used the connection manager. Connections
// that linger after that stay charged to user.
type cmOwner struct {
	*device.CMOwner
	user     *account
	sessions int // that use it; guarded by cmAccounts.mu
}

// cmAccount returns the account of the client's user, and counts the session in it until leaveCM. Not every session
// has one: programs that never open a channel cost nothing here.
func (c *session) cmAccount() *device.CMOwner {
	a, uid := &c.srv.cm, c.who.Uid
	a.mu.Lock()
	defer a.mu.Unlock()
	o := a.owners[uid]
	if o == nil {
		// An account outlives the session that makes it, so its limits refer to the user and not to c.
		o = &cmOwner{CMOwner: c.unit.dev.NewCMOwner(c.srv.cmLimits(uid, c.user)), user: c.user}
		a.owners[uid] = o
	}
	if !c.usesCM {
		c.usesCM = true
		o.sessions++
	}
	return o.CMOwner
}

// leaveCM undoes cmAccount when the session ends.
func (c *session) leaveCM() {
	if !c.usesCM {
		return
	}
	a, uid := &c.srv.cm, c.who.Uid
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.owners[uid].sessions--; a.owners[uid].sessions == 0 {
		delete(a.owners, uid)
	}
}

// joinCM lets IDs be on any of the devices.
func (s *Server) joinCM() {
	var devices []*device.Device
	for _, u := range s.units {
		devices = append(devices, u.dev)
	}
	device.JoinCM(devices...)
}

// unitOf returns the device on which an ID is.
func (s *Server) unitOf(id *device.CMID) *unit {
	for _, u := range s.units {
		if u.dev.HasCMID(id) {
			return u
		}
	}
	return nil
}

// devicesOf names the devices on which an ID is: a listener without an address is on several.
func (s *Server) devicesOf(id *device.CMID) (names []string) {
	for _, u := range s.units {
		if u.dev.HasCMID(id) || u.dev.ListensCMID(id) {
			names = append(names, u.name)
		}
	}
	return names
}

// cmLimits returns a user's limits at the connection managers. They are given to the device once, and again by
// SetLimits.
func (s *Server) cmLimits(uid uint32, user *account) device.CMLimits {
	a := &s.accounts
	// Callers may hold cmAccounts.mu.
	a.mu.Lock()
	defer a.mu.Unlock()
	return device.CMLimits{IDs: a.cm.IDs, Listeners: a.cm.Listeners, HalfOpen: a.cm.HalfOpen, Backlog: a.cm.Backlog,
		Fair: true, MayBind: s.mayBind(uid), Charge: func(bytes int64) error { return a.charge(user, bytes) }}
}

// userPorts is the first port that every user may bind. rdma_cm has the same limit, PROT_SOCK,
// below which it requires CAP_NET_BIND_SERVICE (cma.c cma_use_port), whatever
// net.ipv4.ip_unprivileged_port_start is.
const userPorts = 1024

// mayBind returns the function that checks whether a user may bind a port.
func (s *Server) mayBind(uid uint32) func(ib.PortSpace, uint16) error {
	return func(space ib.PortSpace, port uint16) error {
		// By the user of the process that has connected, as privileged Q_Keys are.
		if port >= userPorts || s.privileged(uid) {
			return nil
		}
		return driver.Refuse("bind", "port", fmt.Sprintf("%d of %v", port, space),
			fmt.Sprintf("%d and above for user %d; others are for root and the daemon's own user", userPorts, uid),
			ib.ErrPermission)
	}
}

// openCM opens an event channel. The client gets a socket on which it is told that events wait, and takes them one by
// one (cmEvent). If it closes the socket the channel ends, though it was not asked for (watchChannel).
func openCM(c *session, body []byte, _ []int) (reply, error) {
	how, _ := abi.Get[abi.OpenCM](body) // that of clients that know one device only is empty
	if err := cmp.Or(c.take(abi.OpOpenCM, channels, 1), c.take(abi.OpOpenCM, descriptors, 1)); err != nil {
		return noBody(err)
	}
	box, theirs, err := newOutbox(c.conn)
	if err != nil {
		return noBody(err)
	}
	// The session is the tenant: an ID of this channel can name no QP of another client.
	ch, err := c.unit.dev.OpenCMFor(c.cmAccount(), c, how.Flags&abi.CMAllDevices != 0)
	if err != nil {
		box.close()
		_ = unix.Close(theirs)
		return noBody(err)
	}
	h := &cmChannel{CM: ch, box: box, ids: map[*object]struct{}{}}
	signal := note{message: string(abi.Put(nil, &abi.CMSignal{}))}
	// While the client does not read, one note is queued, however many events wait: it asks for events (cmEvent)
	// until none is left.
	ch.OnEvent(func() { box.put(&signal) })
	h.object = &object{kind: abi.KindCMChannel, value: h, close: func() error {
		err := h.Close()
		c.buryIDs(h)
		return err
	}}
	r, err := withBody(abi.Object{Handle: c.add(h.object)})
	go c.watchChannel(h)
	r.fds, r.made = []int{theirs}, h.object.handle
	r.sent = func() { _ = unix.Close(theirs) }
	return r, err
}

// createCMID makes an ID. A cookie says that the client counts events by ID, as librdmacm does: for requests to such
// a listener the device then keeps back what Linux would not deliver either.
func createCMID(c *session, r *abi.CreateCMID) (reply, error) {
	ch, err := lookup[*cmChannel](c, abi.OpCreateCMID, "Channel", r.Channel)
	if err != nil {
		return noBody(err)
	}
	id, err := ch.CreateID(ib.CMIDInit{Space: ib.PortSpace(min(r.Space, 0xFFFF)), Type: ib.QPType(min(r.Type, 0xFF)),
		ServiceID: r.ServiceID})
	if err != nil {
		return noBody(raisedBy(err, "number of IDs", "cm_ids"))
	}
	if cmID, ok := id.(*device.CMID); ok &&
		r.Cookie != 0 { // a request has no events before OpCMAccept gives it a cookie
		cmID.QuietRequests()
	}
	return withBody(abi.Object{Handle: c.addCMID(ch, id, r.Cookie)})
}

// raisedBy adds to an error about a limit of the device, of the attribute attr, which key in the daemon's configuration
// raises it.
func raisedBy(err error, attr, key string) error {
	if full := new(ib.AttrError); errors.As(err, &full) && errors.Is(err, ib.ErrLimit) && full.Attr == attr {
		full.Allowed += "; limits.user." + key + " in the daemon's configuration raises it"
	}
	return err
}

// cmEvent returns the oldest event of a channel, or CMNoEvent.
func cmEvent(c *session, r *abi.Object) (reply, error) {
	ch, err := lookup[*cmChannel](c, abi.OpCMEvent, "Channel", r.Handle)
	if err != nil {
		return noBody(err)
	}
	ev, ok, err := ch.Poll()
	if err != nil {
		return noBody(err)
	}
	out := abi.CMEvent{Type: abi.CMNoEvent}
	if ok {
		out = c.cmEventOf(ch, &ev)
	}
	out.Left, out.Signals = ch.waiting()
	return withBody(out)
}

// cmEventOf returns an event with its handles and cookie. It counts the event for its ID, if that has a cookie. A
// connection request counts for the listener instead, an event of a membership also for the membership.
func (c *session) cmEventOf(ch *cmChannel, ev *ib.CMEvent) abi.CMEvent {
	out := abi.CMEventOf(ev)
	of := c.objectOf(ev.ID)
	switch {
	case ev.Type == ib.CMConnectRequest:
		// The client has made every other ID itself. This one gets its handle when the client takes the event.
		out.ID = c.addCMID(ch, ev.ID, 0)
		// nil if the client has closed the listener since: the request is its own to refuse.
		of = c.objectOf(ev.Listener)
		out.Listener = of.handleOr0()
	case of != nil:
		out.ID = of.handle
	}
	if id, ok := ev.ID.(*device.CMID); ok {
		out.Service = uint32(id.Type())
	}
	if of == nil {
		return out
	}
	out.Cookie = of.cm.cookie
	if out.Cookie != 0 {
		of.events.Add(1)
	}
	if g := of.cm.joined(ev.Group); g != nil {
		out.Listener, out.Cookie = g.handle, g.cm.cookie
		g.events.Add(1)
	}
	return out
}

// onID calls f with the ID of a handle.
func onID(c *session, id abi.Handle, f func(ib.CMID) error) (reply, error) {
	v, err := lookup[*device.CMID](c, c.op, "ID", id)
	if err != nil {
		return noBody(err)
	}
	return noBody(f(v))
}

func cmBind(c *session, r *abi.CMBind) (reply, error) {
	return onID(c, r.ID, func(id ib.CMID) error { return id.Bind(r.Addr.AddrPort()) })
}

func cmListen(c *session, r *abi.CMListen) (reply, error) {
	return onID(c, r.ID, func(id ib.CMID) error {
		return raisedBy(id.Listen(int(min(r.Backlog, 1<<30))), "number of listeners", "cm_listeners")
	})
}

func cmResolveAddr(c *session, r *abi.CMResolve) (reply, error) {
	return onID(c, r.ID, func(id ib.CMID) error {
		return id.ResolveAddr(r.Local.AddrPort(), r.Remote.AddrPort(), time.Duration(r.TimeoutNS))
	})
}

func cmResolveRoute(c *session, r *abi.CMResolve) (reply, error) {
	return onID(c, r.ID, func(id ib.CMID) error { return id.ResolveRoute(time.Duration(r.TimeoutNS)) })
}

func cmConnect(c *session, r *abi.CMConnect) (reply, error) {
	return onID(c, r.ID, func(id ib.CMID) error { return id.Connect(r.Conn()) })
}

func cmAccept(c *session, r *abi.CMConnect) (reply, error) {
	return onID(c, r.ID, func(id ib.CMID) error {
		err := id.Accept(r.Conn())
		if err == nil && r.Cookie != 0 {
			// The ID of a request gets its cookie here. Its earlier events did not count.
			c.objects[r.ID].cm.cookie = r.Cookie
		}
		return err
	})
}

func cmEstablish(c *session, r *abi.Object) (reply, error) {
	return onID(c, r.Handle, ib.CMID.Establish)
}

func cmReject(c *session, r *abi.CMReject) (reply, error) {
	return onID(c, r.ID, func(id ib.CMID) error { return id.Reject(r.Reject()) })
}

func cmDelay(c *session, r *abi.CMDelay) (reply, error) {
	return onID(c, r.ID, func(id ib.CMID) error { return id.Delay(time.Duration(r.NS)) })
}

func cmDisconnect(c *session, r *abi.Object) (reply, error) {
	return onID(c, r.Handle, ib.CMID.Disconnect)
}

func cmNotify(c *session, r *abi.CMValue) (reply, error) {
	return onID(c, r.ID, func(id ib.CMID) error { return id.Notify(ib.EventType(min(r.Which, 0xFF))) })
}

// cmJoin makes an ID a member of a group. The membership gets a handle of its own, as librdmacm counts its events.
func cmJoin(c *session, r *abi.CMBind) (reply, error) {
	id, err := lookup[*device.CMID](c, abi.OpCMJoin, "ID", r.ID)
	if err != nil {
		return noBody(err)
	}
	group := r.Addr.AddrPort().Addr()
	if err := id.JoinMulticast(group); err != nil {
		return noBody(err)
	}
	return withBody(abi.Object{Handle: c.addMembership(c.objects[r.ID], group, r.Cookie)})
}

func cmLeave(c *session, r *abi.CMBind) (reply, error) {
	group := r.Addr.AddrPort().Addr()
	return onID(c, r.ID, func(id ib.CMID) error {
		err := id.LeaveMulticast(group)
		if err == nil {
			c.removeMembership(c.objects[r.ID], group)
		}
		return err
	})
}

func cmInitQPAttr(c *session, r *abi.CMValue) (reply, error) {
	id, err := lookup[*device.CMID](c, abi.OpCMInitQPAttr, "ID", r.ID)
	if err != nil {
		return noBody(err)
	}
	attr, mask, err := id.InitQPAttr(ib.QPState(min(r.Which, 0xFF)))
	if err != nil {
		return noBody(err)
	}
	return withBody(abi.QPAttrOf(0, &attr, mask))
}

func cmSetOption(c *session, r *abi.CMValue) (reply, error) {
	return onID(c, r.ID, func(id ib.CMID) error { return id.SetOption(ib.CMOption(r.Which), int(r.Value)) })
}

// cmQuery returns what is known of an ID, with the device that it is on: its index plus 1, 0 if it is on none.
func cmQuery(c *session, r *abi.Object) (reply, error) {
	id, err := lookup[*device.CMID](c, abi.OpCMQuery, "ID", r.Handle)
	if err != nil {
		return noBody(err)
	}
	attr, err := id.Query()
	if err != nil {
		return noBody(err)
	}
	out := abi.CMIDAttrOf(&attr)
	if u := c.srv.unitOf(id); u != nil {
		out.Device = uint32(u.index) + 1
	}
	return withBody(out)
}

// cmMigrate moves an ID, with its memberships and unread events, to another channel of the session. The reply says
// what has been taken of its events, and whether the client has a message left to read on the old channel's socket.
func cmMigrate(c *session, r *abi.CMValue) (reply, error) {
	to, err := lookup[*cmChannel](c, abi.OpCMMigrate, "Channel", abi.Handle(r.Value))
	if err != nil {
		return noBody(err)
	}
	id, err := lookup[*device.CMID](c, abi.OpCMMigrate, "ID", r.ID)
	if err != nil {
		return noBody(err)
	}
	if err := id.Migrate(to.CM); err != nil {
		return noBody(err)
	}
	o := c.objects[r.ID]
	from := o.cm.channel
	from.remove(o)
	to.ids[o] = struct{}{}
	o.cm.channel = to
	for _, g := range o.cm.groups {
		g.cm.channel = to
	}
	_, signals := from.waiting()
	return withBody(abi.CloseReply{Events: o.events.Load(), Signals: signals})
}
