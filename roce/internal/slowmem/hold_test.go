package slowmem

import (
	"bytes"
	"flag"
	"math/rand/v2"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/mr/mrtest"
)

// gathering is memory that takes several pieces by one call.
type gathering struct{ until }

func (g gathering) WriteVector(pieces []mr.Piece) error {
	for _, p := range pieces {
		if err := g.WriteAt(p.B, p.Off); err != nil {
			return err
		}
	}
	return nil
}

// memorySize is enough for the placements of a script behind each other.
const memorySize = 1 << 21

// holding is a worker without a goroutine, with what its users see of it.
type holding struct {
	*Worker[*user]
	mem     *mrtest.Memory
	r       *mr.Region
	answers []Answer[*user]
}

func newHolding(t *testing.T, end uint64) *holding {
	h := &holding{mem: mrtest.New(memorySize)}
	h.r = lateRegion(t, gathering{until{h.mem, end}})
	h.Worker = New(Options{}, true, func() ib.Instant { return 0 },
		func(list []Answer[*user]) { h.answers = append(h.answers, list...) })
	t.Cleanup(h.Close)
	return h
}

func (h *holding) write(id uint64, off int, data []byte) []mr.Placement {
	return []mr.Placement{{ID: id, R: h.r, Off: uint64(off), Data: data}}
}

// TestHold: what is held is written from where it lies, in a turn of the holder. Nobody else takes
// that turn, and nobody else holds meanwhile.
func TestHold(t *testing.T) {
	const holder, other = 1, 2
	h := newHolding(t, memorySize)
	q := new(user)
	long, short := make([]byte, leastHeld), make([]byte, leastHeld-1)
	if h.Holds(holder) || !h.Hold(holder, q, append(h.write(1, 0, long), h.write(2, leastHeld, short)...)) ||
		!h.Hold(holder, q, h.write(3, 2*leastHeld, long)) {
		t.Fatal("an idle worker does not hold")
	}
	copy(long, "later")
	copy(short, "later")
	if h.Turn(nil) || h.Turn(other) || h.Hold(other, q, h.write(4, 0, long)) {
		t.Error("others take what is held, or hold too")
	}
	if !h.Holds(holder) || h.Holds(other) {
		t.Error("Holds is wrong before the turn")
	}
	if !h.Turn(holder) || h.Turn(holder) || h.Holds(holder) || len(h.answers) != 3 {
		t.Errorf("not all is done in the holder's turn: %d answers, want 3", len(h.answers))
	}
	for off, want := range map[int]string{0: "later", leastHeld: "\x00\x00\x00\x00\x00", 2 * leastHeld: "later"} {
		if got := h.mem.B[off : off+5]; string(got) != want {
			t.Errorf("%q at %d, want %q", got, off, want)
		}
	}
	h.Place(q, h.write(5, 0, long))
	if h.Hold(holder, q, h.write(6, 0, long)) {
		t.Error("the worker holds what comes behind a placement that waits")
	}
	for h.Turn(nil) {
	}
	h.Close()
	if h.Hold(holder, q, h.write(7, 0, long)) || h.Holds(holder) {
		t.Error("a closed worker holds")
	}
}

var holdSeed = flag.Uint64("hold.seed", 0, "the one seed that TestHoldOrder runs")

// TestHoldOrder: however placements are held, released, kept and copied, they are carried out in their
// order, each has its answer in that order, and the holder may use its buffers again when the
// worker does not hold them.
func TestHoldOrder(t *testing.T) {
	first, last := uint64(1), uint64(50)
	if *holdSeed != 0 {
		first, last = *holdSeed, *holdSeed
	}
	for seed := first; seed <= last; seed++ {
		if testHoldOrder(t, seed); t.Failed() {
			t.Fatalf("seed %d failed; again: go test ./roce/internal/slowmem -run TestHoldOrder -hold.seed=%[1]d", seed)
		}
	}
}

// script plays a holder of a worker at random, and knows what the outcome must be.
type script struct {
	*holding
	rng      *rand.Rand
	end      uint64 // of the memory that can be written
	at       uint64 // where the latest placement ends
	want     []byte // contents of the memory
	packets  []int  // of each placement
	outcomes []int  // how many of them are written
	lent     [][]byte
}

// next returns a placement in buffers of the holder.
func (s *script) next() []mr.Placement {
	each, n := []int{8, 500, 1 << 10, 4 << 10}[s.rng.IntN(4)], 1+s.rng.IntN(8)
	p := mr.Placement{ID: uint64(len(s.outcomes)), R: s.r, Off: s.at}
	if s.end == memorySize && s.rng.IntN(2) == 0 || s.at+uint64(n*each) > memorySize {
		p.Off = s.rng.Uint64N(1 << 16)
	}
	s.at = p.Off + uint64(n*each)
	frames := make([]byte, n*(each+24))
	for i := range frames {
		frames[i] = byte(s.rng.Uint32())
	}
	s.lent = append(s.lent, frames)
	p.Data = frames[20:][:(n-1)*(each+24)+each]
	if n > 1 {
		p.Each, p.Stride = each, each+24
	}
	good := 0
	for ; good < n && p.Off+uint64((good+1)*each) <= s.end; good++ {
		copy(s.want[int(p.Off)+good*each:], p.Packet(good))
	}
	s.outcomes, s.packets = append(s.outcomes, good), append(s.packets, n)
	return []mr.Placement{p}
}

// reuse overwrites the buffers.
func (s *script) reuse() {
	for _, b := range s.lent {
		clear(b)
	}
	s.lent = nil
}

func testHoldOrder(t *testing.T, seed uint64) {
	const holder, other = 1, 2
	rng := rand.New(rand.NewPCG(seed, 0))
	end := memorySize - rng.Uint64N(2)*rng.Uint64N(memorySize)
	s := &script{holding: newHolding(t, end), rng: rng, end: end, want: make([]byte, memorySize)}
	q := new(user)
	for range 100 {
		switch rng.IntN(8) {
		case 0, 1, 2:
			if list := s.next(); !s.Hold(holder, q, list) {
				s.Place(q, list)
			}
		case 3:
			s.Place(q, s.next())
		case 4:
			s.Turn([]any{nil, other}[rng.IntN(2)])
		case 5:
			s.Turn(holder)
		case 6:
			s.Release(holder)
			s.reuse()
		case 7:
			if rng.IntN(4) == 0 {
				s.Keep(holder)
				s.lent = nil
			}
		}
		if !s.Holds(holder) {
			s.reuse()
		}
	}
	for s.Turn(holder) {
	}
	for i, a := range s.answers {
		good := s.outcomes[i]
		if a.ID != uint64(i) || (a.Err != nil) != (good < s.packets[i]) || a.Err != nil && a.Old != uint64(good) {
			t.Errorf("answer %d: %+v, want %d of %d packets", i, a, good, s.packets[i])
		}
	}
	if same := bytes.Equal(s.mem.B, s.want); len(s.answers) != len(s.outcomes) || !same {
		t.Errorf("%d answers, want %d; the memory is right: %v", len(s.answers), len(s.outcomes), same)
	}
}
