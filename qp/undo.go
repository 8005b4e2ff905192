package qp

import "github.com/goroce/goroce/ib"

// reductionsApart is how many round trips are between reductions of the window that do not belong together.
const reductionsApart = 8

// repeatsFor is for how long a network that has repeated a packet is taken to do so, in nanoseconds.
const repeatsFor = ib.Instant(1_000_000_000)

// reduction is the latest time that the congestion window became smaller for losses. If all that was sent again since
// has arrived twice, nothing was lost, and the window is restored, as TCP does after D-SACKs (RFC 3708).
type reduction struct {
	cwnd     float64    // the window before; 0: none that may be undone
	from, at ib.Instant // of the first and of the latest one of several that follow each other
	lost     int        // packets that look lost since, but for those that have arrived twice
	resent   int        // likewise PSNs that were sent again
	repeated ib.Instant // when something arrived twice that was not sent again, by the network; 0: never
}

// begin notes that the window, which was cwnd, has become smaller because so many packets look lost.
func (r *reduction) begin(now ib.Instant, cwnd float64, lost int, rtt int64) {
	if r.cwnd == 0 || now-r.at > ib.Instant(reductionsApart*rtt) {
		r.cwnd, r.from, r.lost, r.resent = 0, now, lost, 0
	}
	r.cwnd, r.at = max(r.cwnd, cwnd), now
}

// late notes that n PSNs have arrived twice. Within the shortest round trip, in nanoseconds (0: not known), they are
// some that were sent again before. It returns the window to restore; 0: none.
func (r *reduction) late(now ib.Instant, n int, rtt int64) (cwnd float64) {
	if now-r.from <= ib.Instant(rtt) {
		return 0
	}
	r.lost -= n
	if r.resent -= n; r.lost > 0 || r.resent > 0 || r.repeated > 0 && now-r.repeated < repeatsFor {
		return 0
	}
	cwnd, r.cwnd = r.cwnd, 0
	return cwnd
}
