package engine

import (
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// A burst may fill all runs of a transmitter, 8 MiB with segmentation offload. Buffers that nothing has needed for some
// time are given back.
const (
	trimAfter = ib.Instant(10 * time.Second)
	trimTo    = 8 // buffers that are kept in any case
)

// trim says when buffers of a transmitter are given back, and how many.
type trim struct {
	most int        // runs in use at a time, since the last trim
	at   ib.Instant // of the next trim; driver.Never if there is nothing to give back
}

// made notes that the buffer of a run is new.
func (r *trim) made(now ib.Instant, i int) {
	if i >= trimTo && r.at == driver.Never {
		r.at = now + trimAfter
	}
}

// trim gives back the buffers that were not needed since the last trim, if it is time.
func (t *transmitter) trim(now ib.Instant) {
	if now < t.room.at {
		return
	}
	keep := max(t.room.most, trimTo)
	clear(t.buffers[keep:])
	t.room = trim{most: t.n, at: driver.Never}
	if keep > trimTo {
		t.room.at = now + trimAfter
	}
}
