package rdmacm

import "net/netip"

// A listener's room is shared by the hosts that ask: one that asks and then falls silent, as
// often as it may, keeps others out for no longer than until they ask, too.

// sourced has come from a host.
type sourced interface{ source() netip.Addr }

func (r *Request) source() netip.Addr { return r.remote.Addr() }
func (c *Conn) source() netip.Addr    { return c.remote.Addr() }

// shares counts items by source.
func shares[T sourced](items []T) map[netip.Addr]int {
	n := map[netip.Addr]int{}
	for _, item := range items {
		n[item.source()]++
	}
	return n
}

// victim returns the oldest item of the source that has most, if a host that has n of them
// may take its place: that is, if it still has no more than the other then.
func victim[T sourced](items []T, n int) (oldest T, ok bool) {
	count := shares(items)
	most := 0
	for _, item := range items {
		if c := count[item.source()]; c > most {
			oldest, most = item, c
		}
	}
	return oldest, most > n+1
}
