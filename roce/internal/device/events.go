package device

import (
	"context"
	"fmt"
	"sync"

	"github.com/goroce/goroce/ib"
)

// eventQueue holds asynchronous events until NextEvent takes them. It holds up to
// eventBacklog events; when it is full, new events are lost, and counted.
type eventQueue struct {
	ready  chan ib.Event
	closed chan struct{}
	once   sync.Once
}

func newEventQueue() *eventQueue {
	return &eventQueue{ready: make(chan ib.Event, eventBacklog), closed: make(chan struct{})}
}

// put adds an event and reports whether there was room.
func (e *eventQueue) put(ev ib.Event) bool {
	select {
	case e.ready <- ev:
		return true
	// Callers may hold the lock of a shard: a program that does not read its events must not stop the port.
	default:
		return false
	}
}

// next waits for an event, for the end of ctx or for that of the device.
func (e *eventQueue) next(ctx context.Context) (ib.Event, error) {
	// What is there comes first, even if the device is closed: the reason may be among it.
	select {
	case ev := <-e.ready:
		return ev, nil
	default:
	}
	select {
	case ev := <-e.ready:
		return ev, nil
	case <-e.closed:
		return ib.Event{}, fmt.Errorf("wait for an event of the device: %w", ib.ErrClosed)
	case <-ctx.Done():
		return ib.Event{}, ctx.Err()
	}
}

// close makes next return; ready stays open, since shards may put events at any time.
func (e *eventQueue) close() { e.once.Do(func() { close(e.closed) }) }
