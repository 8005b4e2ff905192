package wire

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/goroce/goroce/ib"
)

// TestSACK: what Append writes Decode reads, and Run lists what Set has set.
func TestSACK(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 0))
		sack := SACK{Twice: uint8(rng.Uint32()), Trigger: ib.PSN(rng.Uint32()) & ib.PSNMask,
			First: ib.PSN(rng.Uint32()) & ib.PSNMask}
		set := map[ib.PSN]bool{}
		for range rng.IntN(20) {
			first := rng.IntN(SACKBits+80) - 40
			for i := range 1 + rng.IntN(200) {
				psn := sack.First.Add(first + i)
				if sack.Set(psn); first+i >= 0 && first+i < SACKBits {
					set[psn] = true
				}
			}
		}
		b := sack.Append(nil)
		var got SACK
		if err := got.Decode(b); err != nil || got != sack {
			t.Fatalf("seed %d: got %+v, %v, want %+v", seed, got, err, sack)
		}
		if len(b) > MaxSACKLen {
			t.Fatalf("seed %d: got %d bytes, want %d at most", seed, len(b), MaxSACKLen)
		}
		for i := -10; i < SACKBits+10; i++ {
			if psn := sack.First.Add(i); got.Has(psn) != set[psn] {
				t.Fatalf("seed %d: got %d in the bitmap: %v, want %v", seed, psn, got.Has(psn), set[psn])
			}
		}
		n := 0
		for psn, run := got.Run(got.First); run > 0; psn, run = got.Run(psn.Add(run)) {
			if set[psn.Add(-1)] || set[psn.Add(run)] {
				t.Fatalf("seed %d: got the run %d+%d, which is not all of it", seed, psn, run)
			}
			for i := range run {
				if !set[psn.Add(i)] {
					t.Fatalf("seed %d: got %d, which was not set", seed, psn.Add(i))
				}
			}
			n += run
		}
		if n != len(set) {
			t.Fatalf("seed %d: got %d PSNs, want %d", seed, n, len(set))
		}
	}
	for _, n := range []int{0, 7, 9, 12, MaxSACKLen + 8} {
		if err := new(SACK).Decode(make([]byte, n)); !errors.Is(err, ErrLength) {
			t.Errorf("%d bytes: got %v, want %v", n, err, ErrLength)
		}
	}
}

// TestHello: what Put writes Decode reads; other MADs are no Hello.
func TestHello(t *testing.T) {
	var mad [MADLen]byte
	for _, h := range []Hello{
		{TID: 7, Version: HelloVersion},
		{Answer: true, TID: 1 << 63, Version: 9},
		{Answer: true, Status: 0x0C},
	} {
		h.Put(&mad)
		var got Hello
		if !got.Decode(&mad) || got != h {
			t.Errorf("got %+v, want %+v", got, h)
		}
	}
	fields := map[int]string{0: "base version", 1: "class", 3: "method", 17: "attribute", helloOUIAt: "OUI"}
	for at, what := range fields {
		other := mad
		other[at] ^= 0x40
		if new(Hello).Decode(&other) {
			t.Errorf("another %s: got a Hello, want none", what)
		}
	}
}
