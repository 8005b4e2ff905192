package doctor

import (
	"net/netip"
	"slices"

	"github.com/goroce/goroce/cmd/goroced/internal/config/socket"
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
	pingpong, serve := "goroced pingpong", []Step{{"goroced serve", "RDMA for every program of yours, then:"}}
	if daemon {
		pingpong, serve = "goroced pingpong --daemon", nil
	}
	var steps []Step
	if e.Peer.IsValid() {
		steps = []Step{
			{"goroced pingpong", "on " + e.Peer.String() + ", then here:"},
			{pingpong + " " + e.Peer.String(), "messages back and forth"},
		}
	} else if here := e.address(); here.IsValid() {
		steps = []Step{
			{pingpong, "here, then on another host:"},
			{"goroced pingpong " + here.String(), "messages back and forth"},
		}
	}
	return append(append(steps, serve...), Step{"goroced run -- ib_write_bw", "a program in C, unmodified"})
}

// address returns the address that another host would take for this one: not a link-local one if there is any other.
func (e *env) address() netip.Addr {
	for _, a := range e.usable {
		if !a.IsLinkLocalUnicast() {
			return a
		}
	}
	if len(e.usable) == 0 {
		return netip.Addr{}
	}
	return e.usable[0].WithZone("") // the other host's interface has a name of its own
}
