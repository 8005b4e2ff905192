package conformance

import (
	"net/netip"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/link/mem"
	"github.com/goroce/goroce/roce/link/wrap"
)

// TestCMLoss plays the life of connections on a network that loses, doubles and reorders:
// messages are repeated, and each event comes once all the same. Refusals are left out: a REJ
// is not repeated, so the peer asks again and the application answers again.
func TestCMLoss(t *testing.T) {
	t.Parallel()
	const seed = 7
	t.Logf("fault seed %d", seed)
	network := mem.NewNetwork()
	at := func(addr string, seed uint64) Party {
		l := wrap.Seal(wrap.Loopback(network.Open([]ib.GID{ib.GIDFromAddr(netip.MustParseAddr(addr))}, mem.Options{})))
		dev, err := roce.Open(wrap.Fault(l, wrap.FaultConfig{Seed: seed, Drop: 0.2, Duplicate: 0.1, Reorder: 0.1}),
			roce.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { dev.Close() })
		return Party{Device: dev, Kind: "goroce, lossy"}
	}
	here, there := at("192.0.2.1", seed), at("192.0.2.2", seed+1)
	const lossy = "goroce, lossy/*"
	for _, cases := range []string{"cm/connect/**", "cm/disconnect/**"} {
		RunPair(t, here, there, Options{Cases: cases, Limit: time.Minute, Deviations: []Deviation{
			{lossy, "", "cm/connect/private-data", Skip(), "it refuses"},
		}})
	}
}
