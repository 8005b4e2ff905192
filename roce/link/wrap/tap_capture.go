package wrap

import (
	"fmt"
	"sync"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/trace/capfile"
	"github.com/goroce/goroce/wire"
)

// captureBytes limits the packets of a capture that wait to be written.
const captureBytes = 4 << 20

// CaptureCounts counts the frames of a capture.
type CaptureCounts struct {
	Matched uint64 // frames that were selected
	Dropped uint64 // selected frames that were lost because the writer was too slow
}

// Capture is a capture that a Tap feeds. Packets wait in a queue for the writer. If the queue is full they are dropped,
// and counted in the file's interface statistics; links never wait.
type Capture struct {
	tap   *Tap
	match Match
	file  *capfile.Writer // used by run only
	wake  chan struct{}   // has a token when there is something to write, or the capture has ended
	done  chan struct{}   // closed when run has returned
	err   error           // why the capture ended early; valid after done

	mu     sync.Mutex
	frame  wire.Frame // reused for each frame
	epoch  time.Time  // wall clock time of Instant 0
	queue  packetQueue
	counts captureCounts
	ended  bool
}

// packetQueue is a queue of packets, stored one after another in buf.
type packetQueue struct {
	packets []queuedPacket
	buf     []byte
}

type queuedPacket struct {
	now ib.Instant
	dir capfile.Direction
	end int // its end in buf
}

// captureCounts has the counts of both directions: by Sent and Received.
type captureCounts [capfile.Sent + 1]CaptureCounts

func (c *captureCounts) sum() (n CaptureCounts) {
	for _, dir := range c {
		n.Matched += dir.Matched
		n.Dropped += dir.Dropped
	}
	return n
}

func newCapture(t *Tap, m Match) *Capture {
	return &Capture{tap: t, match: m, wake: make(chan struct{}, 1), done: make(chan struct{})}
}

// Counts returns the counters of sent and of received frames. Any goroutine may call it.
func (c *Capture) Counts() CaptureCounts {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts.sum()
}

// Done returns a channel that is closed when the capture has ended and everything is written: after Close, after the
// device was closed, or after an error.
func (c *Capture) Done() <-chan struct{} { return c.done }

// Close ends the capture, waits until all captured packets are written, and returns the first error of writing. Any
// goroutine may call it, more than once.
func (c *Capture) Close() error {
	c.tap.detach(c)
	c.end(nil)
	<-c.done
	return c.err
}

// end makes run write the rest, or nothing if err is not nil, and return.
func (c *Capture) end(err error) {
	c.mu.Lock()
	c.ended = true
	if err != nil {
		c.err = fmt.Errorf("capture: %w", err)
	}
	c.mu.Unlock()
	c.ring()
}

func (c *Capture) ring() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// take queues the selected frames of batch. It is called by goroutines of the links.
func (c *Capture) take(now ib.Instant, dir capfile.Direction, caps *link.Caps, batch []link.Run) {
	if len(batch) == 0 {
		return
	}
	c.mu.Lock()
	before := c.counts[dir].Matched
	for i := range batch {
		c.takeRun(now, dir, caps, &batch[i])
	}
	some := c.counts[dir].Matched != before
	c.mu.Unlock()
	if some {
		c.ring()
	}
}

func (c *Capture) takeRun(now ib.Instant, dir capfile.Direction, caps *link.Caps, r *link.Run) {
	sent := dir == capfile.Sent
	if c.frame.Outer = outerOf(r); sent {
		c.frame.Outer = outerSent(r, caps)
	}
	for i := range r.Frames() {
		frame := r.Frame(i)
		if c.ended || !c.match.frame(sent, r, frame) {
			continue
		}
		c.counts[dir].Matched++
		if len(c.queue.buf)+wire.EtherLen+c.frame.Outer.Len()+len(frame) > captureBytes {
			c.counts[dir].Dropped++
			continue
		}
		if sent {
			c.frame.Outer.ID = sentID(r, caps.ID, i)
		} else {
			c.frame.Outer.ID = receivedID(r, i)
		}
		c.push(now, dir, frame)
	}
}

// push queues one packet. c.frame has its outer headers.
func (c *Capture) push(now ib.Instant, dir capfile.Direction, frame []byte) {
	if c.epoch.IsZero() {
		c.epoch = time.Now().Add(-time.Duration(now))
	}
	c.frame.EtherSrc, c.frame.EtherDst = macOf(&c.frame.Outer.Src), macOf(&c.frame.Outer.Dst)
	q := &c.queue
	q.buf = append(c.frame.AppendHeaders(q.buf, len(frame)), frame...)
	q.packets = append(q.packets, queuedPacket{now, dir, len(q.buf)})
}

// run writes packets until the end. It takes the whole queue at a time and leaves an empty one.
func (c *Capture) run() {
	defer close(c.done)
	defer c.tap.detach(c)
	var full packetQueue
	var told uint64 // losses that the file's statistics have already
	for range c.wake {
		c.mu.Lock()
		full, c.queue = c.queue, packetQueue{full.packets[:0], full.buf[:0]}
		counts, epoch, ended := c.counts, c.epoch, c.ended
		c.mu.Unlock()

		err := c.write(&full, epoch)
		if lost := counts.sum().Dropped; err == nil && (ended || lost != told) {
			told = lost
			err = c.writeStats(&counts)
		}
		if err == nil {
			err = c.file.Flush()
		}
		if err != nil {
			c.end(err)
			return
		}
		if ended {
			return
		}
	}
}

func (c *Capture) write(q *packetQueue, epoch time.Time) error {
	start := 0
	for _, p := range q.packets {
		packet := q.buf[start:p.end]
		start = p.end
		if err := writeFrame(c.file, epoch, p.now, p.dir, packet); err != nil {
			return err
		}
	}
	return nil
}

// writeStats writes an interface statistics block for each direction. A file that is cut off has the blocks that were
// written after earlier losses.
func (c *Capture) writeStats(counts *captureCounts) error {
	now := ib.Instant(time.Now().UnixNano())
	for _, dir := range []capfile.Direction{capfile.Sent, capfile.Received} {
		n := &counts[dir]
		if err := c.file.Statistics(dir, now, n.Matched, n.Dropped); err != nil {
			return err
		}
	}
	return nil
}
