package cma

import (
	"container/list"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/wire"
)

// The range of ports for Bind with port 0 is that of Linux (net.ipv4.ip_local_port_range), which rdma_cm takes, too.
const (
	firstDynamicPort = 32768
	dynamicCount     = 61000 - firstDynamicPort
)

// has reports whether an address is one of the port's.
func (p *Port) has(a netip.Addr) bool { return p.host.GIDIndex(ib.GIDFromAddr(a), true) >= 0 }

// first returns the port's first address of a family.
func (p *Port) first(family netip.Addr) (netip.Addr, bool) {
	for _, e := range p.host.HeldGIDs() {
		if own := e.GID.Addr(); own.Is4() == family.Is4() {
			return own, true
		}
	}
	return family, false
}

// inPlace returns the port's address that a loopback address stands for: its first one of the family (Linux's
// cma_bind_loopback). A port on the loopback interface itself has no such replacement: other loopback addresses are
// other hosts.
func (p *Port) inPlace(a netip.Addr) (netip.Addr, bool) {
	for _, e := range p.host.HeldGIDs() {
		if own := e.GID.Addr(); own.IsLoopback() {
			break
		} else if own.Is4() == a.Is4() {
			return own, a.IsLoopback()
		}
	}
	return a, false
}

// heldBy lists the addresses of ports.
func heldBy(ports []*Port) (all []ib.GIDEntry) {
	for _, p := range ports {
		all = append(all, p.host.HeldGIDs()...)
	}
	return all
}

// find returns which port has the address that a means, and that address: a itself, or one in its place.
func find(op string, ports []*Port, a netip.Addr) (*Port, netip.Addr, error) {
	for _, p := range ports {
		if p.has(a) {
			return p, a, nil
		}
	}
	for _, p := range ports {
		if own, ok := p.inPlace(a); ok {
			return p, own, nil
		}
	}
	return nil, a, driver.Refuse(op, "address", a,
		"one of the device: "+driver.ListGIDs(heldBy(ports))+"; an unspecified one for all of them", ib.ErrNoAddr)
}

// ownAddr returns the address of one of the ports that a loopback or unspecified destination means; a if there is none.
func ownAddr(op string, ports []*Port, a netip.Addr) netip.Addr {
	if !a.IsUnspecified() {
		_, a, _ = find(op, ports, a)
		return a
	}
	for _, p := range ports {
		if own, ok := p.first(a); ok {
			return own
		}
	}
	return a
}

// near returns the ports on whose links an address may be: all but for a link-local address with a zone.
func near(ports []*Port, a netip.Addr) []*Port {
	if a.Zone() == "" {
		return ports
	}
	return slices.DeleteFunc(slices.Clone(ports), func(p *Port) bool { return p.foreign(a) })
}

// zones names the network interfaces of ports.
func zones(ports []*Port) string {
	var names []string
	for _, p := range ports {
		names = append(names, p.netif())
	}
	return "the device's interface, " + strings.Join(names, " or ")
}

// reach returns the ports at which the ID is: that of its address, or all without one.
func (id *ID) reach() []*Port {
	if a := id.local.Addr(); a.IsValid() && !a.IsUnspecified() {
		return id.port.alone
	}
	return id.ch.ports
}

// netif returns the network interface of the device, the zone of its link-local addresses.
func (p *Port) netif() string {
	for _, e := range p.host.HeldGIDs() {
		return e.NetIf
	}
	return ""
}

// foreign reports whether an address is one of another link than the device's. A device without a network interface,
// as in simulations, has no other.
func (p *Port) foreign(a netip.Addr) bool {
	own := p.netif()
	return a.Zone() != "" && a.IsLinkLocalUnicast() && own != "" && a.Zone() != own
}

// zoned returns one of the ID's addresses with the zone that the application has named, if it is link-local.
func (id *ID) zoned(a netip.AddrPort) netip.AddrPort {
	if !a.Addr().Is6() || !a.Addr().IsLinkLocalUnicast() {
		return a
	}
	return netip.AddrPortFrom(a.Addr().WithZone(id.zone), a.Port())
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
	a, p, ports := driver.PlainAddr(local.Addr()), id.home, near(id.ch.ports, local.Addr())
	switch {
	case !a.IsValid():
		a = netip.IPv6Unspecified()
	case a.IsUnspecified():
	case len(ports) == 0:
		return driver.Refuse(op, "zone", local.Addr(), zones(id.ch.ports), ib.ErrNoAddr)
	default:
		if p, a, err = find(op, ports, a); err != nil {
			return err
		}
		if id.init.Space == ib.PortSpaceIPoIB { // Linux's cma_acquire_dev_by_src_ip
			return driver.Refuse(op, "Space", id.init.Space, "TCP, UDP, IB: RoCE has no IPoIB", ib.ErrInvalid)
		}
	}
	id.local, id.zone, id.port = netip.AddrPortFrom(a, local.Port()), local.Addr().Zone(), p
	if id.init.ServiceID == 0 { // otherwise Listen takes the service ID, or ResolveAddr a port
		err = id.bindPort(op)
	}
	if err != nil {
		id.local, id.port = netip.AddrPort{}, id.home
		return err
	}
	id.state = stateBound
	return nil
}

