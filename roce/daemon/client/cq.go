package client

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/qp/ring"
	"github.com/goroce/goroce/roce/daemon/abi"
	"github.com/goroce/goroce/roce/daemon/internal/yield"
	"github.com/goroce/goroce/roce/internal/objects"
)

// cq is a completion queue of the daemon, which this process polls in shared memory.
type cq struct {
	object
	waiter *objects.Waiter // nil if events go to a channel of the application

	mu    sync.Mutex
	slots int // of the ring
	ring  *ring.CQ
	pages *mapped
	empty int // consecutive polls that found nothing
	yield yield.Yielder
}

// After yieldAfter consecutive polls that find nothing, each further one yields the processor, for
// which the daemon may be waiting, or, if other programs keep it busy, sleeps (yield.Naps).
const yieldAfter = 10

// CreateCQ makes a completion queue.
func (d *Device) CreateCQ(init ib.CQInit) (ib.CQ, error) {
	const op = "create CQ"
	if err := d.err(op); err != nil {
		return nil, err
	}
	c := &cq{}
	var h *channel
	var err error
	if init.Channel != nil {
		h, err = owned[*channel](d, op, "Channel", init.Channel)
	} else {
		c.waiter = objects.NewWaiter()
		h, err = d.wakeups()
	}
	if err != nil {
		return nil, err
	}
	slots := cqSlots(init.Entries)
	r := abi.CreateCQ{Entries: uint32(slots), CompVector: clamp(init.CompVector), Channel: h.handle}
	made, err := askRing(c, d, abi.OpCreateCQ, r, slots)
	if err != nil {
		return nil, err
	}
	c.dev, c.kind, c.handle, c.slots = d, abi.KindCQ, made.Handle, slots
	d.keep(made.Handle, c)
	return c, nil
}

// askRing sends a request that carries a ring for c.
func askRing[Request any](c *cq, d *Device, op abi.Op, request Request, entries int) (abi.Ring, error) {
	return askRings(d, op, request, ring.CQSize(entries), func(r *abi.Ring, pages *mapped) error {
		opened, err := ring.OpenCQ(pages.buf[:r.Size])
		if err == nil {
			c.ring, c.pages = opened, pages
		}
		return err
	})
}

// Poll takes completions from the queue.
func (c *cq) Poll(wcs []ib.WC) (int, error) {
	if err := c.err("poll CQ"); err != nil {
		return 0, err
	}
	n, nap := c.poll(wcs)
	if nap {
		c.dev.naps.Nap(c)
	}
	return n, nil
}

// poll takes completions. nap reports that the goroutine should sleep before it polls again.
func (c *cq) poll(wcs []ib.WC) (n int, nap bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n = c.ring.Poll(wcs)
	if n > 0 {
		c.empty = 0
		return n, false
	}
	if c.empty++; c.empty <= yieldAfter {
		return 0, false
	}
	if c.yield.Resting() {
		return 0, true
	}
	c.yield.Yield()
	return 0, false
}

// Wait waits for completions.
func (c *cq) Wait(ctx context.Context, wcs []ib.WC) (int, error) {
	if c.waiter == nil {
		return 0, objects.HasChannel()
	}
	return c.waiter.Wait(ctx, c, c.dev.link.gone, wcs)
}

// Arm requests an event for the next completion.
func (c *cq) Arm(solicitedOnly bool) error {
	if err := c.err("arm CQ"); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ring.Arm(solicitedOnly)
	return nil
}

// Close destroys the queue.
func (c *cq) Close() error {
	err := c.object.Close()
	if c.dead.Load() && c.waiter != nil {
		c.waiter.Close()
	}
	return err
}

// Entries returns how many completions the program may leave in the queue: one less than there is room for.
func (c *cq) Entries() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.slots - 1
}

// cqSlots returns the entries of the ring for a CQ; for numbers out of range one that the device refuses.
func cqSlots(n int) int {
	if n < 1 || n > ring.MaxCQEntries {
		return int(clamp(n))
	}
	return ring.CQSlots(n)
}

