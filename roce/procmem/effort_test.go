//go:build linux

package procmem

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestEffort: a thread that works spends time and does not sleep, one that sleeps does so
// once a time.
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
	for range 3 {
		if err := unix.Nanosleep(&unix.Timespec{Nsec: 1000}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, now := Effort(); now < sleeps+3 {
		t.Errorf("it has slept %d times, want 3", now-sleeps)
	}
}

func BenchmarkEffort(b *testing.B) {
	for b.Loop() {
		Effort()
	}
}
