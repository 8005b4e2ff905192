package conformance

import (
	"net/netip"
	"path"
	"testing"
	"time"

	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/link/udp"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/tests/linktest"
)

// TestCMLoss plays the life of connections on a network that loses, doubles and reorders: messages are repeated, and
// each event comes once all the same. What an active end refuses is left out: its REJ is not repeated, and the passive
// end learns by another REJ that there is no connection.
func TestCMLoss(t *testing.T) {
	t.Parallel()
	const seed = 7
	t.Logf("fault seed %d", seed)
	play := func(where, cases string) {
		t.Run(where+", "+path.Dir(cases), func(t *testing.T) {
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
				p := Party{Device: dev}
				if where == "daemon" {
					p = tenant(t, serve(t, p), true)
				}
				p.Kind = "goroce, lossy"
				return p
			}
			here, there := at(seed), at(seed+1)
			const lossy = "goroce, lossy/*"
			RunPair(t, here, there, Options{Cases: cases, Limit: time.Minute, Deviations: []Deviation{
				{lossy, "", "cm/connect/private-data", Skip(), "it refuses"},
				{lossy, "", "cm/connect/uc", Skip(), "its message is lost for good"},
			}})
		})
	}
	for _, cases := range []string{"cm/connect/**", "cm/disconnect/**", "cm/*/nobody-listens", "cm/ud/**",
		"cm/reject/vendor-option"} {
		play("in process", cases)
		play("daemon", cases)
	}
}
