package rdmacm

import "net/netip"

// The hosts that send requests share a listener's backlog. A host that sends requests and never completes a handshake
// keeps another host out only until that one sends a request, too.

// hasSource is a request or a connection of a host.
type hasSource interface{ source() netip.Addr }

func (r *Request) source() netip.Addr { return r.remote.Addr() }
func (c *Conn) source() netip.Addr    { return c.remote.Addr() }

// countBySource counts items by host.
func countBySource[T hasSource](items []T) map[netip.Addr]int {
	n := map[netip.Addr]int{}
	for _, item := range items {
		n[item.source()]++
	}
	return n
}

// victim returns the item to drop in favour of a host that has n items: the oldest item of the host that has the most.
// ok is false if that host would then have fewer than the other.
func victim[T hasSource](items []T, n int) (oldest T, ok bool) {
	count := countBySource(items)
	most := 0
	for _, item := range items {
		if c := count[item.source()]; c > most {
			oldest, most = item, c
		}
	}
	return oldest, most > n+1
}
