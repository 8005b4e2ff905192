package rsocket

import (
	"testing"
	"time"

	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/roce/simtest"
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
