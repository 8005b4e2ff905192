//go:build linux

package procmem

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestEffort checks that the CPU time of a busy thread grows, and the count of a sleeping thread.
func TestEffort(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const work = 2 * time.Millisecond
	cpu, sleeps := Effort()
	for begin := cpu; cpu-begin < work; {
		if cpu, _ = Effort(); cpu < begin {
			t.Fatalf("the thread has spent %v, and %v before", cpu, begin)
		}
	}
	// A sleep whose timer expires before the thread has left the processor is not counted.
	now := sleeps
	for tries := 0; now < sleeps+3; tries++ {
		if tries == 1000 {
			t.Fatalf("after %d sleeps the count has grown by %d", tries, now-sleeps)
		}
		if err := unix.Nanosleep(&unix.Timespec{Nsec: 1000}, nil); err != nil {
			t.Fatal(err)
		}
		_, now = Effort()
	}
}

func BenchmarkEffort(b *testing.B) {
	for b.Loop() {
		Effort()
	}
}