// bindPort reserves the port of the ID's local address, or for port 0 a free one.
func (id *ID) bindPort(op string) error {
	if port := id.local.Port(); port != 0 {
		return id.bindKey(op, id.init.Space.ServiceID(port), id.reuse)
	}
	full := id.fullPorts(op)
	first := id.port.opts.Rand.IntN(dynamicCount)
	for i := range dynamicCount {
		port := uint16(firstDynamicPort + (first+i)%dynamicCount)
		key := id.init.Space.ServiceID(port)
		if !id.shares(full, key) || !id.unique(key) {
			continue
		}
		id.local = netip.AddrPortFrom(id.local.Addr(), port)
		return id.reserve(op, key)
	}
	taken := fmt.Sprintf("0, and none of the %d from %d on is free in port space %v", dynamicCount, firstDynamicPort,
		id.init.Space)
	allowed := "0 when one is free; close IDs first, or connect to other destinations, for which ports may be shared"
	for _, refused := range full {
		if attr := (*ib.AttrError)(nil); errors.As(refused, &attr) {
			allowed += "; " + attr.Allowed
			break
		}
	}
	return driver.Refuse(op, "port", taken, allowed, ib.ErrNoPort)
}

// fullPorts returns at which ports the ID's owner may have no further dynamic port, and why.
func (id *ID) fullPorts(op string) map[*Port]error {
	full := map[*Port]error{}
	for _, p := range id.reach() {
		if err := p.room(op, id.ch.owner, dynamicPorts); err != nil {
			full[p] = err
		}
	}
	return full
}

// shares reports whether another ID of the owner has a dynamic port wherever it may have no further one.
func (id *ID) shares(full map[*Port]error, key uint64) bool {
	for p := range full {
		if id.ch.owner.ports[portService{p, key}] == 0 {
			return false
		}
	}
	return true
}

// unique reports whether an ID may have a port that it has not asked for. IDs whose destinations differ may share one;
// an ID without a destination has its port alone (Linux's cma_port_is_unique).
func (id *ID) unique(key uint64) bool {
	for _, p := range id.reach() {
		if !p.unique(id.place(), id.destination(), key) {
			return false
		}
	}
	return true
}

func (p *Port) unique(at place, to netip.AddrPort, key uint64) bool {
	if !to.IsValid() {
		return !p.binds[bindKey{key, anywhere}].overlaps(at)
	}
	return !p.binds[bindKey{key, nowhere}].overlaps(at) && !p.binds[bindKey{key, to}].overlaps(at)
}

