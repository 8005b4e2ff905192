package daemon

import (
	"fmt"
	"testing"
)

// small are limits that an attacker reaches.
var small = []string{
	"limits.user.connections=40", "limits.connection.qps=20", "limits.connection.mrs=20", "limits.connection.mws=20",
	"limits.connection.cq_entries=4096", "limits.connection.pds=10", "limits.connection.srqs=10", "limits.connection.ahs=10",
	"limits.connection.xrcds=10", "limits.connection.channels=10", "limits.connection.pinned=16MiB",
}

// TestHostile lets children attack a daemon in every way, with two of its clients
// beside them. The daemon lives, and keeps nothing of the attacker's.
func TestHostile(t *testing.T) {
	seed := newSeed(t)
	a, b := startDaemon(t, small...), startDaemon(t)
	startSteady(t, a, b)
	others := startSteady(t, a, a)
	for i, c := range []struct {
		attack string
		rounds int
		want   []string // what must have happened
	}{
		{"requests", 5000, []string{"done", "refused"}},
		{"descriptors", 300, []string{"refused", "taken"}},
		{"rings", 20000, []string{"connections", "QPs failed"}},
		{"torn", 3000, []string{"QPs failed"}},
		{"storm", 1000, []string{"QPs failed"}},
		{"limits", 2, []string{"limits"}},
		{"connections", 10, []string{"refused", "taken"}},
		{"silence", 3, []string{"waits"}},
	} {
		t.Run(c.attack, func(t *testing.T) {
			a.lend(t)
			before := a.settled()
			if full() {
				c.rounds *= 4
			}
			child := startChild(t, "hostile", job{Socket: a.socket, Seed: seed + uint64(i), Attack: c.attack, Rounds: c.rounds})
			var r report
			child.hear(&r)
			others.goesOn(5)
			child.kill()
			a.forgets(child.pid)
			others.goesOn(5)
			a.returnsTo(before)
			for _, p := range r.Problems {
				t.Error(p)
			}
			for _, w := range c.want {
				if r.Counts[w] == 0 {
					t.Errorf("the attack tries too little: %v", r.Counts)
				}
			}
			t.Log(fmt.Sprint(r.Counts))
		})
	}
}
