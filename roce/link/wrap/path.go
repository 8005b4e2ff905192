package wrap

import (
	"math/rand/v2"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
)

// takePath makes an injector the path of its configuration: instead of faults by chance, every
// frame suffers its latency, jitter, rate and black hole.
func (l *injector) takePath(stream uint64) {
	l.rng = rand.New(rand.NewPCG(l.cfg.Seed, stream))
	l.decide = l.path
	l.most, l.beyond = maxOnPath, drop
}

// path decides over a frame that comes to the beginning of the path.
func (l *injector) path(now ib.Instant, r *link.Run, i int) (fault, time.Duration) {
	c := &l.cfg
	size := packetLen(r, i)
	if c.BlackHole > 0 && size > c.BlackHole {
		return drop, 0
	}
	wait := c.Latency
	if c.Jitter > 0 {
		wait += time.Duration(l.rng.Int64N(int64(c.Jitter) + 1))
	}
	if c.Rate > 0 {
		start := max(now, l.clear)
		if time.Duration(start-now) > c.Buffer {
			return drop, 0
		}
		l.clear = start + ib.Instant(int64(size)*8*int64(time.Second)/c.Rate)
		wait += time.Duration(l.clear - now)
	}
	if wait == 0 {
		return intact, 0
	}
	return delay, wait
}

// packetLen is the length of the IP packet with frame i of r.
func packetLen(r *link.Run, i int) int {
	const ipv4, ipv6, udp = 20, 40, 8
	if r.Src.Is4() {
		return ipv4 + udp + len(r.Frame(i))
	}
	return ipv6 + udp + len(r.Frame(i))
}
