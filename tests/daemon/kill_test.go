package daemon

import (
	"flag"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/goroce/goroce/tests/require"
)

var (
	killClients = flag.Int("kill.clients", 3, "clients that TestClientKilled kills, at least 100 with GOROCE_FULL=1")
	killDaemons = flag.Int("kill.daemons", 2, "daemons that TestDaemonKilled kills")
)

// TestClientKilled kills clients that send at full rate, at random moments. Other clients
// must not be affected; the daemon must close all objects of the killed ones at once.
func TestClientKilled(t *testing.T) {
	rounds, warmUp := *killClients, 4
	if require.Full() {
		rounds = max(rounds, 100)
	}
	seed := newSeed(t)
	rng := rand.New(rand.NewPCG(seed, 0))
	a, b := startDaemon(t), startDaemon(t)
	others := startSteady(t, a, b)
	var targets [2]*tenant
	for i, d := range []*daemon{a, b} {
		n, err := newTenant(d.socket, shape{size: floodMemory})
		if err != nil {
			t.Fatal(err)
		}
		defer n.close()
		targets[i] = n
	}
	var before [2]usage
	var slowest time.Duration
	for round := range warmUp + rounds {
		if round == warmUp {
			before = [2]usage{a.settled(), b.settled()}
		}
		j := job{Socket: a.socket, Seed: rng.Uint64(), QPs: 1 + rng.IntN(4), Window: 8, SRQ: round/2%2 == 1,
			Process: round%4 > 1 && reachable()}
		c := startChild(t, "flood", j)
		g := aim(t, targets[round%2], c, j)
		if round%5 > 0 { // otherwise kill it as soon as it is connected
			g.hears(20)
			<-time.After(time.Duration(rng.IntN(20_000)) * time.Microsecond)
		}
		c.kill()
		slowest = max(slowest, a.forgets(c.pid))
		others.goesOn(1)
		g.ends()
		if t.Failed() {
			t.Fatalf("round %d: %+v", round, j)
		}
	}
	for i, d := range []*daemon{a, b} {
		d.returnsTo(before[i])
	}
	t.Logf("%d clients were killed; their objects were gone after %v at most", warmUp+rounds, slowest)
}
