package sock

import (
	"math"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestControls: a control message with a length that cannot be ends the list.
func TestControls(t *testing.T) {
	for length, want := range map[uint64]int{0: 1, unix.SizeofCmsghdr - 1: 1, unix.SizeofCmsghdr + 4: 2, 24: 2, 25: 1,
		math.MaxInt64: 1, math.MaxUint64: 1} {
		b := NewBatch(1, 1, 48)
		headers := unsafe.Slice((*[3]uint64)(b.Control(0)), 2)
		headers[0][0], headers[1][0] = 20, length
		b.SetControlLen(0, 48)
		got := 0
		for range b.Controls(0) {
			got++
		}
		if got != want {
			t.Errorf("a second message of %d bytes: %d messages, want %d", length, got, want)
		}
	}
}
