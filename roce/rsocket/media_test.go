package rsocket

import (
	"flag"
	"net/netip"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/mem"
	"github.com/goroce/goroce/roce/link/udp"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/roce/simtest"
	"github.com/goroce/goroce/tests/linktest"
)

// bad is simulations of networks on which everything happens to packets.
var bad = simtest.Config{Seeds: 20, Fault: wrap.FaultConfig{
	Drop: 0.02, Duplicate: 0.02, Reorder: 0.02, Delay: 0.03, Corrupt: 0.01, Truncate: 0.01, MaxDelay: time.Millisecond,
	Latency: 50 * time.Microsecond, Jitter: 10 * time.Microsecond, Rate: 10e9,
}}

// medium opens two devices that reach each other, for as long as the test runs.
type medium func(t testing.TB) (a, b roce.Device)

// on is the devices of the first two hosts of a simulation.
func on(n *simtest.Net) medium {
	return func(testing.TB) (a, b roce.Device) { return n.Hosts[0].Device(), n.Hosts[1].Device() }
}

// onNetworks runs f in simulations of a good network and of bad ones.
func onNetworks(t *testing.T, f func(t *testing.T, open medium)) {
	simulated := func(c simtest.Config) func(t *testing.T) {
		return func(t *testing.T) {
			simtest.Run(t, c, func(t *testing.T, n *simtest.Net) { f(t, on(n)) })
		}
	}
	t.Run("good network", simulated(simtest.Config{}))
	t.Run("bad network", simulated(bad))
}

func overMem(t testing.TB) (a, b roce.Device)  { return openMem(t, 0) }
func lossyMem(t testing.TB) (a, b roce.Device) { return openMem(t, 0.01) }
func overUDP(t testing.TB) (a, b roce.Device)  { return openUDP(t, 0) }
func lossyUDP(t testing.TB) (a, b roce.Device) { return openUDP(t, 0.02) }

func openMem(t testing.TB, drop float64) (a, b roce.Device) {
	network := mem.NewNetwork()
	open := func(addr string) link.Link {
		return network.Open([]ib.GID{ib.GIDFromAddr(netip.MustParseAddr(addr))}, mem.Options{})
	}
	return openDevices(t, open("192.0.2.1"), open("192.0.2.2"), drop)
}

func openUDP(t testing.TB, drop float64) (a, b roce.Device) {
	open := func() link.Link {
		l, err := udp.Open([]netip.Addr{linktest.Loopback()}, udp.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	return openDevices(t, open(), open(), drop)
}

var testSeed = flag.Uint64("rsocket.seed", 1, "the seed of lossy networks that are not simulated")

// openDevices opens devices, with goroutines of their own, on links that lose some of what is sent.
func openDevices(t testing.TB, linkA, linkB link.Link, drop float64) (a, b roce.Device) {
	t.Helper()
	if drop > 0 {
		t.Logf("-rsocket.seed=%d", *testSeed)
	}
	device := func(l link.Link, seed uint64) roce.Device {
		l = wrap.Seal(l)
		if drop > 0 {
			l = wrap.Fault(l, wrap.FaultConfig{Seed: seed, Drop: drop})
		}
		dev, err := roce.Open(l, roce.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { dev.Close() })
		return dev
	}
	return device(linkA, *testSeed), device(linkB, *testSeed+1)
}
