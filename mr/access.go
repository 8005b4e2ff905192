//go:build !race

package mr

import "sync/atomic"

// Every plain access to registered memory goes through these functions, because the race detector needs others
// (access_race.go). Stores whose order matters are in store_amd64.go and store_other.go.

func copyBytes(dst, src []byte)   { copy(dst, src) }
func store8(p *uint8, v uint8)    { *p = v }
func store16(p *uint16, v uint16) { *p = v }

// compareSwap stores swap if the word holds compare, and returns what it held.
func compareSwap(p *uint64, compare, swap uint64) uint64 {
	for {
		old := atomic.LoadUint64(p)
		if old != compare || atomic.CompareAndSwapUint64(p, compare, swap) {
			return old
		}
	}
}

// fetchAdd adds to the word and returns what it held.
func fetchAdd(p *uint64, add uint64) uint64 { return atomic.AddUint64(p, add) - add }
