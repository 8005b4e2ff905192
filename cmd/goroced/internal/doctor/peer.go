package doctor

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
)

// Resolve returns the address of a peer that is given by name or address, for Options.Peer; o has the other options. Of
// several addresses it is the first that can be reached, as the tools choose it.
func Resolve(ctx context.Context, host string, o Options) (netip.Addr, error) {
	if a, err := netip.ParseAddr(host); err == nil {
		return a, nil
	}
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("%w; give the peer's IP address, or a name that /etc/hosts or DNS has", err)
	}
	return reachable(addrs, o), nil
}

// reachable returns the first address to which the check of the route finds no problem. If there is none, it is the
// first of all, so that the examination says what is wrong.
func reachable(addrs []netip.Addr, o Options) netip.Addr {
	for _, a := range addrs {
		o.Peer = a
		e, err := newEnv(o)
		if err == nil && !slices.ContainsFunc(checkRoute(e), func(f Finding) bool { return f.Status == Fail }) {
			return a
		}
	}
	return addrs[0]
}
