package perf

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/goroce/goroce/ib"
)

var (
	// ErrSilent: nothing has happened for as long as Options.Timeout.
	ErrSilent = errors.New("the peer fell silent")
	// ErrPeerLeft: the peer ended before it had done its part.
	ErrPeerLeft = errors.New("the peer has left")
	// ErrData: a message was not what it should be.
	ErrData = errors.New("unexpected message")
)

// Polling goes on without a look at the clock; these are the looks in between.
const (
	yieldEach = 16   // empty polls: let other goroutines run, of which the peer may be one
	lookEach  = 1024 // empty polls: look whether waiting is of use

	// grace is how long after the peer's end something may still arrive.
	grace = 200 * time.Millisecond
	// nap bounds a sleep for events, after which the rest is looked at.
	nap = 50 * time.Millisecond
)

// patience waits for something to happen.
type patience struct {
	misses int
	since  time.Time     // the first look that found nothing; zero before
	quiet  time.Duration // from then to the last look
}

func (p *patience) hit() {
	if p.misses > 0 {
		*p = patience{}
	}
}

// miss is called after each look that found nothing, and reports whether it is time
// for a closer one.
func (p *patience) miss() bool {
	p.misses++
	if p.misses%yieldEach == 0 {
		runtime.Gosched()
	}
	return p.misses%lookEach == 0
}

// look notes for how long nothing happened.
func (p *patience) look(now time.Time) {
	if p.since.IsZero() {
		p.since = now
	}
	p.misses = max(p.misses, 1)
	p.quiet = now.Sub(p.since)
}

// poll moves completions to e.wcs and returns how many, which may be none.
func (e *endpoint) poll(ctx context.Context) (int, error) {
	n, err := e.cq.Poll(e.wcs[:])
	switch {
	case err != nil:
		return 0, err
	case n > 0:
		e.patience.hit()
		return n, nil
	case e.o.Events:
		return 0, e.sleep(ctx)
	}
	return 0, e.miss(ctx)
}

// miss is called when nothing was found.
func (e *endpoint) miss(ctx context.Context) error {
	if !e.patience.miss() {
		return nil
	}
	return e.look(ctx)
}

// sleep waits for an event and asks for the next. It may be that of a completion
// which was polled before. The caller polls again, as completions that came before
// Arm make no event.
func (e *endpoint) sleep(ctx context.Context) error {
	wait, cancel := context.WithTimeout(ctx, nap)
	defer cancel()
	switch _, err := e.channel.Wait(wait); {
	case err == nil:
		return e.cq.Arm(false)
	case !errors.Is(err, context.DeadlineExceeded):
		return err
	}
	return e.look(ctx)
}

// look gives up where waiting is of no use.
func (e *endpoint) look(ctx context.Context) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	e.patience.look(time.Now())
	switch quiet := e.patience.quiet; {
	case quiet > e.o.Timeout:
		return e.silent(quiet)
	case quiet > grace && e.meeting.peer() == gone:
		return fmt.Errorf("%w before it had done its part; what does it say?", ErrPeerLeft)
	}
	return nil
}

func (e *endpoint) silent(quiet time.Duration) error {
	err := fmt.Errorf("%w: nothing from %s for %v", ErrSilent, e.remote[0].gid.Addr(), quiet.Round(time.Millisecond))
	if e.o.lossy() {
		return fmt.Errorf("%w (%v does not repeat what was lost; if nothing ever arrives look for a firewall on UDP "+
			"port 4791)", err, e.o.Service)
	}
	return err
}

// explain adds to a failed completion what it most likely means.
func (e *endpoint) explain(err error) error {
	peer := e.remote[0].gid.Addr()
	var wc *ib.WCError
	if !errors.As(err, &wc) {
		return err
	}
	switch wc.Status {
	case ib.WCWRFlushErr:
		return fmt.Errorf("%w: the connection to %s ended: %w; what does it say there?", ErrPeerLeft, peer, err)
	case ib.WCRetryExcErr:
		return fmt.Errorf("%s does not answer on UDP port 4791: %w; look for a firewall, a wrong GID (-x) or an end "+
			"that has failed there", peer, err)
	case ib.WCRNRRetryExcErr:
		return fmt.Errorf("%s posts no receives: %w; both ends need the same operation and number of messages (-n, -D)",
			peer, err)
	case ib.WCLocLenErr, ib.WCRemInvReqErr, ib.WCRemAccessErr:
		return fmt.Errorf("%s: %w; both ends need the same operation, size (-s, -a) and service (-c)", peer, err)
	}
	return fmt.Errorf("%s: %w", peer, err)
}
