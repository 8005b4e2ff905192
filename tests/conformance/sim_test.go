package conformance

import (
	"net"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link/mem"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/roce/simtest"
)

// parties returns the devices of a pair.
type parties func(*simtest.Net) (here, there Party)

// simulate plays all items that o asks for, each in a simulation of its own, so that one that fails can be repeated
// from its seed.
func simulate(t *testing.T, c simtest.Config, pair parties, o Options) {
	t.Helper()
	for _, it := range plan(o) {
		t.Run(it.Name(), func(t *testing.T) {
			var r Result
			simtest.Run(t, c, func(t *testing.T, n *simtest.Net) {
				here, there := pair(n)
				if r = do(t, it, here, there, o); r.Err != nil {
					t.Error(r.Err)
				}
			})
			if r.Err == nil {
				r.report(t)
			}
		})
	}
}

// do runs one item with a leader and a server of its own.
func do(t *testing.T, it Item, here, there Party, o Options) Result {
	t.Helper()
	leader, server := net.Pipe()
	served := make(chan error, 1)
	go func() { served <- Serve(server, there) }()
	l, err := Lead(leader, here, o)
	if err != nil {
		t.Fatal(err)
	}
	r := l.Do(t.Context(), it)
	l.Close()
	if err := <-served; err != nil && !r.Broken {
		t.Error(err)
	}
	return r
}

func goroce(h *simtest.Host) Party { return Party{Device: h.Device(), Kind: "goroce"} }

func twoHosts(n *simtest.Net) (here, there Party) { return goroce(n.Hosts[0]), goroce(n.Hosts[1]) }

// overIPv6 is twoHosts with the row of the GID table that has the IPv6 address.
func overIPv6(n *simtest.Net) (here, there Party) {
	here, there = twoHosts(n)
	here.GIDIndex, there.GIDIndex = 1, 1
	return here, there
}

func oneHost(n *simtest.Net) (here, there Party) {
	p := goroce(n.Hosts[0])
	return p, p
}

// TestSimulated pairs devices on a good network: of IPv4 with the MTU of Ethernet, of IPv6 with that of path MTU 4096,
// and a device with itself, whose queue pairs talk to each other through its own address.
func TestSimulated(t *testing.T) {
	for _, c := range []struct {
		name string
		pair parties
		mtu  int
	}{{"IPv4", twoHosts, 1500}, {"IPv6", overIPv6, 0}, {"self", oneHost, 0}} {
		t.Run(c.name, func(t *testing.T) {
			simulate(t, simtest.Config{Link: mem.Options{MTU: c.mtu}}, c.pair, Options{})
		})
	}
}

// lossy is the kind of devices on a network that loses, doubles and reorders frames.
const lossy = "goroce, lossy"

// losses are what cannot hold there.
var losses = []Deviation{
	{lossy + "/*", "", "**", Status(ib.WCRemAccessErr, ib.WCRetryExcErr).Maybe(), lostNAK},
	{lossy + "/*", "", "**", Status(ib.WCRemInvReqErr, ib.WCRetryExcErr).Maybe(), lostNAK},
	{lossy + "/*", "", "**", Status(ib.WCRemOpErr, ib.WCRetryExcErr).Maybe(), lostNAK},
	{lossy + "/*", "", "uc/**", Skip(), lostMessage},
	{lossy + "/*", "", "srq/UC/**", Skip(), lostMessage},
	{lossy + "/*", "", "cm/connect/uc", Skip(), lostMessage},
	{lossy + "/*", "", "ud/**", Skip(), lostMessage},
	{lossy + "/*", "", "srq/UD/**", Skip(), lostMessage},
	{lossy + "/*", "", "multicast/**", Skip(), lostMessage},
	{lossy + "/*", "", "cm/multicast/**", Skip(), lostMessage},
	{lossy + "/*", "", "cm/connect/private-data", Skip(), lostREJ},
	{lossy + "/*", "", "cm/reject/the-answer", Skip(), lostREJ},
	{lossy + "/*", "", "cm/timeout/no-answer", Skip(), lostREJ},
}

const (
	lostNAK     = "a responder in ERR does not repeat the NAK that took it there (IBTA 9.9.3)"
	lostMessage = "what is lost on an unreliable transport is not repeated"
	lostREJ     = "a REJ of the active end is not repeated; the passive end learns by another one, with another reason"
)

// TestBadNetwork loses, doubles and reorders frames: what reliable connections and the connection manager promise holds
// all the same.
func TestBadNetwork(t *testing.T) {
	bad := wrap.FaultConfig{Drop: 0.05, Duplicate: 0.05, Reorder: 0.05}
	pair := func(n *simtest.Net) (here, there Party) {
		here, there = twoHosts(n)
		here.Kind, there.Kind = lossy, lossy
		return here, there
	}
	simulate(t, simtest.Config{Fault: bad, Seeds: 3}, pair, Options{Deviations: losses})
}
