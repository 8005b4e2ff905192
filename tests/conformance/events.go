package conformance

import (
	"context"
	"sync"

	"github.com/goroce/goroce/ib"
)

// hub distributes a device's asynchronous events to the halves that run on it: NextEvent belongs to the device, and
// both halves of a case may use one device.
type hub struct {
	dev    ib.Device
	users  int
	cancel context.CancelFunc
	done   chan struct{}

	mu   sync.Mutex
	ends map[*End]struct{}
}

var hubs = struct {
	sync.Mutex
	of map[ib.Device]*hub
}{of: map[ib.Device]*hub{}}

// openHub returns the device's hub.
func openHub(dev ib.Device) *hub {
	hubs.Lock()
	defer hubs.Unlock()
	h := hubs.of[dev]
	if h == nil {
		ctx, cancel := context.WithCancel(context.Background())
		h = &hub{dev: dev, cancel: cancel, done: make(chan struct{}), ends: map[*End]struct{}{}}
		hubs.of[dev] = h
		go h.run(ctx)
	}
	h.users++
	return h
}

// close stops reading the device's events when the last user has closed the hub.
func (h *hub) close() {
	hubs.Lock()
	defer hubs.Unlock()
	if h.users--; h.users == 0 {
		delete(hubs.of, h.dev)
		h.cancel()
		<-h.done
	}
}

func (h *hub) run(ctx context.Context) {
	defer close(h.done)
	for {
		ev, err := h.dev.NextEvent(ctx)
		if err != nil {
			return
		}
		h.mu.Lock()
		for e := range h.ends {
			e.raise(ev)
		}
		h.mu.Unlock()
	}
}

func (h *hub) add(e *End) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ends[e] = struct{}{}
}

func (h *hub) remove(e *End) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.ends, e)
}

func (e *End) raise(ev ib.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.events = append(e.events, ev)
	close(e.raised)
	e.raised = make(chan struct{})
}

// claim takes an event of that type of an object (nil for any object) if there is one.
func (e *End) claim(t ib.EventType, object any) (ok bool, changed chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, ev := range e.events {
		if ev.Type != t || object != nil && object != any(ev.QP) && object != any(ev.CQ) && object != any(ev.SRQ) {
			continue
		}
		e.events = append(e.events[:i:i], e.events[i+1:]...)
		return true, e.raised
	}
	return false, e.raised
}

// event waits for an event of an object.
func (e *End) event(t ib.EventType, object any) {
	lacking := e.apply(func(r rule) bool { return !r.Remote && r.Effect.Kind == effectEvent && r.Effect.Event == t })
	for {
		ok, changed := e.claim(t, object)
		if ok && lacking {
			e.fatalf("stale deviation: the event %v came", t)
		}
		if ok || lacking {
			return
		}
		select {
		case <-changed:
		case <-e.ctx.Done():
			e.fatalf("no event %v: %w; there came %v", t, context.Cause(e.ctx), e.eventTypes())
		}
	}
}

// noEvent fails the half if there is an event of that type of the object.
func (e *End) noEvent(t ib.EventType, object any) {
	if ok, _ := e.claim(t, object); ok {
		e.fatalf("an event %v that nothing calls for", t)
	}
}

func (e *End) eventTypes() []ib.EventType {
	e.mu.Lock()
	defer e.mu.Unlock()
	var types []ib.EventType
	for _, ev := range e.events {
		types = append(types, ev.Type)
	}
	return types
}

// noAlarm fails the half if there was an error event that no case has claimed.
func (e *End) noAlarm() {
	for _, t := range []ib.EventType{ib.EventDeviceFatal, ib.EventSRQErr} {
		if ok, _ := e.claim(t, nil); ok {
			e.fatalf("an event %v that nothing calls for", t)
		}
	}
}
