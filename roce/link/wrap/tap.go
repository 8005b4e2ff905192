package wrap

import (
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/trace/capfile"
)

// MaxCaptures is the number of captures that one Tap feeds at a time.
const MaxCaptures = 16

// Tap lets captures begin and end while a device runs. Without captures it costs the links one atomic load for each
// call. The zero value is ready. All links of a device share one Tap.
//
// Any goroutine may attach and end captures at any time.
type Tap struct {
	captures atomic.Pointer[[]*Capture] // nil while there are none

	mu   sync.Mutex // guards the fields below, and changes of captures
	caps link.Caps  // of the first link
	open int        // links that are not closed
}

// Around returns a Link that shows the captures each frame, as Pcap would write it. It has the same place in the stack
// as Pcap. When the last Link of a Tap is closed, its captures end.
func (t *Tap) Around(l link.Link) link.Link {
	t.mu.Lock()
	defer t.mu.Unlock()
	caps := l.Caps()
	if t.open == 0 {
		t.caps = caps
	}
	t.open++
	return &tapped{Link: l, tap: t, caps: caps}
}

// Closed reports whether all links of the Tap are closed.
func (t *Tap) Closed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.open == 0
}

// Attach starts a capture of the frames that m selects, in pcapng format, to w. It writes the start of the file before
// it returns. A goroutine of the capture writes the rest until Close, the end of the links, or an error. w stays the
// caller's.
//
// If the Tap feeds MaxCaptures already, the error is an *ib.AttrError that wraps ib.ErrLimit; without open links it
// wraps ib.ErrClosed.
func (t *Tap) Attach(w io.Writer, m Match) (*Capture, error) {
	const op = "start capture"
	if err := m.check(op); err != nil {
		return nil, err
	}
	c := newCapture(t, m)
	caps, err := t.add(op, c)
	if err != nil {
		return nil, err
	}
	if c.file, err = newPcapWriter(w, &caps); err != nil {
		t.detach(c)
		return nil, err
	}
	go c.run()
	return c, nil
}

// add adds c, which gets frames from then on, so whoever sees the start of the file will find all later frames in it.
func (t *Tap) add(op string, c *Capture) (link.Caps, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open == 0 {
		return t.caps, fmt.Errorf("%s: device %w", op, ib.ErrClosed)
	}
	list := t.list()
	if n := len(list); n >= MaxCaptures {
		return t.caps, driver.Refuse(op, "captures", n,
			fmt.Sprintf("less than %d at a time; end one first", MaxCaptures),
			ib.ErrLimit)
	}
	list = append(slices.Clone(list), c)
	t.captures.Store(&list)
	return t.caps, nil
}

// list returns the captures.
func (t *Tap) list() []*Capture {
	if p := t.captures.Load(); p != nil {
		return *p
	}
	return nil
}

// detach removes a capture if it is attached.
func (t *Tap) detach(c *Capture) {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := slices.DeleteFunc(slices.Clone(t.list()), func(x *Capture) bool { return x == c })
	if len(list) == 0 {
		t.captures.Store(nil)
		return
	}
	t.captures.Store(&list)
}

// linkClosed ends all captures when the last link is closed. It does not wait for their writers.
func (t *Tap) linkClosed() {
	t.mu.Lock()
	t.open--
	var list []*Capture
	if t.open == 0 {
		list = t.list()
		t.captures.Store(nil)
	}
	t.mu.Unlock()
	for _, c := range list {
		c.end(nil)
	}
}

// tapped is a Link that feeds a Tap.
type tapped struct {
	link.Link
	tap    *Tap
	caps   link.Caps
	closed sync.Once
}

func (l *tapped) Send(now ib.Instant, out []link.Run) (int, error) {
	n, err := l.Link.Send(now, out)
	if list := l.tap.captures.Load(); list != nil {
		for _, c := range *list {
			c.take(now, capfile.Sent, &l.caps, out[:n])
		}
	}
	return n, err
}

func (l *tapped) Recv(now ib.Instant, in []link.Run) (int, error) {
	n, err := l.Link.Recv(now, in)
	if list := l.tap.captures.Load(); list != nil {
		for _, c := range *list {
			c.take(now, capfile.Received, &l.caps, in[:n])
		}
	}
	return n, err
}

func (l *tapped) Close() error {
	l.closed.Do(l.tap.linkClosed)
	return l.Link.Close()
}
