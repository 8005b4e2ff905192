package qp

import (
	"testing"

	"github.com/goroce/goroce/ib"
)

// TestHistograms: a signaled request that has succeeded is counted by the time from when it was taken to its
// completion, and the packet whose ACK it got by its round trip. What is not signaled, not acknowledged or has failed
// is no completion's latency.
func TestHistograms(t *testing.T) {
	const apart = 37_000 // ns from the packet to its answer: between 32 and 64 us
	for _, c := range []struct {
		name                string
		typ                 ib.QPType
		flags               ib.SendFlags
		key                 ib.Key // added to the R_Key
		completions, rounds uint64
	}{
		{"signaled", ib.RC, ib.SendSignaled, 0, 1, 1},
		{"unsignaled", ib.RC, 0, 0, 0, 1},
		{"failed", ib.RC, ib.SendSignaled, 1, 0, 0},
		{"unreliable", ib.UC, ib.SendSignaled, 0, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := &exchange{t: t}
			x.a, x.b = connectedBy(t, c.typ, false)
			x.a.post(&ib.SendWR{Opcode: ib.WRWrite, SGL: []ib.SGE{x.a.sge(0, 8)}, RemoteAddr: memAddr,
				RKey: x.b.region.Key() + c.key, Flags: c.flags})
			x.move(0, x.a, x.b)
			x.move(apart, x.b, x.a)
			for _, h := range []struct {
				name string
				got  Histogram
				want uint64
			}{{"completion latency", x.a.stats.CompletionLatency, c.completions}, {"RTT", x.a.stats.RTT, c.rounds}} {
				if h.got.Buckets[6] != h.want || h.got.Count() != h.want || h.got.Sum != h.want*apart/1000 {
					t.Errorf("%s: got %+v, want %d of %d ns", h.name, h.got, h.want, apart)
				}
			}
		})
	}
}

// TestHistogramBounds: a duration is below the bound of its bucket and not below the one before.
func TestHistogramBounds(t *testing.T) {
	for _, c := range []struct {
		us     uint32
		bucket int
	}{{0, 0}, {1, 1}, {2, 2}, {3, 2}, {4, 3}, {1<<20 - 1, 20}, {1 << 20, 21}, {1<<32 - 1, 21}} {
		var h Histogram
		if h.add(c.us); h.Buckets[c.bucket] != 1 {
			t.Errorf("%d us: got %v, want 1 in bucket %d", c.us, h.Buckets, c.bucket)
		}
	}
	if before, after := micros(1<<32*1000-1000), micros(1<<32*1000+4000); after-before != 5 {
		t.Errorf("5 us across the wrap: got %d, want 5", after-before)
	}
}
