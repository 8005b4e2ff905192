package conformance

import (
	"net/netip"
	"path"
	"testing"

	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/link/udp"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/tests/linktest"
)

// TestDaemonCMLoss plays the life of connections of a daemon's clients on a network that loses, doubles and reorders:
// messages are repeated, and each event comes once all the same.
func TestDaemonCMLoss(t *testing.T) {
	t.Parallel()
	repeats(t, true)
	const seed = 7
	t.Logf("fault seed %d", seed)
	for _, cases := range []string{"cm/connect/**", "cm/disconnect/**", "cm/*/nobody-listens", "cm/ud/**",
		"cm/reject/vendor-option"} {
		t.Run(path.Dir(cases), func(t *testing.T) {
			t.Parallel() // each waits for timers
			at := func(seed uint64) Party {
				l, err := udp.Open([]netip.Addr{linktest.Loopback()}, udp.Options{})
				if err != nil {
					t.Fatal(err)
				}
				bad := wrap.FaultConfig{Seed: seed, Drop: 0.2, Duplicate: 0.1, Reorder: 0.1}
				dev, err := roce.Open(wrap.Fault(wrap.Seal(wrap.Loopback(l)), bad), roce.Options{})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { dev.Close() })
				p := tenant(t, serve(t, Party{Device: dev}), true)
				p.Kind = lossy
				return p
			}
			RunPair(t, at(seed), at(seed+1), Options{Cases: cases, Deviations: losses})
		})
	}
}