// bindKey reserves a port or a service ID for an ID.
func (id *ID) bindKey(op string, key uint64, reuse bool) error {
	if space, port, ok := wire.SplitServiceID(key); ok {
		if may := id.ch.owner.limits.MayBind; may != nil {
			if err := may(space, port); err != nil {
				return err
			}
		}
	}
	if err := id.checkBind(op, key, reuse); err != nil {
		return err
	}
	return id.reserve(op, key)
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

// bindKey is a key of Port.binds: a service ID, and anywhere for all IDs that have reserved it, or a destination for
// those that connect to that.
type bindKey struct {
	service uint64
	to      netip.AddrPort
}

var (
	nowhere  = netip.AddrPort{}                               // of IDs without a destination
	anywhere = netip.AddrPortFrom(netip.IPv6Unspecified(), 0) // no ID has this destination
)

// destination returns where the ID connects to; the zero value if that is not known, or has no port.
func (id *ID) destination() netip.AddrPort {
	if id.remote.Port() == 0 {
		return nowhere
	}
	return id.remote
}

// binding counts the IDs that have reserved a service ID, by place. There are few places, however many IDs share the
// service ID: the addresses of the port, and the unspecified ones.
type binding []sharing

// sharing counts the IDs with one service ID at one place.
type sharing struct {
	at        place
	ids       int
	exclusive int // without CMOptionReuseAddr
}

// overlaps reports whether an ID has reserved the service ID at a place that overlaps at.
func (b binding) overlaps(at place) bool {
	return slices.ContainsFunc(b, func(s sharing) bool { return s.at.overlaps(at) })
}

// count adds n IDs, 1 or -1, to those at a place.
func (p *Port) count(key bindKey, r *reservation, n int) {
	b := p.binds[key]
	i := slices.IndexFunc(b, func(s sharing) bool { return s.at == r.at })
	if i < 0 {
		i, b = len(b), append(b, sharing{at: r.at})
	}
	b[i].ids += n
	if !r.reuse {
		b[i].exclusive += n
	}
	if b[i].ids == 0 {
		b = slices.Delete(b, i, i+1)
	}
	if p.binds[key] = b; len(b) == 0 {
		delete(p.binds, key)
	}
}

// reservation is the part of an ID in two bindings of each port. The zero value is none.
type reservation struct {
	ports   []*Port
	service uint64
	at      place
	to      netip.AddrPort
	reuse   bool
}

// dynamic reports whether a service ID is that of a port that Bind may choose.
func dynamic(service uint64) bool {
	_, port, ok := wire.SplitServiceID(service)
	return ok && port >= firstDynamicPort && port < firstDynamicPort+dynamicCount
}

// reserve notes that the ID has a service ID.
func (id *ID) reserve(op string, service uint64) error {
	r := reservation{id.reach(), service, id.place(), id.destination(), id.reuse}
	for i, p := range r.ports {
		if err := p.reserve(op, id.ch.owner, &r); err != nil {
			for _, done := range r.ports[:i] {
				done.unreserve(id.ch.owner, &r)
			}
			return err
		}
	}
	id.bound = r
	return nil
}

// unbind frees an ID's port or service ID.
func (id *ID) unbind() {
	for _, p := range id.bound.ports {
		p.unreserve(id.ch.owner, &id.bound)
	}
	id.bound = reservation{}
}

func (p *Port) reserve(op string, o *Owner, r *reservation) error {
	if dynamic(r.service) {
		key := portService{p, r.service}
		if o.ports[key] == 0 {
			if err := p.take(op, o, dynamicPorts); err != nil {
				return err
			}
		}
		o.ports[key]++
	}
	p.count(bindKey{r.service, anywhere}, r, 1)
	p.count(bindKey{r.service, r.to}, r, 1)
	return nil
}

// unreserve undoes reserve.
func (p *Port) unreserve(o *Owner, r *reservation) {
	if dynamic(r.service) {
		key := portService{p, r.service}
		if o.ports[key]--; o.ports[key] == 0 {
			delete(o.ports, key)
			p.hold(o, dynamicPorts, -1)
		}
	}
	p.count(bindKey{r.service, anywhere}, r, -1)
	p.count(bindKey{r.service, r.to}, r, -1)
}

// rebind follows a change of the ID's addresses or options.
func (id *ID) rebind() {
	if service := id.bound.service; service != 0 {
		id.unbind()
		_ = id.reserve("bind", service) // what unbind has freed
	}
}

// checkBind refuses a port or service ID that another ID has reserved at an overlapping address (Linux's
// cma_check_port).
func (id *ID) checkBind(op string, key uint64, reuse bool) error {
	for _, p := range id.reach() {
		if err := p.checkBind(op, id, key, reuse); err != nil {
			return err
		}
	}
	return nil
}

func (p *Port) checkBind(op string, id *ID, key uint64, reuse bool) error {
	for _, n := range p.binds[bindKey{key, anywhere}] {
		if own := id.bound; own.service == key && own.at == n.at && slices.Contains(own.ports, p) {
			if n.ids--; !own.reuse {
				n.exclusive--
			}
		}
		if n.ids == 0 || reuse && n.exclusive == 0 || !n.at.overlaps(id.place()) {
			continue
		}
		value := fmt.Sprintf("service ID %#x", key)
		if space, port, ok := wire.SplitServiceID(key); ok {
			value = fmt.Sprintf("%d of port space %v (service ID %#x)", port, space, key)
		}
		allowed := fmt.Sprintf("one that no other ID has reserved at %v; an ID at %v has: close that ID, choose "+
			"another port or address, or port 0 for a free one", id.local.Addr(), n.at.addr)
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
	owner := id.ch.owner
	if owner.listeners >= owner.limits.Listeners {
		return overLimit(op, "listeners", owner.limits.Listeners)
	}
	key := id.init.ServiceID
	if key != 0 {
		if err := id.bindKey(op, key, false); err != nil {
			return err
		}
	} else {
		key = id.bound.service
		if err := id.checkBind(op, key, false); err != nil {
			return err
		}
	}
	if err := id.listenAt(key); err != nil {
		return err
	}
	if id.backlog = backlog; backlog == 0 || backlog > owner.limits.Backlog {
		id.backlog = owner.limits.Backlog
	}
	id.state, id.waiting = stateListening, list.New()
	owner.listeners++
	return nil
}

// listenAt makes the state machines of the ID's ports take requests for a service ID.
func (id *ID) listenAt(key uint64) error {
	at := id.local.Addr()
	if id.dual() {
		at = netip.Addr{}
	}
	for _, p := range id.reach() {
		l, err := p.m.Listen(key, at, id.init.Type == ib.UD)
		if err != nil {
			for _, done := range id.listens {
				done.port.m.Unlisten(done.id)
				delete(done.port.listeners, done.id)
			}
			id.listens = nil
			return err
		}
		id.listens = append(id.listens, listening{p, l})
		p.listeners[l] = id
	}
	return nil
}
