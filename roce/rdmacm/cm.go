package rdmacm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/cm"
)

// CM is an application's part of the connection manager of a device's port: an event channel
// of it, and all that is connected and listened to by way of it. It is safe for concurrent
// use.
type CM struct {
	dev     ib.Device
	ch      ib.CM
	onEvent func(ib.CMEvent)
	stopped chan struct{} // run has ended
	closing sync.Once

	mu        sync.Mutex // guards what follows
	owners    map[ib.CMID]owner
	listeners map[ib.CMID]*Listener
	conns     map[*Conn]struct{} // that are not closed
	err       error              // why nothing goes any more; nil while open
}

// owner is whom the events of an ID are for. Both methods are called with CM.mu
// held.
type owner interface {
	event(*ib.CMEvent)
	end(error) // nothing will happen any more, for this reason
}

// Options adjust a CM.
type Options struct {
	// OnEvent is told of all events of all connections, in their order, before
	// anybody else. It must not block, nor call the CM.
	OnEvent func(ib.CMEvent)
}

// Open opens an event channel of the device's connection manager. A device may have many
// CMs, of one process or several: they share its ports, as sockets do. The error of a device
// without a connection manager matches ib.ErrNotSupported.
func Open(dev ib.Device, o Options) (*CM, error) {
	ch, err := openChannel(dev)
	if err != nil {
		return nil, fmt.Errorf("open connection manager of %s: %w", dev.Attr().Name, err)
	}
	c := &CM{
		dev: dev, ch: ch, onEvent: o.OnEvent, stopped: make(chan struct{}),
		owners: map[ib.CMID]owner{}, listeners: map[ib.CMID]*Listener{}, conns: map[*Conn]struct{}{},
	}
	go c.run()
	return c, nil
}

func openChannel(dev ib.Device) (ib.CM, error) {
	d, ok := dev.(ib.CMDevice)
	if !ok {
		return nil,
			fmt.Errorf("the device has none (ib.CMDevice); connect its queue pairs by hand, or use another device: %w", ib.ErrNotSupported)
	}
	return d.OpenCM()
}

// Device returns the device.
func (c *CM) Device() ib.Device { return c.dev }

// Stats returns the counters of the port's connection manager, which all users of the device
// share; they are zero if the device does not tell them.
func (c *CM) Stats() cm.Stats {
	if d, ok := c.dev.(interface{ CMStats() cm.Stats }); ok {
		return d.CMStats()
	}
	return cm.Stats{}
}

// run hands out events until the channel is closed.
func (c *CM) run() {
	defer close(c.stopped)
	for {
		ev, err := c.ch.NextEvent(context.Background())
		if err != nil {
			c.shut(fmt.Errorf("connection manager of %s: %w", c.dev.Attr().Name, err))
			return
		}
		c.mu.Lock()
		c.dispatch(&ev)
		c.mu.Unlock()
	}
}

// dispatch takes an event to its owner. One of an ID that was closed meanwhile has none.
func (c *CM) dispatch(ev *ib.CMEvent) {
	if c.onEvent != nil {
		c.onEvent(*ev)
	}
	if ev.Type == ib.CMConnectRequest {
		c.request(ev)
		return
	}
	o := c.owners[ev.ID]
	if lastEvent(ev.Type) {
		delete(c.owners, ev.ID)
	}
	if o != nil {
		o.event(ev)
	}
}

// lastEvent reports whether nothing comes of an ID behind such an event.
func lastEvent(t ib.CMEventType) bool {
	return t == ib.CMRejected || t == ib.CMUnreachable || t == ib.CMTimewaitExit
}

// input runs f with mu held, if the CM is open.
func (c *CM) input(f func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	return f()
}

// forget closes an ID, of which nothing will be heard any more. The caller holds mu.
func (c *CM) forget(id ib.CMID) {
	delete(c.owners, id)
	_ = id.Close()
}

// left is how long ctx has, 0 if it has no deadline.
func left(ctx context.Context) time.Duration {
	at, ok := ctx.Deadline()
	if !ok {
		return 0
	}
	return max(time.Until(at), 1)
}

// lastWord waits a moment for the end of what ctx has just ended, if the connection manager
// has that deadline too: it knows how often it has asked.
func lastWord(ctx context.Context, bounded bool, done <-chan struct{}) {
	if !bounded || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return
	}
	last := time.NewTimer(100 * time.Millisecond)
	defer last.Stop()
	select {
	case <-done:
	case <-last.C:
	}
}

// Close ends all connections and listeners, and closes what was made for them. The
// peers are told, once. All calls that wait return errors that match ib.ErrClosed. The
// device stays open.
func (c *CM) Close() error {
	var err error
	c.closing.Do(func() { err = c.close() })
	return err
}

func (c *CM) close() error {
	c.shut(fmt.Errorf("connection manager of %s: %w", c.dev.Attr().Name, ib.ErrClosed))
	errs := []error{c.ch.Close()}
	<-c.stopped
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
	for _, l := range c.listeners {
		l.shut()
	}
	for id, o := range c.owners {
		_ = id.Close()
		o.end(err)
	}
	clear(c.owners)
	for conn := range c.conns { // those that have no ID yet
		conn.end(err)
	}
}
