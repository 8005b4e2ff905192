package doctor

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/neigh"
)

func checkInterface(e *env) []Finding {
	n := e.netif
	switch {
	case n == nil:
		return []Finding{e.missing}
	case !n.up:
		return []Finding{{Status: Fail, Text: n.name + " is down", Remedy: "bring it up:",
			Command: "ip link set " + n.name + " up"}}
	case !n.carrier:
		return []Finding{{Status: Fail, Text: n.name + " has no carrier",
			Remedy: "plug in the cable, or bring the other end up; " +
				"a virtual interface has one when its other end is up"}}
	}
	return ok(n.name + " is up")
}

// checkGIDs checks the addresses, which become the GID table.
func checkGIDs(e *env) []Finding {
	if e.netif == nil {
		return nil
	}
	var found []Finding
	for _, a := range e.netif.addrs {
		del := fmt.Sprintf("ip address del %v dev %s", a.Prefix, e.netif.name)
		switch {
		case len(e.Addrs) > 0 && !slices.Contains(e.Addrs, a.Addr()):
		case a.failed:
			found = append(found, Finding{Status: Fail,
				Text:   fmt.Sprintf("another host has %v: duplicate address detection failed", a.Addr()),
				Remedy: "take it away here, and give this host an address of its own:", Command: del})
		case a.tentative && e.netif.up:
			found = append(found, Finding{Status: Warn,
				Text:   fmt.Sprintf("%v is tentative: duplicate address detection is not over", a.Addr()),
				Remedy: "wait a second or two"})
		}
	}
	found = append(found, e.duplicates()...)
	if len(e.usable) == 0 {
		found = append(found, Finding{Status: Fail,
			Text:   e.netif.name + " has no usable address, so the GID table is empty",
			Remedy: fmt.Sprintf("give it one: ip address add ADDRESS/LENGTH dev %s", e.netif.name)})
	}
	if len(found) == 0 {
		return ok(fmt.Sprintf("%d: %v", len(e.usable), e.usable))
	}
	return found
}

// duplicates finds addresses that another interface of this machine has as well.
func (e *env) duplicates() []Finding {
	var found []Finding
	for i := range e.all {
		other := &e.all[i]
		if other.Name == e.netif.name {
			continue
		}
		n, err := readNetIf(other.Name)
		if err != nil {
			continue // it has disappeared meanwhile
		}
		for _, a := range n.addrs {
			if slices.Contains(e.usable, a.Addr()) {
				found = append(found, Finding{Status: Fail,
					Text: fmt.Sprintf("%s has %v, too: only one program can bind port 4791 of it", n.name,
						a.Addr()),
					Remedy:  "leave it to one of them:",
					Command: fmt.Sprintf("ip address del %v dev %s", a.Prefix, n.name)})
			}
		}
	}
	return found
}

// checkMTU checks the interface's MTU, because packets must not be fragmented.
func checkMTU(e *env) []Finding {
	if e.netif == nil {
		return nil
	}
	n := e.netif
	mtu := ib.MTUFor(n.mtu)
	text := fmt.Sprintf("MTU %d of %s carries path MTU %d", n.mtu, n.name, mtu)
	if mtu == 0 {
		text = fmt.Sprintf("MTU %d of %s is below 336, what path MTU 256 needs", n.mtu, n.name)
	}
	raise := []Finding{{Text: text, Remedy: "raise it here, at the peers, and on the way:",
		Command: fmt.Sprintf("ip link set %s mtu 1500", n.name)}}
	switch {
	case mtu == 0:
		raise[0].Status = Fail
		return raise
	case mtu < ib.MTU1024: // 1104 and more suffice for the path MTU of Ethernet's 1500
		raise[0].Status = Warn
		raise[0].Text += ", less than the 1024 that peers on Ethernet choose"
		return raise
	case mtu < ib.MTU4096:
		text += "; 4200 or more would carry 4096"
	}
	return ok(text)
}

// checkRoute checks the route to the peer.
func checkRoute(e *env) []Finding {
	if e.netif == nil || !e.Peer.IsValid() {
		return nil
	}
	r, err := neigh.RouteTo(e.Peer)
	if err != nil {
		return []Finding{{Status: Fail, Text: err.Error(),
			Remedy: fmt.Sprintf("check the peer's address, or add a route: ip route add %v via ROUTER", e.Peer)}}
	}
	var found []Finding
	if r.NetIf != e.netif.name && !e.netif.loopback {
		found = append(found, Finding{Status: Fail,
			Text:    fmt.Sprintf("the route to %v leaves by %s, not by %s", e.Peer, r.NetIf, e.netif.name),
			Remedy:  fmt.Sprintf("use --netif %s, or change the route:", r.NetIf),
			Command: fmt.Sprintf("ip route replace %v dev %s", hostPrefix(e.Peer), e.netif.name)})
	}
	if !slices.ContainsFunc(e.usable, func(a netip.Addr) bool { return a.Is4() == e.Peer.Is4() }) {
		found = append(found, Finding{Status: Fail,
			Text: fmt.Sprintf("%s has no address of the peer's IP version (%v)", e.netif.name, e.Peer),
			Remedy: fmt.Sprintf("name the peer by its other address, or: ip address add ADDRESS/LENGTH dev %s",
				e.netif.name)})
	}
	if here, way := ib.MTUFor(e.netif.mtu), ib.MTUFor(r.MTU); way < here {
		found = append(found, Finding{Status: Warn,
			Text: fmt.Sprintf("the route to %v has MTU %d, so path MTU %d, where the interface's would be %d; "+
				"larger packets are lost", e.Peer, r.MTU, way, here),
			Remedy: fmt.Sprintf("use path MTU %d with this peer, or raise the MTU on the way", way)})
	}
	if len(found) == 0 {
		return ok(fmt.Sprintf("%v by %s, MTU %d", e.Peer, r.NetIf, r.MTU))
	}
	return found
}

func hostPrefix(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// checkReversePath checks for the strict reverse path filter (RFC 3704), which drops IPv4 packets whose source is
// routed by another interface.
func checkReversePath(e *env) []Finding {
	if e.netif == nil || e.netif.loopback {
		return nil
	}
	// The kernel uses the larger value (ip-sysctl: conf/{all,interface}/rp_filter).
	mode := max(e.read("/proc/sys/net/ipv4/conf/all/rp_filter"),
		e.read("/proc/sys/net/ipv4/conf/"+e.netif.name+"/rp_filter"))
	others := 0
	for i := range e.all {
		if o := &e.all[i]; o.Up && !o.Loopback && o.Name != e.netif.name {
			others++
		}
	}
	if mode == "1" && others > 0 {
		return []Finding{{Status: Warn,
			Text: "the reverse path filter of " + e.netif.name +
				" is strict, and there are other interfaces: packets of peers whose route uses another one are dropped",
			Remedy: "make it loose:", Command: "sysctl -w net/ipv4/conf/" + e.netif.name + "/rp_filter=2"}}
	}
	return ok("the reverse path filter drops nothing of peers")
}
