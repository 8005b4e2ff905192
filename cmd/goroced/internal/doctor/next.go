package doctor

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/goroce/goroce/internal/socket"
)

// Step is something to try when nothing keeps RDMA from working.
type Step struct {
	Command string `json:"command"`
	Does    string `json:"does"` // where the command runs, or what it gives, in a few words
}

// next returns what to try: first the way to a peer, then programs in C.
func (e *env) next() []Step {
	daemon := slices.ContainsFunc(e.sockets(socket.Client), func(path string) bool {
		_, _, err := e.ask(path)
		return err == nil
	})
	pingpong, serve := "goroced pingpong"+e.flags(), []Step{{"goroced serve", "RDMA for every program of yours, then:"}}
	if daemon {
		pingpong, serve = "goroced pingpong --daemon", nil
	}
	var steps []Step
	switch here := e.address(); {
	case e.Peer.IsLoopback():
		steps = e.nextHere(e.Peer)
	case e.Peer.IsValid():
		steps = []Step{
			{"goroced pingpong", "on " + e.Peer.String() + ", then here:"},
			{pingpong + " " + e.Peer.String(), "messages back and forth"},
		}
	case here.IsLoopback():
		steps = e.nextHere(here)
	case here.IsValid():
		steps = []Step{
			{pingpong, "here, then on another host:"},
			{"goroced pingpong " + here.String(), "messages back and forth"},
		}
	}
	return append(append(steps, serve...), Step{"goroced run -- ib_write_bw", "a program in C, unmodified"})
}

// flags returns those of the tools that choose what was examined.
func (e *env) flags() string {
	switch {
	case e.NetIf != "":
		return " --netif " + e.NetIf
	case len(e.Addrs) > 0:
		list := make([]string, len(e.Addrs))
		for i, a := range e.Addrs {
			list[i] = a.String()
		}
		return " --addr " + strings.Join(list, ",")
	}
	return ""
}

// nextHere returns how to try a loopback address, which is not reached from another host. Each end needs an address of
// its own, unless both use the daemon; nothing is returned if there is neither.
func (e *env) nextHere(a netip.Addr) []Step {
	server, client := "goroced pingpong --daemon", "goroced pingpong --daemon "
	if !e.daemonShares(a) {
		other := e.otherLoopback(a)
		if !other.IsValid() {
			return nil
		}
		server, client = "goroced pingpong --addr "+a.String(), "goroced pingpong --addr "+other.String()+" "
	}
	return []Step{
		{server, "only this host reaches it; then here:"},
		{client + a.String(), "messages back and forth"},
	}
}

// otherLoopback returns another loopback address whose UDP port 4791 is free. IPv6 has none.
func (e *env) otherLoopback(than netip.Addr) netip.Addr {
	if !than.Is4() {
		return netip.Addr{}
	}
	for a := netip.AddrFrom4([4]byte{127, 0, 0, 2}); a.IsLoopback(); a = a.Next() {
		if _, taken := e.portAt(a); !taken && a != than {
			return a
		}
	}
	return netip.Addr{}
}

// address returns the address that another host would take for this one: not a link-local one or one of loopback if
// there is any other.
func (e *env) address() netip.Addr {
	for _, a := range e.usable {
		if a.IsGlobalUnicast() {
			return a
		}
	}
	if len(e.usable) == 0 {
		return netip.Addr{}
	}
	return e.usable[0].WithZone("") // the other host's interface has a name of its own
}
