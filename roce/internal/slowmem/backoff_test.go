package slowmem

import (
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/mr/mrtest"
)

// TestBackoff: the time for which shards take no turns doubles while memory stays slow, and
// starts again at the least after memory was fast for a long time.
func TestBackoff(t *testing.T) {
	const ms = ib.Instant(time.Millisecond)
	var b backoff
	now := ms
	for i, x := range []struct{ after, want ib.Instant }{ // memory is slow so long after the latest backoff
		{0, 10 * ms},
		{0, 20 * ms},
		{16 * 20 * ms, 40 * ms},
		{16*40*ms + 1, 10 * ms},
	} {
		if now += x.after; !b.over(now) {
			t.Fatalf("turn %d: the backoff ends too late", i)
		}
		b.extend(now)
		if b.over(now+x.want-1) || !b.over(now+x.want) {
			t.Errorf("turn %d: a backoff of %v, want %v", i, time.Duration(b.last), time.Duration(x.want))
		}
		now += x.want
	}
	for range 20 {
		b.extend(now)
	}
	if b.over(now+mostBackoff-1) || !b.over(now+mostBackoff) {
		t.Errorf("a backoff of %v, want %v at most", time.Duration(b.last), time.Duration(mostBackoff))
	}
}

// TestSlow: a turn that takes long is the memory's fault if its thread stalls.
func TestSlow(t *testing.T) {
	const bytes = 1000
	for _, x := range []struct {
		takes  time.Duration
		stalls uint64
		slow   bool
	}{
		{quick(bytes), 1, false},
		{quick(bytes) + 1, 0, false},
		{quick(bytes) + 1, 1, true},
	} {
		var now ib.Instant
		var stalls uint64
		w := New(Options{Stalls: func() uint64 { return stalls }}, true, func() ib.Instant { return now },
			func([]Answer[*user]) {})
		r := lateRegion(t, during{mrtest.New(bytes), func() {
			now += ib.Instant(x.takes)
			stalls += x.stalls
		}})
		w.Place(&user{}, []mr.Placement{{R: r, Data: make([]byte, bytes)}})
		if !w.Turn(nil) || w.Quick(now) == x.slow {
			t.Errorf("a turn of %v with %d stalls: slow is %v, want %v", x.takes, x.stalls, !x.slow, x.slow)
		}
		w.Close()
	}
}
