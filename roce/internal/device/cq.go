package device

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/qp"
	"github.com/goroce/goroce/qp/ring"
	"github.com/goroce/goroce/roce/internal/engine"
	"github.com/goroce/goroce/roce/internal/objects"
)

// A completion queue has two ends on one ring. The device's end (core) is written by the shards of the QPs that
// complete there, under the lock of the shard and, with several shards, that of the CQ. The application's end (ring)
// is read under mu. Shards never take mu; Poll, which may take a turn of a shard, holds it meanwhile.

// emptyPolls is how many polls in a row must find nothing before one drives the shard: the loop
// does not stand aside for an application that polls now and then.
const emptyPolls = 4

// CQ is a completion queue of the software device.
type CQ struct {
	driver.Implementation

	dev     *Device
	home    *engine.Shard // of the QPs whose send CQ it is; constant
	core    *qp.CQ        // the device's end
	channel *Channel
	waiter  *objects.Waiter
	tenant  Tenant // which gets the events; nil for this process

	mu    sync.Mutex // the application's end
	ring  *ring.CQ   // nil for a tenant
	empty int        // polls in a row that found nothing

	qps     int // qps and srqs are guarded by Device.mu
	srqs    int
	dead    atomic.Bool // set under Device.mu
	pending bool        // queued on the channel; guarded by Channel.mu
}

