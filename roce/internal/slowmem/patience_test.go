package slowmem

import (
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/mr/mrtest"
)

// TestPatience: the time for which shards take no turns doubles while memory stays slow, and
// starts again after memory was fast for a long time.
func TestPatience(t *testing.T) {
	const ms = ib.Instant(time.Millisecond)
	var p patience
	now := ms
	for i, x := range []struct{ after, spell ib.Instant }{ // after the last spell, memory is slow, and for so long
		{0, 10 * ms},
		{0, 20 * ms},
		{16 * 20 * ms, 40 * ms},
		{16*40*ms + 1, 10 * ms},
	} {
		if now += x.after; !p.has(now) {
			t.Fatalf("turn %d: patience is lost for longer than said", i)
		}
		p.lose(now)
		if p.has(now+x.spell-1) || !p.has(now+x.spell) {
			t.Errorf("turn %d: patience is lost for %v, want %v", i, time.Duration(p.spell), time.Duration(x.spell))
		}
		now += x.spell
	}
	for range 20 {
		p.lose(now)
	}
	if p.has(now+mostSpell-1) || !p.has(now+mostSpell) {
		t.Errorf("patience is lost for %v, want %v at most", time.Duration(p.spell), time.Duration(mostSpell))
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
			t.Errorf("a turn of %v with %d stalls: slow is %v", x.takes, x.stalls, !x.slow)
		}
		w.Close()
	}
}
