package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/goroce/goroce/ib"
)

// End is a running half: its device, the connection to the other half, and the objects that the half has created. Its
// methods end the half on an error.
type End struct {
	ctx   context.Context // ends at the deadline, and when the other half fails
	s     *session
	role  Role
	rules []rule

	dev  ib.Device
	attr ib.DeviceAttr
	port ib.PortAttr
	peer *hello

	mu      sync.Mutex
	made    []closer // in the order of their creation
	applied map[int]bool
	events  []ib.Event    // not claimed yet
	raised  chan struct{} // closed and replaced when events change

	thePD ib.PD
}

// closer is an object to close after the case.
type closer struct {
	what  string
	close func() error
}

func newEnd(ctx context.Context, s *session, role Role, rules []rule) *End {
	return &End{ctx: ctx, s: s, role: role, rules: rules, dev: s.party.Device, attr: s.me.Attr, port: s.me.Port,
		peer: &s.peer, applied: map[int]bool{}, raised: make(chan struct{})}
}

// failure and skipped are the panics of fatalf and skipf; End.call recovers them.
type failure struct{ error }

type skipped string

// fatalf ends the half with an error. Goroutines that a half starts may call it only under parallel.
func (e *End) fatalf(format string, args ...any) { panic(failure{fmt.Errorf(format, args...)}) }

// skipf ends both halves, because the rule does not apply to these devices.
func (e *End) skipf(format string, args ...any) { panic(skipped(fmt.Sprintf(format, args...))) }

// must ends the half if err is not nil.
func (e *End) must(err error, format string, args ...any) {
	if err != nil {
		e.fatalf("%s: %w", fmt.Sprintf(format, args...), err)
	}
}

// tell sends a value to the other half, which gets it with hear.
func (e *End) tell(name string, v any) { e.must(e.s.tell(name, v), "tell %s", name) }

// hear waits for a value with that name.
func hear[T any](e *End, name string) (v T) {
	if err := e.s.hear(e.ctx, name, &v); err != nil {
		panic(failure{err})
	}
	return v
}

// sync waits until both halves have called it.
func (e *End) sync(name string) {
	e.tell("at "+name, true)
	hear[bool](e, "at "+name)
}

// alive ends the half if its time is over. Loops that do not wait otherwise call it.
func (e *End) alive() {
	if e.ctx.Err() != nil {
		panic(failure{context.Cause(e.ctx)})
	}
}

// linger waits for something that must not happen, or that cannot be seen from here. Nothing afterwards may depend on
// the time.
func (e *End) linger(d time.Duration) {
	select {
	case <-time.After(d):
	case <-e.ctx.Done():
		e.alive()
	}
}

// parallel runs f(0) to f(n-1) concurrently and waits for all. The first failure ends the half.
func (e *End) parallel(n int, f func(i int)) {
	verdicts := make(chan verdict, n)
	for i := range n {
		go func() { verdicts <- e.call(func() { f(i) }) }()
	}
	var first verdict
	for range n {
		if v := <-verdicts; first.Error == "" && !first.Echo {
			first = v
		}
	}
	switch {
	case first.Echo:
		panic(failure{&peerError{first.Error}})
	case first.Error != "":
		panic(failure{errors.New(first.Error)})
	}
}

// own registers an object to be closed after the case.
func (e *End) own(what string, close func() error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.made = append(e.made, closer{what, close})
}

// closeAll closes the objects of the case, last first. Each Close must succeed, also for objects that the case has
// closed itself, because Close is idempotent.
func (e *End) closeAll() verdict {
	done := make(chan verdict, 1)
	go func() {
		done <- e.call(func() {
			var errs []error
			for i := len(e.made) - 1; i >= 0; i-- {
				if err := e.made[i].close(); err != nil {
					errs = append(errs, fmt.Errorf("close %s: %w", e.made[i].what, err))
				}
			}
			if err := errors.Join(errs...); err != nil {
				panic(failure{err})
			}
			e.noAlarm()
		})
	}()
	select {
	case v := <-done:
		return v
	case <-time.After(2 * grace):
		return verdict{Error: "closing the objects of the case does not return", Broken: true}
	}
}

// deviates reports whether a rule allows a status instead of another, and records its use.
func (e *End) deviates(want, got ib.WCStatus) bool {
	return e.apply(func(r rule) bool {
		return r.Effect.Kind == effectStatus && r.Effect.Want == want && r.Effect.Got == got
	})
}

// apply records the rules that match, and reports whether there are any.
func (e *End) apply(match func(rule) bool) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	found := false
	for _, r := range e.rules {
		if match(r) {
			e.applied[r.Row] = true
			found = true
		}
	}
	return found
}

// usedRules returns the rows that were used.
func (e *End) usedRules() []int {
	var rows []int
	for row := range e.applied {
		rows = append(rows, row)
	}
	return rows
}
