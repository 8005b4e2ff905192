package qp

import (
	"math/bits"

	"github.com/goroce/goroce/ib"
)

// Histogram counts durations. Only the owner of the shard reads and writes it.
type Histogram struct {
	// Buckets[i] counts those below 2^i us, and not below 2^(i-1) us; the last one all that are longer.
	Buckets [HistogramBounds + 1]uint64
	Sum     uint64 // of all, in microseconds
}

// HistogramBounds is how many bounds a histogram has, from 1 us to 2^20 us, about a second.
const HistogramBounds = 21

// add counts a duration in microseconds.
func (h *Histogram) add(us uint32) {
	h.Buckets[min(bits.Len32(us), HistogramBounds)]++
	h.Sum += uint64(us)
}

// Count returns how many durations were counted.
func (h *Histogram) Count() (n uint64) {
	for _, b := range h.Buckets {
		n += b
	}
	return n
}

// micros returns a time in microseconds. It wraps after 71 minutes, so differences are right if they are shorter.
func micros(now ib.Instant) uint32 { return uint32(uint64(now) / 1000) }
