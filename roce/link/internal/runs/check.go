package runs

import "github.com/goroce/goroce/roce/link"

// MinFrame is the length of the shortest possible frame: BTH and ICRC.
const MinFrame = 16

// Bytes of IP and UDP header in front of a frame.
const (
	Overhead4 = 20 + 8
	Overhead6 = 40 + 8
)

// NotOurs is the error for a run whose source is not an address of the link.
const NotOurs = "source GID is not one of this link"

// Overhead returns the bytes of IP and UDP header in front of r's frames.
func Overhead(r *link.Run) int {
	if r.Dst.Is4() {
		return Overhead4
	}
	return Overhead6
}

// Refuse returns why a link with these capabilities cannot send r, or "".
func Refuse(c *link.Caps, r *link.Run) string {
	switch {
	case len(r.Buf) == 0 || r.Size <= 0:
		return "empty run"
	case !wellFormed(r):
		return "frame is shorter than 16 bytes or not a multiple of 4"
	case r.Src.Is4() != r.Dst.Is4():
		return "source and destination are of different IP versions"
	case len(r.Buf) > c.RunBytes:
		return "run is longer than Caps.RunBytes"
	case r.Frames() > c.RunFrames:
		return "run has more frames than Caps.RunFrames"
	case min(r.Size, len(r.Buf))+Overhead(r) > c.MTU:
		return "frame with its IP and UDP headers exceeds the MTU"
	}
	return ""
}

// wellFormed reports whether all frames of r, which is not empty, are at least
// MinFrame bytes and a multiple of 4 long.
func wellFormed(r *link.Run) bool {
	tail := len(r.Buf) % r.Size
	return r.Size >= MinFrame && r.Size%4 == 0 && (tail == 0 || tail >= MinFrame && tail%4 == 0)
}

// Count returns the number of frames to count for r, which may be malformed: at least 1.
func Count(r *link.Run) uint64 { return uint64(max(r.Frames(), 1)) }

// Trim removes malformed frames from a received run, so that all have at least MinFrame bytes and a multiple of 4 as
// link.Run requires. It returns how many it has removed; if these are all, r.Buf is empty.
func Trim(r *link.Run) (dropped int) {
	switch {
	case len(r.Buf) == 0:
		return 1
	case r.Size < MinFrame || r.Size%4 != 0:
		dropped = max(r.Frames(), 1)
		r.Buf = r.Buf[:0]
		return dropped
	case !wellFormed(r):
		r.Buf = r.Buf[:len(r.Buf)-len(r.Buf)%r.Size]
		return 1
	}
	return 0
}
