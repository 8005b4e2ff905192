package rdmacm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/cm"
)

// CM is a connection manager of a device's port. It is safe for concurrent use.
type CM struct {
	dev     ib.Device
	onEvent func(cm.Event)
	origin  time.Time
	stop    context.CancelFunc // of run
	stopped chan struct{}      // run has ended
	flushed chan struct{}      // closed: the last message has left
	closing sync.Once

	mu        sync.Mutex // guards what follows
	m         *cm.Manager
	gsi       *gsi
	timer     *time.Timer
	owners    map[cm.ID]owner
	listeners map[cm.ListenID]*Listener
	conns     map[*Conn]struct{} // that are not closed
	ports     portTable
	err       error // why nothing goes any more; nil while open
}

// owner is whom the events of an ID are for. Both methods are called with CM.mu
// held.
type owner interface {
	event(*cm.Event)
	end(error) // nothing will happen any more, for this reason
}

// Options adjust a CM.
type Options struct {
	// OnEvent is told of all events of all connections, in their order, before
	// anybody else. It must not block, nor call the CM.
	OnEvent func(cm.Event)
}

// Open makes a general services QP. The software device may have several, and as many
// CMs, each with its own ports: see ib.ServiceQP. The error of a device which has
// one QP 1, and it is taken, matches ib.ErrBusy, that of a device which has none of
// its own ib.ErrNotSupported.
func Open(dev ib.Device, o Options) (*CM, error) {
	g, err := openGSI(dev)
	if err != nil {
		return nil, fmt.Errorf("open connection manager of %s: %w", dev.Attr().Name, err)
	}
	ctx, stop := context.WithCancel(context.Background())
	c := &CM{
		dev: dev, onEvent: o.OnEvent, origin: time.Now(), stop: stop, stopped: make(chan struct{}), flushed: make(chan struct{}), gsi: g,
		m:      cm.New(cm.Options{GUID: dev.Attr().NodeGUID, Seed: rand.Uint64()}),
		owners: map[cm.ID]owner{}, listeners: map[cm.ListenID]*Listener{}, conns: map[*Conn]struct{}{}, ports: newPortTable(),
	}
	c.timer = time.AfterFunc(time.Hour, c.timeout)
	c.timer.Stop()
	go c.run(ctx)
	return c, nil
}

// Device returns the device.
func (c *CM) Device() ib.Device { return c.dev }

// Stats returns the counters of the state machine.
func (c *CM) Stats() cm.Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.m.Stats()
}

// now is the state machine's time: since Open.
func (c *CM) now() ib.Instant { return ib.Instant(time.Since(c.origin)) }

// input runs f, which gives the state machine an input, and does what comes of it.
func (c *CM) input(f func(now ib.Instant) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	err := f(c.now())
	c.settle()
	return err
}

// settle brings events to their owners, messages to the wire and the timer to the
// next deadline. The caller holds mu.
func (c *CM) settle() {
	c.dispatch()
	c.gsi.transmit(c.m)
	if at := c.m.Deadline(); at == ib.Never {
		c.timer.Stop()
	} else {
		c.timer.Reset(max(time.Duration(at-c.now()), 0))
	}
}

// dispatch hands out the events, and those that come of it.
func (c *CM) dispatch() {
	var ev cm.Event
	for c.m.NextEvent(&ev) {
		if c.onEvent != nil {
			c.onEvent(ev)
		}
		if ev.Kind == cm.Request {
			c.request(&ev)
			continue
		}
		o := c.owners[ev.ID]
		if lastEvent(ev.Kind) {
			delete(c.owners, ev.ID)
		}
		if o != nil {
			o.event(&ev)
		}
	}
}

// lastEvent reports whether the ID is gone with such an event.
func lastEvent(k cm.EventKind) bool {
	switch k {
	case cm.Rejected, cm.Unreachable, cm.TimewaitExit, cm.Resolved, cm.Dropped:
		return true
	}
	return false
}

// timeout is what the timer runs. One that comes late finds nothing to do.
func (c *CM) timeout() {
	_ = c.input(func(now ib.Instant) error {
		c.m.Timeout(now)
		return nil
	})
}

// deadline is when an answer is no longer waited for on behalf of ctx.
func (c *CM) deadline(ctx context.Context) ib.Instant {
	at, ok := ctx.Deadline()
	if !ok {
		return ib.Never
	}
	return ib.Instant(at.Sub(c.origin))
}

// flushTime bounds the wait for the last messages of a CM: UD requests complete
// when they have left, which only a device out of order delays.
const flushTime = time.Second

// Close ends all connections and listeners, closes what was made for them, and
// gives the QP back. The peers are told, once. All calls that wait return errors
// that match ib.ErrClosed. The device stays open.
func (c *CM) Close() error {
	var err error
	c.closing.Do(func() { err = c.close() })
	return err
}

func (c *CM) close() error {
	c.shut(fmt.Errorf("connection manager of %s: %w", c.dev.Attr().Name, ib.ErrClosed))
	last := time.NewTimer(flushTime)
	defer last.Stop()
	select {
	case <-c.flushed:
	case <-c.stopped:
	case <-last.C:
	}
	c.stop()
	<-c.stopped
	errs := []error{c.gsi.close()}
	c.mu.Lock()
	conns := slices.Collect(maps.Keys(c.conns))
	c.mu.Unlock()
	for _, conn := range conns {
		errs = append(errs, conn.Close())
	}
	return errors.Join(errs...)
}

// shut ends everything for the reason err.
func (c *CM) shut(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.err = err
	now := c.now()
	for _, l := range c.listeners {
		l.shut(now)
	}
	for id, o := range c.owners {
		c.m.Release(now, id)
		o.end(err)
	}
	clear(c.owners)
	for conn := range c.conns { // those that have no ID yet
		conn.end(err)
	}
	c.settle()
	c.timer.Stop()
	c.checkFlushed()
}
