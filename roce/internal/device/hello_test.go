package device_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/wire"
)

// talk counts what two devices say to each other beside what the architecture has, and loses packets.
type talk struct {
	rng            *rand.Rand
	loss           float64 // of requests from A
	deaf           bool    // hellos are lost
	hellos, answer int
	sacks          int
	lost           int
}

func (x *talk) link(l link.Link) link.Link {
	fromA := l.Caps().Local[0] == gidA
	return &filtered{Link: l, passes: func(p *wire.Packet) bool {
		var h wire.Hello
		if mad := p.MAD(); mad != nil && h.Decode(mad) {
			if h.Answer {
				x.answer++
			} else {
				x.hellos++
			}
			return !x.deaf
		}
		if p.Opcode == wire.SACKOpcode {
			x.sacks++
		}
		if fromA && x.rng.Float64() < x.loss {
			x.lost++
			return false
		}
		return true
	}}
}

func newTalk(t *testing.T) (*talk, *world) {
	x := &talk{rng: rand.New(rand.NewPCG(1, 2))}
	w := newWorld(t, 1, 1<<18, stack{above: same, below: x.link})
	w.connect(1024, nil)
	return x, w
}

// writes writes messages of 32 KiB.
func (w *world) writes(n int) {
	w.t.Helper()
	for range n {
		w.write(0, 32<<10, nil)
		w.poll(w.a)
	}
}

// TestHello: devices announce themselves when a packet is lost, and not before. Then SACKs say what is missing.
func TestHello(t *testing.T) {
	x, w := newTalk(t)
	if w.writes(20); x.hellos+x.answer+x.sacks != 0 {
		t.Fatalf("without a loss: got %d hellos, %d answers and %d SACKs, want none", x.hellos, x.answer, x.sacks)
	}
	x.loss = 0.05
	if w.writes(50); x.sacks == 0 || x.hellos == 0 || x.hellos > 2 || x.answer == 0 {
		t.Errorf("got %d hellos, %d answers and %d SACKs, want one hello of each device at most, and SACKs", x.hellos,
			x.answer, x.sacks)
	}
	before, lost := w.a.dev.Stats().SentPkts, x.lost
	w.writes(50)
	sent, needed := w.a.dev.Stats().SentPkts-before, uint64(50*32+x.lost-lost)
	if sent > needed+needed/50 {
		t.Errorf("got %d packets sent where %d were lost, want about %d", sent, x.lost-lost, needed)
	}
}

// TestHelloDeaf: a destination that does not answer is asked three times in a minute at most, and never gets a SACK.
func TestHelloDeaf(t *testing.T) {
	x, w := newTalk(t)
	x.loss, x.deaf = 0.05, true
	end := w.now + ib.Instant(50*time.Second)
	for w.now < end {
		w.writes(20)
		w.now += ib.Instant(time.Second)
	}
	if x.hellos > 2*3 || x.hellos < 3 || x.sacks != 0 {
		t.Errorf("got %d hellos and %d SACKs, want three hellos of each device and no SACK", x.hellos, x.sacks)
	}
}
