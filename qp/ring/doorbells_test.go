package ring

import (
	"errors"
	"math/bits"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/goroce/goroce/ib"
)

func newClientDoorbells(t *testing.T, n int) (buf []byte, device, application *Doorbells) {
	t.Helper()
	buf = Alloc(DoorbellsSize(n))
	device, err := NewDoorbells(buf, n)
	if err == nil {
		application, err = OpenDoorbells(buf)
	}
	if err != nil {
		t.Fatal(err)
	}
	return buf, device, application
}

// taken takes the doorbells that are set and returns them.
func taken(b *Doorbells) (rung []uint32) {
	b.Take(func(first uint32, set uint64) {
		for ; set != 0; set &= set - 1 {
			rung = append(rung, first+uint32(bits.TrailingZeros64(set)))
		}
	})
	return rung
}

// TestDoorbells checks that doorbells are taken once, lowest first, however often each rang.
func TestDoorbells(t *testing.T) {
	for _, n := range []int{1, 64, 65, 4096, 4097, 3 * 4096, MaxDoorbells} {
		_, device, app := newClientDoorbells(t, n)
		want := []uint32{0, uint32(n) / 2, uint32(n) - 1}
		for _, i := range slices.Backward(want) {
			app.Ring(i)
			app.Ring(i)
		}
		want = slices.Compact(want)
		if got := taken(device); !slices.Equal(got, want) {
			t.Errorf("%d doorbells: took %d, want %d", n, got, want)
		}
		if got := taken(device); got != nil {
			t.Errorf("%d doorbells: took %d again, want none", n, got)
		}
	}
}

// TestDoorbellsWake checks that only the first Ring after Sleep reports that the device must
// be woken.
func TestDoorbellsWake(t *testing.T) {
	_, device, app := newClientDoorbells(t, 100)
	if app.Ring(1) {
		t.Error("a device that looks by itself must not be woken")
	}
	if !device.Sleep() {
		t.Error("a doorbell had rung before the device went to sleep")
	}
	device.Awake()
	taken(device)
	if device.Sleep() {
		t.Error("no doorbell had rung")
	}
	if !app.Ring(2) || app.Ring(3) {
		t.Error("the first ring wakes the device, and only that")
	}
}

// TestDoorbellsRace checks that no doorbell is lost between a device that calls Take and Sleep
// and goroutines that call Ring.
func TestDoorbellsRace(t *testing.T) {
	const n, rounds = 5000, 2000
	_, device, app := newClientDoorbells(t, n)
	awake := make(chan struct{}, 1)
	var left [n]int // guarded by mu: rings of each doorbell that were not taken yet
	var mu sync.Mutex
	var all sync.WaitGroup
	for g := range 3 {
		rng := rand.New(rand.NewPCG(1, uint64(g)))
		all.Go(func() {
			for range rounds {
				i := rng.Uint32N(n)
				mu.Lock()
				left[i]++
				mu.Unlock()
				if app.Ring(i) {
					awake <- struct{}{}
				}
			}
		})
	}
	go func() { all.Wait(); close(awake) }()
	got := 0
	for running := true; running; {
		for _, i := range taken(device) {
			mu.Lock()
			got, left[i] = got+left[i], 0
			mu.Unlock()
		}
		if device.Sleep() {
			device.Awake()
			continue
		}
		_, running = <-awake
	}
	taken(device)
	if got != 3*rounds {
		t.Errorf("%d pieces of work were found, want %d", got, 3*rounds)
	}
}

// TestHostileDoorbells checks that Take returns, and passes only valid numbers to f, whatever
// an application writes.
func TestHostileDoorbells(t *testing.T) {
	buf, device, _ := newClientDoorbells(t, 4096)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		for i := range buf {
			buf[i] = byte(rng.Uint32())
		}
		got := taken(device)
		if len(got) == 0 || len(got) > 4096 || slices.Max(got) >= 4096 {
			t.Fatalf("took %d doorbells, %d among them, want 1 to 4096 of 4096", len(got), slices.Max(got))
		}
		device.Sleep()
	}
	if _, err := OpenDoorbells(buf); !errors.Is(err, ib.ErrInvalid) {
		t.Errorf("nonsense was opened: %v, want %v", err, ib.ErrInvalid)
	}
}

func TestDoorbellsLimits(t *testing.T) {
	for _, n := range []int{-1, 0, MaxDoorbells + 1} {
		if DoorbellsSize(n) != 0 {
			t.Errorf("%d doorbells take %d bytes, want 0", n, DoorbellsSize(n))
		}
		if _, err := NewDoorbells(make([]byte, 64), n); !errors.Is(err, ib.ErrInvalid) {
			t.Errorf("%d doorbells: %v, want %v", n, err, ib.ErrInvalid)
		}
	}
	if _, err := NewDoorbells(Alloc(DoorbellsSize(1)-64), 1); !errors.Is(err, ib.ErrInvalid) {
		t.Error("a buffer that is too short was taken")
	}
	defer func() {
		if recover() == nil {
			t.Error("doorbell 4096 of 4096 rang")
		}
	}()
	_, _, app := newClientDoorbells(t, 4096)
	app.Ring(4096)
}
