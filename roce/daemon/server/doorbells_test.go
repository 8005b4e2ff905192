package server

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/qp/ring"
	"github.com/goroce/goroce/roce/internal/engine"
)

// ringer acts as a client: it has the application's end of the doorbells.
type ringer struct {
	*clientDoorbells
	app *ring.Doorbells
	qp  *engine.QP // of doorbell 0
}

func newRinger(t testing.TB, doorbells *doorbells) *ringer {
	t.Helper()
	return newRingerIn(t, doorbells, ring.Alloc(ring.DoorbellsSize(perShard)))
}

func newRingerIn(t testing.TB, doorbells *doorbells, buf []byte) *ringer {
	t.Helper()
	b, err := newClientDoorbells(buf)
	must(t, err)
	t.Cleanup(func() { _ = unix.Close(b.wake) })
	app, err := ring.OpenDoorbells(buf)
	must(t, err)
	r := &ringer{b, app, new(engine.QP)}
	b.set(0, r.qp)
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
	rung := map[*engine.QP]int{}
	take := func() {
		clear(rung)
		doorbells.Take(now, func(q *engine.QP) { rung[q]++ })
	}
	take() // both are new, so their eventfds are on the kernel's list
	if len(doorbells.active) != 2 {
		t.Fatalf("%d new clients are active, want 2", len(doorbells.active))
	}
	for range 5 {
		now += idleAfter / 4
		if busy.ring(t) {
			t.Fatal("an active client was asked to wake the shard")
		}
		take()
		if rung[busy.qp] != 1 || len(rung) != 1 {
			t.Fatalf("the busy client's doorbell was taken %d times, want only that, once", rung[busy.qp])
		}
	}
	if len(doorbells.active) != 1 || other.active {
		t.Fatalf("%d clients are active, want one, and the other idle", len(doorbells.active))
	}
	for round := range 3 {
		if !other.ring(t) {
			t.Fatal("an idle client was not asked to wake the shard")
		}
		now += askAfter
		take()
		if rung[other.qp] != 1 {
			t.Fatalf("round %d: the doorbell of a client that was idle is found %d times, want once", round,
				rung[other.qp])
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
				doorbells.Take(now, func(*engine.QP) {})
			}
			for b.Loop() {
				now += 1000 // a turn takes a microsecond
				busy.ring(b)
				doorbells.Take(now, func(*engine.QP) {})
			}
		})
	}
}

// FuzzDoorbells has one client write arbitrary words to its doorbells, and its eventfd, at any time,
// also while the shard looks at them. The shard must call back for QPs of that client only, no more
// often than it has doorbells, and must find what another client rings. Five bytes of the input are a step.
func FuzzDoorbells(f *testing.F) {
	step := func(op byte, at uint16, value uint16) []byte {
		return []byte{op, byte(at), byte(at >> 8), byte(value), byte(value >> 8)}
	}
	f.Add(slices.Concat(step(0, 32, 1), step(0, 48, 1), step(2, 0, 0), step(1, 0, 0), step(0, 64, 0xFFFF),
		step(2, 0, 0)))
	f.Add(slices.Concat(step(3, 0, 0), step(0, 16, 0xFFFF), step(4, 0, 0), step(5, 40, 0xFFFF), step(2, 0, 0)))
	f.Add(slices.Concat(step(6, 10000, 0), step(2, 0, 0), step(6, 10000, 0), step(3, 0, 0), step(0, 0, 7),
		step(4, 0, 0)))
	f.Fuzz(func(t *testing.T, script []byte) {
		doorbells := openDoorbells(t)
		buf := ring.Alloc(ring.DoorbellsSize(perShard))
		bad, good := newRingerIn(t, doorbells, buf), newRinger(t, doorbells)
		words := unsafe.Slice((*uint32)(unsafe.Pointer(&buf[0])), len(buf)/4)
		now := ib.Instant(1e9)
		var during []byte // what the client writes while its doorbells are taken
		write := func(s []byte) {
			at, value := binary.LittleEndian.Uint16(s[1:]), uint32(binary.LittleEndian.Uint16(s[3:]))
			atomic.StoreUint32(&words[int(at)%len(words)], value|value<<16)
		}
		rung := 0 // of the good client
		take := func() {
			calls := 0
			doorbells.Take(now, func(q *engine.QP) {
				switch q {
				case bad.qp:
					calls++
					if len(during) > 0 {
						write(during)
					}
				case good.qp:
					rung++
				default:
					t.Fatal("a QP of nobody rang")
				}
			})
			if calls > 1 {
				t.Fatalf("the only QP of a client rang %d times, want once", calls)
			}
		}
		for ; len(script) >= 5; script = script[5:] {
			switch script[0] % 7 {
			case 0:
				write(script)
			case 1:
				_, _ = unix.Write(bad.wake, []byte{script[1], 0, 0, 0, 0, 0, 0, 0})
			case 2:
				take()
			case 3:
				doorbells.Sleep()
			case 4:
				doorbells.Awake(now)
			case 5:
				during = script[:5]
			case 6:
				now += ib.Instant(binary.LittleEndian.Uint16(script[1:])) * 1000
			}
		}
		rung = 0
		good.ring(t)
		now += askAfter
		if take(); rung != 1 {
			t.Fatalf("%d times say the doorbells, want 1 as the good client rang", rung)
		}
	})
}

// BenchmarkTakeAll measures Take with a client that has one QP and sets all of its doorbells.
func BenchmarkTakeAll(b *testing.B) {
	doorbells := openDoorbells(b)
	buf := ring.Alloc(ring.DoorbellsSize(perShard))
	newRingerIn(b, doorbells, buf)
	client, err := ring.OpenDoorbells(buf)
	must(b, err)
	now := ib.Instant(1e9)
	for b.Loop() {
		b.StopTimer()
		for i := range uint32(perShard) {
			client.Ring(i)
		}
		now += 1000
		b.StartTimer()
		doorbells.Take(now, func(*engine.QP) {})
	}
}
