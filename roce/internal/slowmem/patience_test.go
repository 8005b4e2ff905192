package slowmem

import (
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
)

// TestPatience: the time for which shards take no turns doubles while memory stays slow, and
// starts again after memory was fast for a long time.
func TestPatience(t *testing.T) {
	const ms = ib.Instant(time.Millisecond)
	var p patience
	now := ms
	for i, x := range []struct {
		cost  effort
		bytes int
		after ib.Instant // the time before
		spell ib.Instant // 0: shards may still take turns
	}{
		{effort{cpu: slowTurn}, 0, 0, 0},
		{effort{cpu: slowTurn + 1000*slowByte}, 1000, 0, 0},
		{effort{cpu: slowTurn + 1000*slowByte + 1}, 1000, 0, 10 * ms}, // pages were made
		{effort{sleeps: 1}, 1 << 20, 0, 20 * ms},                      // or fetched
		{effort{sleeps: 5}, 0, 16 * 20 * ms, 40 * ms},
		{effort{sleeps: 1}, 0, 16*40*ms + 1, 10 * ms},
		{effort{}, 0, 0, 0},
	} {
		if now += x.after; !p.has(now) {
			t.Fatalf("turn %d: patience is lost for longer than said", i)
		}
		before := effort{cpu: time.Second, sleeps: 7}
		p.learn(now, before, effort{before.cpu + x.cost.cpu, before.sleeps + x.cost.sleeps}, x.bytes)
		if x.spell > 0 && p.has(now+x.spell-1) || !p.has(now+x.spell) {
			t.Errorf("turn %d: patience is lost for %v, want %v", i, time.Duration(p.spell), time.Duration(x.spell))
		}
		now += x.spell
	}
	for range 20 {
		p.learn(now, effort{}, effort{sleeps: 1}, 0)
	}
	if p.has(now+mostSpell-1) || !p.has(now+mostSpell) {
		t.Errorf("patience is lost for %v, want %v at most", time.Duration(p.spell), time.Duration(mostSpell))
	}
}
