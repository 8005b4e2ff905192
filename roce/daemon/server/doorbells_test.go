package server

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/qp/ring"
	"github.com/goroce/goroce/roce"
)

// ringer acts as a client: it has the application's end of the doorbells.
type ringer struct {
	*clientDoorbells
	app *ring.Doorbells
	qp  *roce.QP // of doorbell 0
}

func newRinger(t testing.TB, doorbells *doorbells) *ringer {
	t.Helper()
	buf := ring.Alloc(ring.DoorbellsSize(perShard))
	b, err := newClientDoorbells(buf)
	must(t, err)
	t.Cleanup(func() { _ = unix.Close(b.wake) })
	app, err := ring.OpenDoorbells(buf)
	must(t, err)
	r := &ringer{b, app, new(roce.QP)}
	b.qps[0].Store(r.qp)
	must(t, doorbells.add(b))
	t.Cleanup(func() { doorbells.remove(b) })
	return r
}

// ring rings the doorbell, and wakes the shard if the doorbells say that it sleeps. It reports
// whether they did.
func (r *ringer) ring(t testing.TB) (woke bool) {
	t.Helper()
	if woke = r.app.Ring(0); woke {
		_, err := unix.Write(r.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
		must(t, err)
	}
	return woke
}

func openDoorbells(t testing.TB) *doorbells {
	t.Helper()
	doorbells, err := newDoorbells()
	must(t, err)
	t.Cleanup(func() { _ = unix.Close(doorbells.epoll) })
	return doorbells
}

// TestIdleClients checks that a client's doorbells are polled while it rings, and for idleAfter
// afterwards. Then it has to write its eventfd, and its ring is found within askAfter, whenever
// between two polls it rings.
func TestIdleClients(t *testing.T) {
	doorbells := openDoorbells(t)
	busy, other := newRinger(t, doorbells), newRinger(t, doorbells)
	now := ib.Instant(1e9)
	rung := map[*roce.QP]int{}
	take := func() {
		clear(rung)
		doorbells.Take(now, func(q *roce.QP) { rung[q]++ })
	}
	take() // both are new, so their eventfds are on the kernel's list
	if len(doorbells.active) != 2 {
		t.Fatalf("%d of two new clients are active", len(doorbells.active))
	}
	for range 5 {
		now += idleAfter / 4
		if busy.ring(t) {
			t.Fatal("an active client was asked to wake the shard")
		}
		take()
		if rung[busy.qp] != 1 || len(rung) != 1 {
			t.Fatalf("the busy client's doorbell was taken %d times", rung[busy.qp])
		}
	}
	if len(doorbells.active) != 1 || other.active {
		t.Fatalf("%d clients are active, and one of them should be idle", len(doorbells.active))
	}
	for round := range 3 {
		if !other.ring(t) {
			t.Fatal("an idle client was not asked to wake the shard")
		}
		now += askAfter
		take()
		if rung[other.qp] != 1 {
			t.Fatalf("round %d: the doorbell of a client that was idle is not found", round)
		}
		now += idleAfter
		take()
		take()
		if other.active {
			t.Fatal("it does not become idle again")
		}
	}
	busy.ring(t)
	now += askAfter
	take()
	if doorbells.Sleep() {
		t.Error("a doorbell has rung, says Sleep")
	}
	doorbells.Awake(now)
	if busy.ring(t) || !doorbells.Sleep() {
		t.Error("Sleep does not see what has rung")
	}
	doorbells.Awake(now)
	take()
	if rung[busy.qp] != 1 {
		t.Error("the doorbell that rang while the shard slept is not found")
	}
}

// BenchmarkTake measures Take with one busy client and many idle ones.
func BenchmarkTake(b *testing.B) {
	for _, idle := range []int{0, 1000} {
		b.Run(fmt.Sprint(idle, " idle clients"), func(b *testing.B) {
			doorbells := openDoorbells(b)
			now := ib.Instant(1e9)
			for range idle {
				newRinger(b, doorbells)
			}
			busy := newRinger(b, doorbells)
			for range idle {
				now += idleAfter
				doorbells.Take(now, func(*roce.QP) {})
			}
			for b.Loop() {
				now += 1000 // a turn takes a microsecond
				busy.ring(b)
				doorbells.Take(now, func(*roce.QP) {})
			}
		})
	}
}
