// Package objects has what the objects of all devices have in common: waiting for the completions of a CQ, and the SGE
// of a part of a region.
package objects

import (
	"context"
	"fmt"
	"sync"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// Waiter makes goroutines wait for completions of a CQ without a channel. The device calls Wake with each event of the
// CQ.
type Waiter struct {
	turn   chan struct{} // full while a goroutine arms and sleeps
	event  chan struct{} // full after an event
	closed chan struct{} // closed with the CQ
	once   sync.Once
}

// NewWaiter returns the Waiter of a new CQ.
func NewWaiter() *Waiter {
	return &Waiter{turn: make(chan struct{}, 1), event: make(chan struct{}, 1), closed: make(chan struct{})}
}

// Wake wakes the goroutine that waits. It does not block.
func (w *Waiter) Wake() {
	select {
	case w.event <- struct{}{}:
	default:
	}
}

// Close ends all calls of Wait. The CQ must refuse Arm already.
func (w *Waiter) Close() { w.once.Do(func() { close(w.closed) }) }

// Wait polls cq until it has a completion, which may be there already. gone is closed when the device ends; cq must
// refuse Arm by then.
//
// An event wakes one goroutine, and leaves the CQ not armed. So only the goroutine whose turn it is arms and sleeps;
// the next one polls and arms for itself.
func (w *Waiter) Wait(ctx context.Context, cq ib.CQ, gone <-chan struct{}, wcs []ib.WC) (int, error) {
	const op = "wait on CQ"
	if len(wcs) == 0 {
		return 0, driver.Refuse(op, "len(wcs)", 0, "1 at least: room for the completions", ib.ErrInvalid)
	}
	if n, err := cq.Poll(wcs); n > 0 || err != nil {
		return n, err
	}
	select {
	case w.turn <- struct{}{}:
		defer func() { <-w.turn }()
	case <-gone:
		return 0, over(op, cq)
	case <-w.closed:
		return 0, over(op, cq)
	case <-ctx.Done():
		return 0, fmt.Errorf("%s: no completion: %w", op, ctx.Err())
	}
	for {
		if n, err := cq.Poll(wcs); n > 0 || err != nil {
			return n, err
		}
		if err := cq.Arm(false); err != nil {
			return 0, err
		}
		if n, err := cq.Poll(wcs); n > 0 || err != nil { // what has arrived before Arm raises no event
			return n, err
		}
		select {
		case <-w.event:
		case <-gone:
			return 0, over(op, cq)
		case <-w.closed:
			return 0, over(op, cq)
		case <-ctx.Done():
			return 0, fmt.Errorf("%s: no completion: %w", op, ctx.Err())
		}
	}
}

// over returns why cq or its device has ended.
func over(op string, cq ib.CQ) error {
	if err := cq.Arm(false); err != nil {
		return err
	}
	return fmt.Errorf("%s: %w", op, ib.ErrClosed)
}

// HasChannel is the error of CQ.Wait if the events of the CQ go to a channel.
func HasChannel() error {
	return driver.Refuse("wait on CQ", "CQInit.Channel", "not nil",
		"nil; the events of this CQ go to its channel, so use Channel.Wait", ib.ErrState)
}
