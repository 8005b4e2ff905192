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
)

// CM is an application's access to the connection manager of a device: an event channel with its connections and
// listeners. It is safe for concurrent use.
type CM struct {
	dev     ib.Device
	ch      ib.CM
	onEvent func(ib.CMEvent)
	stopped chan struct{} // closed when run has returned
	closing sync.Once

	mu        sync.Mutex // guards the fields below
	owners    map[ib.CMID]owner
	listeners map[ib.CMID]*Listener
	conns     map[*Conn]struct{} // not closed yet
	abandoned []*Conn            // by a Listener; closeAbandoned closes their objects
	err       error              // why the CM has ended; nil while it is open
}

// owner receives the events of an ID. Both methods are called with CM.mu held.
type owner interface {
	event(*ib.CMEvent)
	end(error) // no further event will come, because of this error
}

// Options adjust a CM.
type Options struct {
	// OnEvent is called with every event of all connections, in their order, before the event is handled. It must
	// neither block nor call the CM.
	OnEvent func(ib.CMEvent)
}

// Open opens an event channel of the device's connection manager. A device may have many CMs, in one process or
// several; they share its ports, as sockets do. If the device has no connection manager, the error matches
// ib.ErrNotSupported.
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
			fmt.Errorf("the device has none (ib.CMDevice); connect its queue pairs by hand, or use another device: %w",
				ib.ErrNotSupported)
	}
	return d.OpenCM()
}

// Device returns the device.
func (c *CM) Device() ib.Device { return c.dev }

// run dispatches events until the channel is closed.
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
		c.closeAbandoned()
	}
}

// dispatch passes an event to the owner of its ID. An ID that has been closed has no owner.
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

// lastEvent reports whether no further event of an ID follows one of this type.
func lastEvent(t ib.CMEventType) bool {
	return t == ib.CMRejected || t == ib.CMUnreachable || t == ib.CMTimewaitExit
}

// whileOpen calls f with mu held. If the CM is closed it returns the cause instead.
func (c *CM) whileOpen(f func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	return f()
}

// forget closes an ID that needs no owner any more. The caller holds mu.
func (c *CM) forget(id ib.CMID) {
	delete(c.owners, id)
	_ = id.Close()
}

// timeLeft returns the time until the deadline of ctx, 0 if it has none.
func timeLeft(ctx context.Context) time.Duration {
	at, ok := ctx.Deadline()
	if !ok {
		return 0
	}
	return max(time.Until(at), 1)
}

// awaitTimeout is for a ctx that has just ended by its deadline. If the connection manager has that deadline too
// (bounded), awaitTimeout waits up to a second for done, because the manager's event tells how often the message was
// sent.
func awaitTimeout(ctx context.Context, bounded bool, done <-chan struct{}) {
	if !bounded || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return
	}
	last := time.NewTimer(time.Second)
	defer last.Stop()
	select {
	case <-done:
	case <-last.C:
	}
}

// Close ends all connections and listeners, and closes what was created for them. Each peer is told once. Calls that
// wait return errors that match ib.ErrClosed. The device stays open.
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

// closeAbandoned closes the objects of abandoned connections. The caller does not hold mu: a remote.Memory waits in
// Close for calls, and these may wait for mu in Conn.Err.
func (c *CM) closeAbandoned() {
	c.mu.Lock()
	conns := c.abandoned
	c.abandoned = nil
	c.mu.Unlock()
	for _, conn := range conns {
		_ = conn.closeObjects() // fails with ib.ErrBusy if Prepare registered memory; its owner closes it
	}
}

// shut ends everything, with err as the cause.
func (c *CM) shut(err error) {
	defer c.closeAbandoned() // after mu is released
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
	for conn := range c.conns { // connections without an ID
		conn.end(err)
	}
}