// Resize moves the completions to a ring of another size.
func (c *cq) Resize(entries int) error {
	if err := c.err("resize CQ"); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	slots := cqSlots(entries)
	_, err := askRing(c, c.dev, abi.OpResizeCQ, abi.ResizeCQ{CQ: c.handle, Entries: uint32(slots)}, slots)
	if err == nil {
		c.slots = slots
	}
	return err
}

// clamp converts n for a message. Numbers out of range become one that the device refuses.
func clamp(n int) uint32 {
	if n < 0 || n > 1<<31-1 {
		return 1<<31 - 1
	}
	return uint32(n)
}

// channel delivers the events of armed CQs.
type channel struct {
	object
	socket *abi.File

	mu     sync.Mutex
	queue  []*cq // CQs with an event that Wait has not returned; each at most once
	signal chan struct{}
	shut   chan struct{}
	once   sync.Once
}

// wakeups returns the channel for the events of CQs that have none of their own. It is made with the first such CQ, and
// closed with the device.
func (d *Device) wakeups() (*channel, error) {
	d.wakingMu.Lock()
	defer d.wakingMu.Unlock()
	if d.waking == nil {
		h, err := d.newChannel()
		if err != nil {
			return nil, err
		}
		d.waking = h
	}
	return d.waking, nil
}

// CreateChannel makes a completion channel.
func (d *Device) CreateChannel() (ib.Channel, error) {
	h, err := d.newChannel()
	if err != nil {
		return nil, err
	}
	return h, nil
}

func (d *Device) newChannel() (*channel, error) {
	if err := d.err("create channel"); err != nil {
		return nil, err
	}
	r, fds, err := ask[abi.Object](d.link, abi.OpCreateChannel, struct{}{}, 1)
	if err != nil {
		return nil, err
	}
	h := &channel{object: object{dev: d, kind: abi.KindChannel, handle: r.Handle},
		socket: d.link.conn.NewFile(fds[0], "channel"), signal: make(chan struct{}, 1), shut: make(chan struct{})}
	d.keep(r.Handle, h)
	go h.take()
	return h, nil
}

// take reads events until the socket ends.
func (h *channel) take() {
	buf := make([]byte, 64)
	for {
		n, err := h.socket.Read(buf)
		if err != nil || n == 0 {
			return
		}
		m, err := abi.Get[abi.Completion](buf[:n])
		if err != nil {
			continue
		}
		if c, ok := h.dev.find(m.CQ).(*cq); ok {
			h.put(c)
		}
	}
}

// put queues an event of c, unless one is queued already, or wakes a goroutine in c's Wait.
func (h *channel) put(c *cq) {
	if c.waiter != nil {
		c.waiter.Wake()
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !slices.Contains(h.queue, c) {
		h.queue = append(h.queue, c)
	}
	h.wake()
}

// wake wakes one caller of Wait. The caller of wake holds mu.
func (h *channel) wake() {
	select {
	case h.signal <- struct{}{}:
	default:
	}
}

// next takes the oldest event of an open CQ, and returns that CQ; nil if there is none.
func (h *channel) next() *cq {
	h.mu.Lock()
	defer h.mu.Unlock()
	for len(h.queue) > 0 {
		c := h.queue[0]
		h.queue = h.queue[1:]
		if len(h.queue) > 0 {
			h.wake()
		}
		if !c.dead.Load() {
			return c
		}
	}
	return nil
}

// Wait returns a CQ with an event.
func (h *channel) Wait(ctx context.Context) (ib.CQ, error) {
	for {
		if c := h.next(); c != nil {
			return c, nil
		}
		select {
		case <-h.signal:
		case <-h.shut:
			return nil, fmt.Errorf("wait on channel: %w", ib.ErrClosed)
		case <-h.dev.link.gone:
			return nil, h.dev.err("wait on channel")
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Close destroys the channel.
func (h *channel) Close() error {
	if err := h.object.Close(); err != nil {
		return err
	}
	h.end()
	return nil
}

// end makes all waiting calls of Wait return.
func (h *channel) end() {
	h.once.Do(func() {
		close(h.shut)
		_ = h.socket.Close()
	})
}
