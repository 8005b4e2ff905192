package qp

// hystart is HyStart++ (RFC 9406): slow start ends before a queue overflows, when round trips become longer. As
// they also do when a thread was not scheduled, the window first grows at a quarter of the speed, for a few rounds. If
// round trips are as short as before in one of them, there was no queue.
type hystart struct {
	round    uint32 // of the rttEstimate
	last     int64  // the shortest round trip of the round before, in nanoseconds; 0: none
	baseline int64  // that of the round before conservative slow start; 0: it has not begun
	left     int    // rounds of it that are left
}

const (
	cssRounds  = 5
	cssDivisor = 4
	// delayMost is up to what a longer round trip is no queue, in nanoseconds. For the least, 4 ms in RFC 9406, see
	// queueNoise: round trips are shorter here.
	delayMost = 16_000_000
)

// divisor returns by what an ACK's growth is divided now.
func (h *hystart) divisor(rtt *rttEstimate) float64 {
	if h.round != rtt.round {
		h.round, h.last = rtt.round, rtt.shortest[1]
		if h.baseline > 0 {
			h.left--
		}
	}
	switch latest := rtt.shortest[0]; {
	case latest == 0 || h.last == 0:
	case h.baseline > 0 && latest < h.baseline:
		h.baseline = 0
	case h.baseline == 0 && latest >= h.last+max(queueNoise, min(h.last/8, delayMost)):
		h.baseline, h.left = h.last, cssRounds
	}
	if h.baseline > 0 {
		return cssDivisor
	}
	return 1
}

// over reports whether slow start has ended.
func (h *hystart) over() bool { return h.baseline > 0 && h.left <= 0 }
