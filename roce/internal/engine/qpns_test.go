package engine

import (
	"math/rand/v2"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
)

// TestQPNumbers: a number is not reused for a long time, and identifies its QP and its
// shard.
func TestQPNumbers(t *testing.T) {
	for _, shards := range []int{1, 2, 4, link.MaxShards} {
		for shard := range shards {
			testQPNumbers(t, newQPNTable(rand.New(rand.NewPCG(1, 2)), shard, shards), shard, shards)
		}
	}
}

func testQPNumbers(t *testing.T, table *qpnTable, shard, shards int) {
	seen := map[ib.QPN]bool{}
	var live []*QP
	for range 3 {
		for range 1000 {
			if !table.room() {
				t.Fatal("no number is left")
			}
			q := &QP{}
			q.num = table.add(q)
			if seen[q.num] || q.num < firstQPN || q.num >= ib.QPNMulticast || link.ShardOf(q.num, shards) != shard {
				t.Fatalf("shard %d of %d: number %#x is used again or not allowed", shard, shards, uint32(q.num))
			}
			seen[q.num] = true
			if table.get(q.num) != q {
				t.Fatalf("number %#x leads to %v, want its QP", uint32(q.num), table.get(q.num))
			}
			live = append(live, q)
		}
		for _, q := range live {
			table.remove(q.num)
			if table.get(q.num) != nil {
				t.Fatalf("number %#x still leads to a QP, want none", uint32(q.num))
			}
		}
		live = live[:0]
	}
	if table.used != 0 {
		t.Fatalf("got %d numbers in use, want none", table.used)
	}
	n := 0
	for ; table.room(); n++ {
		q := &QP{}
		q.num = table.add(q)
	}
	if n != maxQPs {
		t.Errorf("shard %d of %d has %d numbers, want %d", shard, shards, n, maxQPs)
	}
}
