package cma

import (
	"container/list"
	"fmt"
	"net/netip"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/wire"
)

// The range of ports for Bind with port 0 is that of Linux (net.ipv4.ip_local_port_range), which rdma_cm takes, too.
const (
	firstDynamicPort = 32768
	dynamicCount     = 61000 - firstDynamicPort
)

// localAddr returns the device's address that a means: a itself, or for a loopback address the device's first address
// of the family (Linux's cma_bind_loopback). If the device is on the loopback interface itself there is no such
// replacement: other loopback addresses are other hosts.
func (p *Port) localAddr(op string, a netip.Addr) (netip.Addr, error) {
	if p.host.GIDIndex(ib.GIDFromAddr(a), true) >= 0 {
		return a, nil
	}
	for _, e := range p.host.HeldGIDs() {
		if own := e.GID.Addr(); a.IsLoopback() && own.Is4() == a.Is4() && !own.IsLoopback() {
			return own, nil
		} else if own.IsLoopback() {
			break
		}
	}
	return a, driver.Refuse(op, "address", a,
		"one of the device: "+driver.ListGIDs(p.host.HeldGIDs())+"; an unspecified one for all of them", ib.ErrNoAddr)
}

// ownAddr returns the device's address that a loopback or unspecified destination means.
func (p *Port) ownAddr(op string, a netip.Addr) (netip.Addr, error) {
	if !a.IsUnspecified() {
		return p.localAddr(op, a)
	}
	for _, e := range p.host.HeldGIDs() {
		if own := e.GID.Addr(); own.Is4() == a.Is4() {
			return own, nil
		}
	}
	return a, driver.Refuse(op, "address", a, "one of: "+driver.ListGIDs(p.host.HeldGIDs()), ib.ErrNoAddr)
}

// Bind gives the ID a local address.
func (id *ID) Bind(local netip.AddrPort) error {
	const op = "bind"
	if err := id.lock(op, stateIdle); err != nil {
		return err
	}
	defer id.port.mu.Unlock()
	return id.bind(op, local)
}

// bind is Bind for callers that hold mu.
func (id *ID) bind(op string, local netip.AddrPort) (err error) {
	a := driver.PlainAddr(local.Addr())
	switch {
	case !a.IsValid():
		a = netip.IPv6Unspecified()
	case a.IsUnspecified():
	default:
		if a, err = id.port.localAddr(op, a); err != nil {
			return err
		}
		if id.init.Space == ib.PortSpaceIPoIB { // Linux's cma_acquire_dev_by_src_ip
			return driver.Refuse(op, "Space", id.init.Space, "TCP, UDP, IB: RoCE has no IPoIB", ib.ErrInvalid)
		}
	}
	id.local = netip.AddrPortFrom(a, local.Port())
	if id.init.ServiceID == 0 { // otherwise Listen takes the service ID, or ResolveAddr a port
		err = id.bindPort(op)
	}
	if err != nil {
		id.local = netip.AddrPort{}
		return err
	}
	id.state = stateBound
	return nil
}

// bindPort reserves the port of the ID's local address, or for port 0 a free one.
func (id *ID) bindPort(op string) error {
	p := id.port
	if port := id.local.Port(); port != 0 {
		return p.bindKey(op, id, id.init.Space.ServiceID(port), id.reuse)
	}
	first := p.opts.Rand.IntN(dynamicCount)
	for i := range dynamicCount {
		port := uint16(firstDynamicPort + (first+i)%dynamicCount)
		if key := id.init.Space.ServiceID(port); len(p.binds[key]) == 0 {
			id.local = netip.AddrPortFrom(id.local.Addr(), port)
			return p.reserve(op, id, key)
		}
	}
	taken := fmt.Sprintf("0, and all %d ports from %d on are taken in port space %v", dynamicCount, firstDynamicPort,
		id.init.Space)
	return driver.Refuse(op, "port", taken, "0 when one is free; close IDs first", ib.ErrLimit)
}

// bindKey reserves a port or a service ID for an ID.
func (p *Port) bindKey(op string, id *ID, key uint64, reuse bool) error {
	if space, port, ok := wire.SplitServiceID(key); ok {
		if may := id.ch.owner.limits.MayBind; may != nil {
			if err := may(space, port); err != nil {
				return err
			}
		}
	}
	if err := p.checkBind(op, id, key, reuse); err != nil {
		return err
	}
	return p.reserve(op, id, key)
}

// place is a local address with the families that it stands for.
type place struct {
	addr netip.Addr
	dual bool // all addresses of both families
}

// place returns where the ID is bound.
func (id *ID) place() place { return place{id.local.Addr(), id.dual()} }

// overlaps reports whether two places have an address in common.
func (a place) overlaps(b place) bool {
	if a.dual || b.dual {
		return true
	}
	x, y := a.addr, b.addr
	return x.Is4() == y.Is4() && (x == y || x.IsUnspecified() || y.IsUnspecified())
}