// CreateCQ makes a completion queue.
func (d *Device) CreateCQ(init ib.CQInit) (ib.CQ, error) {
	c, err := d.createCQ(init, nil)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// createCQ is CreateCQ for this process, or for a tenant. It calls Tenant.Alloc with Device.mu held.
func (d *Device) createCQ(init ib.CQInit, t Tenant) (*CQ, error) {
	if err := d.open("create CQ"); err != nil {
		return nil, err
	}
	defer d.mu.Unlock()
	slots, err := cqSlots("create CQ", t, init.Entries)
	if err != nil {
		return nil, err
	}
	if init.CompVector < 0 || init.CompVector >= d.Shards() {
		return nil, driver.Refuse("create CQ", "CompVector", init.CompVector,
			fmt.Sprintf("0 to %d (DeviceAttr.CompVectors)", d.Shards()-1), ib.ErrInvalid)
	}
	if d.cqs == maxCQs {
		return nil, limitError("create CQ", "CQs", maxCQs)
	}
	c := &CQ{dev: d, tenant: t, waiter: objects.NewWaiter()}
	if init.Channel != nil {
		ch, err := owned[*Channel](d, "create CQ", "Channel", init.Channel)
		if err != nil {
			return nil, err
		}
		c.channel = ch
	}
	device, buf, err := newCQRing(t, slots)
	if err == nil && t == nil {
		c.ring, err = ring.OpenCQ(buf)
	}
	if err != nil {
		return nil, err
	}
	// Vector 0 is what programs pass that do not care. Their CQs, and with them the QPs, are spread over the shards.
	if c.home = d.shard(init.CompVector); init.CompVector == 0 {
		c.home = d.nextShard()
	}
	c.core = qp.NewCQ(device, d.engine.NewLock())
	c.core.Owner = c
	d.cqs++
	if c.channel != nil {
		c.channel.users.Add(1)
	}
	return c, nil
}

// cqSlots returns the entries of the ring for a CQ. A tenant asks for those of the ring.
func cqSlots(op string, t Tenant, n int) (int, error) {
	switch {
	case n >= 1 && t != nil && n <= maxCQE+1:
		return n, nil
	case n >= 1 && n <= maxCQE:
		return ring.CQSlots(n), nil
	}
	return 0, driver.Refuse(op, "Entries", n, fmt.Sprintf("1 to %d", maxCQE), ib.ErrInvalid)
}

// newCQRing makes a completion ring. It returns the device's end, and the memory
// that the application's end is opened on.
func newCQRing(t Tenant, entries int) (device *ring.CQ, buf []byte, err error) {
	if buf, err = allocFor(t, ring.CQSize(entries)); err != nil {
		return nil, nil, err
	}
	device, err = ring.NewCQ(buf, entries)
	return device, buf, err
}

// limitError says that the device has no more objects of a kind, whoever has them.
func limitError(op, what string, limit int) error {
	return driver.Refuse(op, "number of "+what, limit+1, fmt.Sprintf("at most %d; free some first", limit), ib.ErrLimit)
}

// Poll takes completions out of the queue. An application that polls an empty CQ again and again drives the shard of
// its QPs itself (engine, poller.go).
func (c *CQ) Poll(wcs []ib.WC) (int, error) {
	if err := c.own("poll CQ"); err != nil {
		return 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.ring.Poll(wcs); n > 0 || len(wcs) == 0 {
		// Completions that others' turns have brought: the application polls, so the loop stays aside.
		c.empty = 0
		c.home.Polled()
		return n, nil
	}
	// Help takes a turn of the shard under mu. A turn never takes mu: it pushes into the device's end of the ring.
	if c.empty++; c.empty < emptyPolls || !c.home.Help() {
		return 0, nil
	}
	// What the turn has brought may be in memory. The program looks there after this poll; if it polls once more before
	// it acts, that poll takes no further turn.
	c.empty = emptyPolls - 2
	return c.ring.Poll(wcs), nil
}

// Wait waits for completions. One with a channel refuses it: the event would go there.
func (c *CQ) Wait(ctx context.Context, wcs []ib.WC) (int, error) {
	if c.channel != nil {
		return 0, objects.HasChannel()
	}
	return c.waiter.Wait(ctx, c, c.dev.events.closed, wcs)
}

// Arm asks for an event. What is in the queue already raises none (IBTA 11.4.2.2), so whoever arms polls once more
// before it waits.
func (c *CQ) Arm(solicitedOnly bool) error {
	if err := c.own("arm CQ"); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ring.Arm(solicitedOnly)
	c.empty = 0
	c.home.LeavePolling() // the application is going to wait for the event
	return nil
}

func (c *CQ) err(op string) error {
	if c.dead.Load() || c.dev.closed.Load() {
		return fmt.Errorf("%s: %w", op, ib.ErrClosed)
	}
	return nil
}

// own is err for operations on the application's end of the ring, which a tenant's CQ lacks.
func (c *CQ) own(op string) error {
	if c.tenant != nil {
		return notHere(op)
	}
	return c.err(op)
}

// Entries returns how many completions the program may leave in the queue: one less than there is room for; for a
// tenant's CQ the entries of the ring.
func (c *CQ) Entries() (n int) {
	c.home.Locked(func() { n = c.core.Entries() })
	if c.tenant == nil {
		n--
	}
	return n
}

// Resize moves the completions to a ring of another size. It is refused if they do not fit, and then nothing has
// changed. When it returns, one of the two rings is out of use: the old one or, if it was refused, the new one.
func (c *CQ) Resize(entries int) error {
	slots, err := cqSlots("resize CQ", c.tenant, entries)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.err("resize CQ"); err != nil {
		return err
	}
	device, buf, err := newCQRing(c.tenant, slots)
	if err != nil {
		return err
	}
	// In steps, since a million completions take milliseconds, and the shard's other QPs must have their turns
	// meanwhile. Other shards are kept out by the lock of the CQ, in each step; the application by mu, to the end.
	if !c.home.InSteps(c.core.Resize(device)) {
		return driver.Refuse("resize CQ", "Entries", entries,
			"at least the completions that are in the queue; poll them first", ib.ErrInvalid)
	}
	// A tenant opens its end itself, in its process.
	if c.tenant == nil {
		c.ring, err = ring.OpenCQ(buf)
	}
	return err
}

// Close destroys the queue. It is busy while QPs or SRQs complete there. Without them no shard writes to it any more,
// so the ring is free once Close returns.
func (c *CQ) Close() error {
	c.dev.mu.Lock()
	defer c.dev.mu.Unlock()
	if c.dead.Load() || c.dev.closed.Load() {
		return nil
	}
	if err := busy("close CQ", users{{c.qps, "QPs"}, {c.srqs, "SRQs"}}); err != nil {
		return err
	}
	c.dead.Store(true)
	c.waiter.Close()
	c.dev.cqs--
	if c.channel != nil {
		// An event that nobody has taken yet would name a closed CQ.
		c.channel.forget(c)
		c.channel.users.Add(-1)
	}
	return nil
}

// Channel is a completion channel of the software device.
type Channel struct {
	driver.Implementation

	dev   *Device
	users atomic.Int32 // CQs

	mu     sync.Mutex
	queue  []*CQ         // CQs with an event that Wait has not returned yet, each once
	signal chan struct{} // has an item if there may be an event: see take
	closed chan struct{} // closed by shut
	isShut atomic.Bool
}

// CreateChannel makes a completion channel.
func (d *Device) CreateChannel() (ib.Channel, error) {
	if err := d.open("create channel"); err != nil {
		return nil, err
	}
	defer d.mu.Unlock()
	ch := &Channel{dev: d, signal: make(chan struct{}, 1), closed: make(chan struct{})}
	d.chans[ch] = struct{}{}
	return ch, nil
}

// notify queues an event of c, unless an earlier event of c is still in the queue. A shard calls it with its lock
// held.
func (ch *Channel) notify(c *CQ) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	// One event for a CQ, however often it is armed: who takes it polls until the CQ is empty. The kernel's channels
	// have one for each arming, and programs acknowledge them.
	if c.pending {
		return
	}
	c.pending = true
	ch.queue = append(ch.queue, c)
	ch.wake()
}

// wake wakes one goroutine in Wait. The caller holds mu.
func (ch *Channel) wake() {
	select {
	case ch.signal <- struct{}{}:
	default:
	}
}

// take removes the oldest event and returns its CQ; nil if there is none.
func (ch *Channel) take() *CQ {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if len(ch.queue) == 0 {
		return nil
	}
	c := ch.queue[0]
	ch.queue = append(ch.queue[:0], ch.queue[1:]...)
	c.pending = false
	// signal has room for one token, whatever the number of events. Who takes one passes it on, or a second
	// goroutine would sleep beside an event.
	if len(ch.queue) > 0 {
		ch.wake()
	}
	return c
}

// forget takes a CQ that is being closed out of the queue.
func (ch *Channel) forget(c *CQ) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	for i, e := range ch.queue {
		if e == c {
			ch.queue = append(ch.queue[:i], ch.queue[i+1:]...)
			c.pending = false
			return
		}
	}
}

// Wait returns a CQ with an event. Several goroutines may wait; an event goes to one of them.
func (ch *Channel) Wait(ctx context.Context) (ib.CQ, error) {
	for {
		if c := ch.take(); c != nil {
			return c, nil
		}
		select {
		case <-ch.signal:
		case <-ch.closed:
			return nil, fmt.Errorf("wait on channel: %w", ib.ErrClosed)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// shut makes all calls of Wait return.
func (ch *Channel) shut() {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if !ch.isShut.Swap(true) {
		close(ch.closed)
	}
}

// Close destroys the channel. It is busy while CQs use it, unless the device is closed.
func (ch *Channel) Close() error {
	ch.dev.mu.Lock()
	defer ch.dev.mu.Unlock()
	if err := busy("close channel", users{{int(ch.users.Load()), "CQs"}}); err != nil && !ch.dev.closed.Load() {
		return err
	}
	delete(ch.dev.chans, ch)
	ch.shut()
	return nil
}
