package wrap

import (
	"math/rand/v2"
	"sync/atomic"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
)

// bthMasked is the byte of a frame that the ICRC does not cover: FECN, BECN and reserved bits of the BTH. No receiver
// could detect that it was changed.
const bthMasked = 4

// Corrupter is a Link that corrupts frames; see [Corrupt].
type Corrupter struct {
	link.Link
	rng         *rand.Rand
	probability float64
	flipped     atomic.Uint64

	out     []link.Run
	flips   []int    // for each of out, how many frames were corrupted
	scratch [][]byte // copies of corrupted runs
}

// Corrupt returns a Link that flips one bit in each frame sent with probability
// c.Corrupt, determined by c.Seed; it does nothing else of c. It belongs below Seal: a
// receiver must notice and drop every damaged frame. Unlike Network it does not split
// runs, so it suits every link.
func Corrupt(l link.Link, c FaultConfig) *Corrupter {
	return &Corrupter{Link: l, rng: rand.New(rand.NewPCG(c.Seed, 2)), probability: c.Corrupt}
}

// Flipped returns how many frames were corrupted. Any goroutine may call it.
func (c *Corrupter) Flipped() uint64 { return c.flipped.Load() }

// Send corrupts copies. The caller sends frames again if they are not taken, and Seal would then compute an ICRC for
// the corrupted ones.
func (c *Corrupter) Send(now ib.Instant, out []link.Run) (int, error) {
	c.out, c.flips = c.out[:0], c.flips[:0]
	copies := 0
	for i := range out {
		r, flips := out[i], 0
		for f := range r.Frames() {
			if len(r.Frame(f)) <= bthMasked || c.rng.Float64() >= c.probability {
				continue
			}
			if flips == 0 {
				r.Buf = c.copy(copies, r.Buf)
				copies++
			}
			c.flip(r.Frame(f))
			flips++
		}
		c.out = append(c.out, r)
		c.flips = append(c.flips, flips)
	}
	n, err := c.Link.Send(now, c.out)
	for _, flips := range c.flips[:n] {
		c.flipped.Add(uint64(flips))
	}
	return n, err
}

// copy copies b into scratch buffer i.
func (c *Corrupter) copy(i int, b []byte) []byte {
	if i == len(c.scratch) {
		c.scratch = append(c.scratch, nil)
	}
	c.scratch[i] = append(c.scratch[i][:0], b...)
	return c.scratch[i]
}

// flip flips one of the bits that the ICRC covers.
func (c *Corrupter) flip(frame []byte) {
	bit := c.rng.IntN((len(frame) - 1) * 8)
	if bit >= bthMasked*8 {
		bit += 8
	}
	frame[bit/8] ^= 1 << (bit % 8)
}
