package conformance

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

// grace is how long a half may go on after its deadline. A half that is still running then hangs in the device.
const grace = 5 * time.Second

var errDeadline = errors.New("the case ran out of time")

// play runs one half of a case, from the order to closing its objects. When it returns, it has sent "finished" and
// "closed" to the other side.
func (s *session) play(c *Case, role Role, limit time.Duration, rules []rule) (body, closing verdict) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	deadline := time.AfterFunc(limit, func() { cancel(errDeadline) })
	defer deadline.Stop()
	paired := role != Alone
	if paired {
		go s.endWithPeer(ctx, cancel)
	}

	e := newEnd(ctx, s, role, rules)
	s.hub.add(e)
	defer s.hub.remove(e)
	body = e.perform(c.half(role))
	if err := s.wire.send(message{Finished: &body}); err != nil {
		body = failed(err)
	}
	if body.Broken {
		return body, body
	}
	// The other half may still need our objects.
	if paired {
		late, stop := context.WithTimeoutCause(context.Background(), limit+2*grace, errDeadline)
		_ = s.await(late, func(b *mailbox) bool { return b.finished != nil })
		stop()
	}
	closing = e.closeAll()
	closing.Used = e.usedRules()
	if err := s.wire.send(message{Closed: &closing}); err != nil {
		closing = failed(err)
	}
	return body, closing
}

// endWithPeer cancels a half when the other one has failed.
func (s *session) endWithPeer(ctx context.Context, cancel context.CancelCauseFunc) {
	var v verdict
	err := s.await(ctx, func(b *mailbox) bool {
		if b.finished != nil {
			v = *b.finished
		}
		return v.Error != "" || v.Skip != ""
	})
	switch {
	case ctx.Err() != nil:
	case err != nil:
		cancel(err)
	case v.Skip != "":
		cancel(&peerError{"the other half skips: " + v.Skip})
	default:
		cancel(&peerError{"the other half failed"})
	}
}

// perform calls f and waits for it, until some time after the deadline at most.
func (e *End) perform(f func(*End)) verdict {
	done := make(chan verdict, 1)
	go func() { done <- e.call(func() { f(e) }) }()
	select {
	case v := <-done:
		return v
	case <-e.ctx.Done():
	}
	select {
	case v := <-done:
		return v
	case <-time.After(grace):
		return verdict{Error: fmt.Sprintf("the %s half does not return: %v", e.role, context.Cause(e.ctx)),
			Broken: true}
	}
}

// call calls f, which may panic in End.fatalf or End.skipf.
func (e *End) call(f func()) (v verdict) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case failure:
			v = failed(p.error)
		case skipped:
			v = verdict{Skip: string(p)}
		default:
			v = verdict{Error: fmt.Sprintf("panic: %v\n%s", p, debug.Stack())}
		}
	}()
	f()
	return verdict{}
}

func failed(err error) verdict {
	var peer *peerError
	return verdict{Error: err.Error(), Echo: errors.As(err, &peer)}
}
