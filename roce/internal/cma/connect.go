package cma

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/roce/cm"
)

// Linux's error numbers, for the Status of events.
const (
	errnoNoAddr      = 99  // EADDRNOTAVAIL
	errnoUnreachable = 101 // ENETUNREACH
	errnoTimedOut    = 110 // ETIMEDOUT
)

// ResolveAddr chooses the local address from which to reach dst. It sends no query: the address comes from the GID
// table.
func (id *ID) ResolveAddr(local, dst netip.AddrPort, _ time.Duration) error {
	const op = "resolve address"
	to := driver.PlainAddr(dst.Addr())
	route := id.route(to)
	if err := id.lock(op, stateIdle, stateBound); err != nil {
		return err
	}
	defer id.home.mu.Unlock()
	switch {
	case !to.IsValid(), to.IsMulticast() && id.init.Type != ib.UD:
		return driver.Refuse(op, "destination", dst.Addr(), "the peer's own address, with UD a group's", ib.ErrInvalid)
	case len(near(id.reach(), dst.Addr())) == 0:
		return id.otherLink(op, dst.Addr())
	case to.IsUnspecified() || to.IsLoopback(): // this device, as in Linux's cma_bind_loopback
		to = ownAddr(op, id.reach(), to)
	}
	id.remote = netip.AddrPortFrom(to, dst.Port()) // with which a port is chosen
	defer func() {
		if id.state != stateAddrResolved {
			id.remote = netip.AddrPort{}
			id.rebind()
		}
	}()
	if id.state == stateIdle {
		from := netip.AddrPortFrom(local.Addr().Unmap(), local.Port())
		if !from.Addr().IsValid() {
			from = netip.AddrPortFrom(unspecifiedOf(to), from.Port())
		}
		if err := id.bind(op, from); err != nil {
			return err
		}
		if len(near(id.reach(), dst.Addr())) == 0 {
			return id.otherLink(op, dst.Addr())
		}
	}
	a := id.local.Addr()
	if a.Is4() != to.Is4() && !id.dual() {
		return driver.Refuse(op, "destination", to,
			fmt.Sprintf("an address of the family of the local one, %v", a), ib.ErrInvalid)
	}
	if a.IsUnspecified() {
		p, source := sourceAt(near(id.reach(), dst.Addr()), to, route)
		if p == nil {
			id.ch.put(id, ib.CMEvent{Type: ib.CMAddrError, Status: -errnoUnreachable})
			return nil
		}
		id.port, a = p, source
	}
	if id.zone == "" {
		id.zone = dst.Addr().Zone()
	}
	id.local = netip.AddrPortFrom(a, id.local.Port())
	id.rebind()
	if id.bound.service == 0 {
		if err := id.bindPort(op); err != nil {
			return err
		}
	}
	// The flow label is that of Linux's cma_get_roce_udp_flow_label.
	id.path = cm.Path{Local: ib.GIDFromAddr(a), Remote: ib.GIDFromAddr(to), FlowLabel: (uint32(id.local.Port())*31 +
		uint32(dst.Port())) & 0xFFFFF}
	id.state = stateAddrResolved
	id.ch.put(id, ib.CMEvent{Type: ib.CMAddrResolved})
	return nil
}

// otherLink is the error of a link-local destination that is not on the ID's links.
func (id *ID) otherLink(op string, dst netip.Addr) error {
	return driver.Refuse(op, "zone", dst, zones(id.reach()), ib.ErrNoRoute)
}

// route returns the address from which the host's routes lead to an address, where that chooses among devices.
func (id *ID) route(to netip.Addr) netip.Addr {
	if source := id.home.opts.Source; id.several && source != nil && to.IsValid() {
		return source(to)
	}
	return netip.Addr{}
}

// sourceAt chooses the port from which to reach an address, and the port's address: to itself if it is a port's own,
// what the host's routes say, or the one most like it. Without any of the family the port is nil.
func sourceAt(ports []*Port, to, route netip.Addr) (*Port, netip.Addr) {
	for _, a := range [...]netip.Addr{to, route} {
		for _, p := range ports {
			if a.IsValid() && p.has(a) {
				return p, a
			}
		}
	}
	best, ok := ib.SourceGID(heldBy(ports), to)
	for _, p := range ports {
		if ok && p.has(best.GID.Addr()) {
			return p, best.GID.Addr()
		}
	}
	return nil, netip.Addr{}
}