// binding counts the IDs that have reserved a service ID, by place. There are few places, however many IDs share the
// service ID: the addresses of the port, and the unspecified ones.
type binding map[place]sharing

// sharing counts the IDs with one service ID at one place.
type sharing struct {
	ids       int
	exclusive int // without CMOptionReuseAddr
}

// reservation is the part of an ID in a binding. The zero value is none.
type reservation struct {
	service uint64
	at      place
	reuse   bool
}

// sharing returns what the reservation adds to the binding.
func (r *reservation) sharing() sharing {
	if r.reuse {
		return sharing{1, 0}
	}
	return sharing{1, 1}
}

// dynamic reports whether a service ID is that of a port that Bind may choose.
func dynamic(service uint64) bool {
	_, port, ok := wire.SplitServiceID(service)
	return ok && port >= firstDynamicPort && port < firstDynamicPort+dynamicCount
}

// reserve notes that the ID has a service ID.
func (p *Port) reserve(op string, id *ID, service uint64) error {
	if dynamic(service) {
		if err := p.take(op, id.ch.owner, dynamicPorts); err != nil {
			return err
		}
	}
	if p.binds[service] == nil {
		p.binds[service] = binding{}
	}
	r := reservation{service, id.place(), id.reuse}
	n, more := p.binds[service][r.at], r.sharing()
	p.binds[service][r.at] = sharing{n.ids + more.ids, n.exclusive + more.exclusive}
	id.bound = r
	return nil
}

// unbind frees an ID's port or service ID.
func (p *Port) unbind(id *ID) {
	r := id.bound
	if r.service == 0 {
		return
	}
	if dynamic(r.service) {
		p.hold(id.ch.owner, dynamicPorts, -1)
	}
	n, less := p.binds[r.service][r.at], r.sharing()
	if n.ids > less.ids {
		p.binds[r.service][r.at] = sharing{n.ids - less.ids, n.exclusive - less.exclusive}
	} else if delete(p.binds[r.service], r.at); len(p.binds[r.service]) == 0 {
		delete(p.binds, r.service)
	}
	id.bound = reservation{}
}

// rebind follows a change of the ID's address or options.
func (id *ID) rebind() {
	if service := id.bound.service; service != 0 {
		id.port.unbind(id)
		_ = id.port.reserve("bind", id, service) // what unbind has freed
	}
}

// checkBind refuses a port or service ID that another ID has reserved at an overlapping address (Linux's
// cma_check_port).
func (p *Port) checkBind(op string, id *ID, key uint64, reuse bool) error {
	for at, n := range p.binds[key] {
		if own := id.bound; own.service == key && own.at == at {
			less := own.sharing()
			n = sharing{n.ids - less.ids, n.exclusive - less.exclusive}
		}
		if n.ids == 0 || reuse && n.exclusive == 0 || !at.overlaps(id.place()) {
			continue
		}
		value := fmt.Sprintf("service ID %#x", key)
		if space, port, ok := wire.SplitServiceID(key); ok {
			value = fmt.Sprintf("%d of port space %v (service ID %#x)", port, space, key)
		}
		allowed := fmt.Sprintf("one that no other ID has reserved at %v; an ID at %v has: close that ID, choose "+
			"another port or address, or port 0 for a free one", id.local.Addr(), at.addr)
		return driver.Refuse(op, "port", value, allowed, ib.ErrAddrInUse)
	}
	return nil
}

// dual reports whether the ID's address means all addresses of both families.
func (id *ID) dual() bool { return id.local.Addr() == netip.IPv6Unspecified() && !id.afOnly }

// Listen makes the ID a listener for requests to its port or service ID.
func (id *ID) Listen(backlog int) error {
	const op = "listen"
	if err := id.lock(op, stateIdle, stateBound); err != nil {
		return err
	}
	defer id.port.mu.Unlock()
	if backlog < 0 {
		return driver.Refuse(op, "backlog", backlog, "at least 1; 0 for the most", ib.ErrInvalid)
	}
	if id.state == stateIdle {
		if err := id.bind(op, netip.AddrPort{}); err != nil {
			return err
		}
	}
	p, owner := id.port, id.ch.owner
	if owner.listeners >= owner.limits.Listeners {
		return overLimit(op, "listeners", owner.limits.Listeners)
	}
	key := id.init.ServiceID
	if key != 0 {
		if err := p.bindKey(op, id, key, false); err != nil {
			return err
		}
	} else {
		key = id.bound.service
		if err := p.checkBind(op, id, key, false); err != nil {
			return err
		}
	}
	at := id.local.Addr()
	if id.dual() {
		at = netip.Addr{}
	}
	l, err := p.m.Listen(key, at, id.init.Type == ib.UD)
	if err != nil {
		return err
	}
	if id.backlog = backlog; backlog == 0 || backlog > owner.limits.Backlog {
		id.backlog = owner.limits.Backlog
	}
	id.listen, id.state, id.waiting = l, stateListening, list.New()
	p.listeners[l] = id
	owner.listeners++
	return nil
}
