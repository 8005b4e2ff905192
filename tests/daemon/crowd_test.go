package daemon

import (
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/goroce/goroce/roce/daemon/abi"
	"github.com/goroce/goroce/tests/require"
)

// every sends each request of the protocol in turn, with arguments at random.
func (a *attacker) every(rounds int) {
	var q *queues
	for range rounds {
		for _, op := range abi.Ops() {
			if q == nil {
				q = a.connect()
			}
			if q != nil && (!a.try(q, op) || a.rng.IntN(500) == 0) {
				q.close()
				q = nil
			}
		}
	}
}

// connect returns a connection with objects, nil if others of the user hold all that it may have.
func (a *attacker) connect() (q *queues) {
	r, err := dialRaw(a.Socket)
	if err != nil {
		return nil
	}
	q = &queues{raw: r}
	defer func() {
		if recover() != nil {
			q.close()
			q = nil
		}
	}()
	q.build()
	return q
}

// crowdKiB is what a user may make the daemon hold with the limits narrow: its heap, which Go may let grow to twice
// that, and pinned memory.
const crowdKiB = (2*32 + 64) << 10

// TestCrowd has a hostile client try every request of the protocol again and again, alone and with seven like it, as
// another user. The daemon's memory stays within that user's limits; a bystander goes on at a third of its rate
// without them at least, measured by turns; and nothing is left of them.
func TestCrowd(t *testing.T) {
	seed := newSeed(t)
	for _, x := range []struct {
		name string
		n    int
	}{{"alone", 1}, {"eight", 8}} {
		t.Run(x.name, func(t *testing.T) {
			a := startDaemon(t, narrow...)
			root := os.Getuid() == 0
			if root {
				a.admitAll(t)
			}
			by := startSteady(t, a, a)
			before := a.settled()
			crowd := make([]*child, x.n)
			for i := range crowd {
				crowd[i] = startChild(t, "hostile", job{Socket: a.socket, Seed: seed + uint64(i), Attack: "every",
					Nobody: root})
				var begins string
				crowd[i].hear(&begins)
				crowd[i].standBack()
			}
			for _, c := range crowd {
				require.Until(t, "an attacker has objects", func() bool { return a.objectsOf(c.pid) > 0 })
			}
			var calm, crowded float64 // messages a second
			turns := require.Rounds(4, 60)
			for range turns {
				crowded += by.rate(time.Second)
				if now := a.usage(); now.rssKiB > before.rssKiB+crowdKiB+moreRSS && !raceDetector() {
					t.Fatalf("got %d KiB resident, want at most %d more than %d", now.rssKiB, crowdKiB+moreRSS,
						before.rssKiB)
				}
				signalAll(t, crowd, syscall.SIGSTOP)
				calm += by.rate(time.Second / 2)
				signalAll(t, crowd, syscall.SIGCONT)
			}
			t.Logf("%.0f messages a second, %.0f beside the crowd", calm/float64(turns), crowded/float64(turns))
			if crowded < calm/3 {
				t.Errorf("got %.0f messages a second beside the crowd, want a third of %.0f at least",
					crowded/float64(turns), calm/float64(turns))
			}
			for _, c := range crowd {
				c.kill()
				a.forgets(c.pid)
			}
			by.goesOn(5)
			a.returnsTo(before)
		})
	}
}

// rate returns how many messages arrive in a second, measured for a while.
func (s *steady) rate(d time.Duration) float64 {
	s.Helper()
	from, began := s.rounds.Load(), time.Now()
	<-time.After(d)
	return float64(s.rounds.Load()-from) / time.Since(began).Seconds()
}

func signalAll(t *testing.T, list []*child, s syscall.Signal) {
	t.Helper()
	for _, c := range list {
		if err := c.cmd.Process.Signal(s); err != nil {
			t.Fatalf("signal %v: %v", s, err)
		}
	}
}
