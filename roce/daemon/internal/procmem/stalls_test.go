//go:build linux

package procmem

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// TestStalls checks that Stalls counts a sleep of the thread, and a move for which the kernel must allocate a page.
func TestStalls(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	c := start(t)
	fresh := c.memory(childSize)
	page, at := []byte{1}, uint64(0)
	for what, stall := range map[string]func() error{
		// A sleep is not counted if its timer expires before the thread has left the processor: it must not be short.
		"sleep": func() error { return unix.Nanosleep(&unix.Timespec{Nsec: 100_000}, nil) },
		"page": func() error {
			at += 4096
			return fresh.WriteAt(page, at)
		},
	} {
		before := Stalls()
		for tries := 0; Stalls() < before+3; tries++ {
			if tries == 200 {
				t.Fatalf("%s: after %d times there are %d stalls more, want one", what, tries, Stalls()-before)
			}
			c.must(stall())
		}
	}
}

func BenchmarkStalls(b *testing.B) {
	for b.Loop() {
		Stalls()
	}
}
