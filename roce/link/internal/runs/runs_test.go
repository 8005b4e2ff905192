package runs

import (
	"bytes"
	"flag"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
)

var testSeed = flag.Uint64("runs.seed", rand.Uint64(), "the seed of TestQueueModel; random if not set")

// The queue against a plain slice of slices: whatever the sizes, what comes out
// is what went in, and lent bytes do not change while they are lent.
func TestQueueModel(t *testing.T) {
	seed := *testSeed
	t.Logf("-runs.seed=%d", seed)
	for _, limits := range [][2]int{{8, 1000}, {100, 5 * minBytes}, {minRuns + 1, minBytes + 1}} {
		modelQueue(t, rand.New(rand.NewPCG(seed, 0)), limits[0], limits[1])
	}
}

func modelQueue(t *testing.T, rng *rand.Rand, maxRuns, maxBytes int) {
	q := NewQueue(maxRuns, maxBytes)
	var model, lent [][]byte
	var lentRuns []link.Run
	var kept [][]byte
	var keptRuns []link.Run
	next := byte(0)
	for range 20000 {
		for i, r := range lentRuns {
			if !bytes.Equal(r.Buf, lent[i]) {
				t.Fatalf("lent run %d is % x, want % x", i, r.Buf, lent[i])
			}
		}
		for i, r := range keptRuns {
			if !bytes.Equal(r.Buf, kept[i]) {
				t.Fatalf("kept run %d is % x, want % x", i, r.Buf, kept[i])
			}
		}
		switch rng.IntN(16) {
		case 0: // what is lent now is the borrower's, and the queue uses it no more
			q.Keep()
			kept, keptRuns = slices.Concat(kept, lent), slices.Concat(keptRuns, lentRuns)
			kept, keptRuns = kept[max(0, len(kept)-8):], keptRuns[max(0, len(keptRuns)-8):]
			lent, lentRuns = nil, nil
		case 1, 2, 3:
			out := make([]link.Run, 1+rng.IntN(4))
			n := q.Pop(out)
			if n != min(len(out), len(model)) {
				t.Fatalf("Pop(%d) = %d with %d queued, want %d", len(out), n, len(model), min(len(out), len(model)))
			}
			lent, lentRuns, model = model[:n], out[:n], model[n:]
		default:
			next++
			b := bytes.Repeat([]byte{next}, 1+rng.IntN(maxBytes*2/5))
			if q.Push(&link.Run{Size: len(b), Buf: b}) {
				model = append(model, b)
			} else if queued := len(model) + len(lent); queued == 0 || queued < maxRuns && room(model, lent, maxBytes) {
				t.Fatalf("a queue of at most %d runs and %d bytes refuses %d bytes beside %d runs", maxRuns, maxBytes,
					len(b), queued)
			}
		}
		if q.Len() != len(model) {
			t.Fatalf("Len %d, want %d", q.Len(), len(model))
		}
	}
}

// TestQueueKeep: the ring goes with the runs that are kept. It is copied for those that wait, and for nobody else.
func TestQueueKeep(t *testing.T) {
	q := NewQueue(64, 1<<20)
	run := link.Run{Size: 60_000, Buf: make([]byte, 60_000)}
	push := func(n int) {
		for range n {
			if !q.Push(&run) {
				t.Fatal("no room")
			}
		}
	}
	for _, step := range []struct {
		name      string
		push, pop int
		want      bool // there still is a ring
	}{
		{"nothing was ever received", 0, 0, false}, {"nothing is lent", 10, 0, true}, {"others wait", 0, 4, true},
		{"all are lent", 0, 6, false}, {"nothing since", 0, 0, false},
	} {
		push(step.push)
		if step.pop > 0 {
			q.Pop(make([]link.Run, step.pop))
		}
		ring := q.ring
		q.Keep()
		if got := q.ring != nil; got != step.want {
			t.Errorf("%s: after Keep there is a ring: %v, want %v", step.name, got, step.want)
		}
		if step.pop == 0 && len(ring) > 0 && &q.ring[0] != &ring[0] {
			t.Errorf("%s: Keep copies the ring", step.name)
		}
	}
}

// room reports whether a queue of so many bytes has room for a run however the others lie in its ring.
func room(model, lent [][]byte, maxBytes int) bool {
	longest, sum := maxBytes*2/5, 0
	for _, b := range slices.Concat(model, lent) {
		sum += len(b)
	}
	return sum+2*longest <= maxBytes
}

func TestTrim(t *testing.T) {
	tests := []struct {
		name             string
		size, len        int
		dropped, wantLen int
	}{
		{"one frame", 64, 64, 0, 64},
		{"one frame, shorter than Size says", 64, 32, 0, 32},
		{"run with a tail", 64, 160, 0, 160},
		{"tail not a multiple of 4", 64, 131, 1, 128},
		{"tail too short to be a frame", 64, 140, 1, 128},
		{"size not a multiple of 4", 63, 126, 2, 0},
		{"size too short", 12, 36, 3, 0},
		{"empty datagram", 0, 0, 1, 0},
		{"size zero with bytes", 0, 64, 1, 0},
		{"nothing", 64, 0, 1, 0},
	}
	for _, tt := range tests {
		r := link.Run{Size: tt.size, Buf: make([]byte, tt.len)}
		if d := Trim(&r); d != tt.dropped || len(r.Buf) != tt.wantLen {
			t.Errorf("%s: dropped %d, %d bytes left; want %d, %d", tt.name, d, len(r.Buf), tt.dropped, tt.wantLen)
		}
	}
}

func TestRefuse(t *testing.T) {
	v4 := ib.GID{10: 0xFF, 11: 0xFF, 12: 10}
	v6 := ib.GID{0: 0xFD, 15: 1}
	c := link.Caps{MTU: 1500, RunFrames: 4, RunBytes: 4000}
	tests := []struct {
		name     string
		src, dst ib.GID
		size     int
		len      int
		refused  bool
	}{
		{"fits IPv4 exactly", v4, v4, 1472, 2944, false},
		{"one over, IPv4", v4, v4, 1476, 1476, true},
		{"fits IPv6 exactly", v6, v6, 1452, 2904, false},
		{"one over, IPv6", v6, v6, 1456, 1456, true},
		{"mixed versions", v6, v4, 100, 100, true},
		{"with a tail", v4, v4, 100, 348, false},
		{"most frames", v4, v4, 100, 400, false},
		{"too many frames", v4, v4, 100, 416, true},
		{"too many bytes", v4, v4, 1400, 4200, true},
		{"no size", v4, v4, 0, 100, true},
		{"negative size", v4, v4, -4, 100, true},
		{"empty", v4, v4, 100, 0, true},
		{"size not a multiple of 4", v4, v4, 102, 204, true},
		{"tail not a multiple of 4", v4, v4, 100, 150, true},
		{"too short for a frame", v4, v4, 12, 24, true},
	}
	for _, tt := range tests {
		r := link.Run{Src: tt.src, Dst: tt.dst, Size: tt.size, Buf: make([]byte, tt.len)}
		if why := Refuse(&c, &r); (why != "") != tt.refused {
			t.Errorf("%s: refused with %q, want refused %v", tt.name, why, tt.refused)
		}
	}
}
