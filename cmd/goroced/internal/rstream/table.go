package rstream

import (
	"fmt"
	"io"
	"time"
)

func printHeader(w io.Writer) {
	fmt.Fprintf(w, "%-10s%-8s%-8s%-8s%-8s%8s %10s%13s\n", "name", "bytes", "xfers", "iters", "total", "time", "Gb/sec",
		"usec/xfer")
}

// printRow prints the result of a test that has made a number of transfers, in both directions together.
func printRow(w io.Writer, t *test, transfers int64, elapsed time.Duration) {
	bytes := transfers * int64(t.size)
	us := float64(max(elapsed, time.Nanosecond)) / 1e3
	fmt.Fprintf(w, "%-10s%-8s%-8s%-8s%-8s%8.2fs%10.2f%11.2f\n", t.name, sizeText(int64(t.size)),
		countText(int64(t.transfers)), countText(int64(t.iterations)), sizeText(bytes), us/1e6,
		float64(bytes)*8/(1000*us), us/float64(transfers))
}

// sizeText formats n in units of 1024, with one decimal below ten units unless that is 0.
func sizeText(n int64) string {
	base, unit := int64(1), ""
	for i, u := range []string{"k", "m", "g"} {
		if b := int64(1) << (10 * (i + 1)); n >= b {
			base, unit = b, u
		}
	}
	if tenths := n % base * 10 / base; n/base < 10 && tenths > 0 {
		return fmt.Sprintf("%d.%d%s", n/base, tenths, unit)
	}
	return fmt.Sprintf("%d%s", n/base, unit)
}

// countText formats n in units of 1000, rounded down.
func countText(n int64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%db", n/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%dm", n/1e6)
	case n >= 1e3:
		return fmt.Sprintf("%dk", n/1e3)
	}
	return fmt.Sprint(n)
}