func unspecifiedOf(a netip.Addr) netip.Addr {
	if a.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// maxRoutes is how many calls of Options.Route run at a time for an owner. Each may block a thread.
const maxRoutes = 32

// ResolveRoute completes the path: its MTU is what Options.Route finds.
func (id *ID) ResolveRoute(time.Duration) error {
	const op = "resolve route"
	if err := id.lock(op, stateAddrResolved); err != nil {
		return err
	}
	defer id.home.mu.Unlock()
	if id.routing {
		return driver.Refuse(op, "CM ID", "resolving the route", "one call at a time", ib.ErrState)
	}
	id.path.TrafficClass = id.tos
	route := id.port.opts.Route
	if route == nil {
		id.routed(0, 0)
		return nil
	}
	id.routing = true
	src, dst, want := id.path.Local.Addr(), id.path.Remote.Addr(), id.pathMTU()
	if id.init.Type == ib.UD {
		want = 0
	}
	go func() {
		p, owner := id.port, id.ch.owner
		owner.routes <- struct{}{}
		mtu, errno := route(src, dst, want)
		<-owner.routes
		p.mu.Lock()
		defer p.mu.Unlock()
		id.routing = false
		switch {
		case id.state == stateClosed: // close has left the ID counted, which bounds these goroutines
			id.give()
		case id.state == stateAddrResolved && !p.closed:
			id.routed(mtu, errno)
		}
	}()
	return nil
}

// routed ends ResolveRoute.
func (id *ID) routed(mtu ib.MTU, errno int) {
	if errno != 0 {
		id.ch.put(id, ib.CMEvent{Type: ib.CMRouteError, Status: -errno})
		return
	}
	id.state, id.routeMTU = stateRouteResolved, mtu
	id.ch.put(id, ib.CMEvent{Type: ib.CMRouteResolved})
}

// checkParam checks the parameters of Connect or Accept.
func (id *ID) checkParam(op string, c *ib.CMConnParam) error {
	for _, f := range []struct {
		attr  string
		value uint8
	}{{"ResponderResources", c.ResponderResources}, {"InitiatorDepth", c.InitiatorDepth}} {
		if most := id.port.opts.MaxRdAtomic; f.value > most {
			return driver.Refuse(op, f.attr, f.value, fmt.Sprintf("0 to %d", most), ib.ErrInvalid)
		}
	}
	return id.port.host.CheckQP(op, id.ch.tenant, c.QPN, id.init.Type)
}

// paramsOf converts the parameters of Connect or Accept for the state machine.
func (id *ID) paramsOf(c *ib.CMConnParam) cm.Params {
	p := cm.Params{QPN: c.QPN, Service: id.init.Type, SRQ: c.SRQ, ResponderResources: c.ResponderResources,
		InitiatorDepth: c.InitiatorDepth,
		RetryCount:     min(c.RetryCount, 7), RNRRetry: min(c.RNRRetry, 7), PrivateData: c.PrivateData}
	if p.Service == ib.UC { // without READs and atomics
		p.ResponderResources, p.InitiatorDepth = 0, 0
	}
	return p
}

// service returns the service ID to which the ID connects.
func (id *ID) service() uint64 {
	if id.init.ServiceID != 0 {
		return id.init.ServiceID
	}
	return id.init.Space.ServiceID(id.remote.Port())
}

// Connect requests a connection, or with UD resolves a datagram service.
func (id *ID) Connect(c ib.CMConnParam) error {
	const op = "connect"
	if err := id.lock(op, stateRouteResolved); err != nil {
		return err
	}
	defer id.home.unlock()
	p := id.port
	now := p.host.Now()
	giveUp := driver.Never
	if c.Timeout > 0 {
		giveUp = now + ib.Instant(c.Timeout)
	}
	err := p.take(op, id.ch.owner, connections)
	if err != nil {
		return err
	}
	if id.init.Type == ib.UD {
		id.conn, err = p.m.Resolve(now, cm.Resolve{Path: id.path, ServiceID: id.service(), SrcPort: id.local.Port(),
			PrivateData: c.PrivateData, GiveUp: giveUp})
	} else if err = id.checkParam(op, &c); err == nil {
		id.conn, err = p.m.Connect(now, cm.Connect{Params: id.paramsOf(&c), Path: id.path, ServiceID: id.service(),
			SrcPort: id.local.Port(),
			PathMTU: id.pathMTU(), FixedMTU: id.mtu != 0, AckTimeout: id.ackTimeout, GiveUp: giveUp})
	}
	if err != nil {
		p.hold(id.ch.owner, connections, -1)
		return err
	}
	id.active, id.state, id.cause = true, stateConnecting, 0
	p.dials.add(id)
	id.params.ResponderResources = c.ResponderResources // InitQPAttr derives the QP's access rights from it
	p.conns[id.conn] = id
	return nil
}

// Accept answers a request.
func (id *ID) Accept(c ib.CMConnParam) error {
	const op = "accept"
	if err := id.lock(op, stateConnecting); err != nil {
		return err
	}
	defer id.home.unlock()
	now := id.port.host.Now()
	if err := id.answerable(op, !id.active); err != nil {
		return err
	}
	if err := id.checkParam(op, &c); err != nil {
		return err
	}
	if id.init.Type == ib.UD {
		a := cm.Answer{Status: ib.SIDRValid, QPN: c.QPN, QKey: c.QKey, PrivateData: c.PrivateData}
		if a.QKey == 0 {
			a.QKey = ib.DefaultCMQKey
		}
		if err := id.port.m.Answer(now, id.conn, a); err != nil {
			return err
		}
		id.disown()
		id.state, id.muted = stateConnected, false
		return nil
	}
	params, err := id.port.m.Accept(now, id.conn, id.paramsOf(&c))
	if err == nil {
		id.params, id.muted = params, false
	}
	return err
}

// Establish sends the RTU.
func (id *ID) Establish() error {
	const op = "establish"
	if err := id.lock(op, stateConnecting); err != nil {
		return err
	}
	defer id.home.unlock()
	if err := id.answerable(op, id.active); err != nil {
		return err
	}
	err := id.port.m.Confirm(id.port.host.Now(), id.conn, nil)
	if err == nil {
		id.state = stateConnected
	}
	return err
}

// answerable refuses Accept and Establish if may is false, that is if the ID is the wrong end, or if the ID has no
// connection.
func (id *ID) answerable(op string, may bool) error {
	if may && id.conn != 0 {
		return nil
	}
	return driver.Refuse(op, "CM ID", "without a request to answer",
		"Accept after CMConnectRequest, Establish after CMConnectResponse", ib.ErrState)
}

// Reject refuses a peer's request or reply.
func (id *ID) Reject(r ib.CMReject) error {
	const op = "reject"
	if err := id.lock(op, stateConnecting); err != nil {
		return err
	}
	defer id.home.unlock()
	if r.Reason == 0 {
		r.Reason = ib.RejectConsumer
	}
	if err := id.port.m.Reject(id.port.host.Now(), id.conn, r.Reason, r.Info, r.PrivateData); err != nil {
		return err
	}
	id.disown()
	id.state = stateOver
	return nil
}

// Delay sends an MRA.
func (id *ID) Delay(d time.Duration) error {
	if err := id.lock("delay", stateConnecting); err != nil {
		return err
	}
	defer id.home.unlock()
	return id.port.m.Delay(id.port.host.Now(), id.conn, ib.Instant(d))
}

// Disconnect sends a DREQ, if there is a connection. A listener at an address of the device has none, which is no
// error, as with Linux's rdma_disconnect.
func (id *ID) Disconnect() error {
	const op = "disconnect"
	if err := id.lock(op, stateListening, stateConnecting, stateConnected, stateOver); err != nil {
		return err
	}
	defer id.home.unlock()
	if id.state == stateListening && id.local.Addr().IsUnspecified() {
		return id.check(op, stateConnecting, stateConnected, stateOver)
	}
	if id.conn == 0 {
		return nil
	}
	err := id.port.m.Disconnect(id.port.host.Now(), id.conn, nil)
	if errors.Is(err, cm.ErrState) || errors.Is(err, cm.ErrUnknownID) { // Linux's rdma_disconnect ignores both
		return nil
	}
	return err
}

// Notify reports that data arrived on the QP, which may establish the connection without an RTU.
func (id *ID) Notify(t ib.EventType) error {
	if err := id.lock("notify"); err != nil {
		return err
	}
	defer id.home.unlock()
	if id.conn == 0 { // Linux's rdma_notify
		return driver.Refuse("notify", "CM ID", id.state, "one with a connection or a request", ib.ErrState)
	}
	if t == ib.EventCommEst {
		id.port.m.DataArrived(id.port.host.Now(), id.conn)
	}
	return nil
}
