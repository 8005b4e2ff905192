package server

import (
	"math"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/roce/internal/device"
)

// clockOffset returns CLOCK_MONOTONIC minus the device's clock, in nanoseconds. Both run at the same rate. It takes
// the best of some readings: one that another thread interrupts is wrong by that time. With it the drop-in reads the
// device's clock without a request, and converts the times of completions.
func clockOffset(dev *device.Device) (offset int64) {
	for best, i := int64(math.MaxInt64), 0; i < 16; i++ {
		before := monotonic()
		now, err := dev.Clock()
		after := monotonic()
		if spread := after - before; err == nil && spread < best {
			best, offset = spread, before+spread/2-int64(now)
		}
	}
	return offset
}

func monotonic() int64 {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // does not fail
	return now.Nano()
}
