package perf

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/goroce/goroce/cmd/goroced/internal/pathmtu"
	"github.com/goroce/goroce/cmd/goroced/internal/waiting"
	"github.com/goroce/goroce/ib"
)

var (
	// ErrSilent: nothing has happened for Options.Timeout.
	ErrSilent = errors.New("the peer fell silent")
	// ErrPeerLeft: the peer has ended before its part was done.
	ErrPeerLeft = errors.New("the peer has left")
	// ErrData: a message was not as expected.
	ErrData = errors.New("unexpected message")
)

// Polling does not read the clock each time; these are the intervals.
const (
	yieldEach = 16   // empty polls: let other goroutines run, one of which may be the peer
	lookEach  = 1024 // empty polls: check whether waiting still makes sense

	// grace is how long after the peer's end something may still arrive.
	grace = 200 * time.Millisecond
	// nap limits a wait for completions, after which everything else is checked.
	nap = 50 * time.Millisecond
)

// patience decides how long to wait for something to happen.
type patience struct {
	misses int
	last   time.Time     // the last check that found nothing; zero if something has been found since
	peer   presence      // of the peer at that check
	quiet  time.Duration // how long nothing was found and peer was the same
	told   bool          // people know that nothing is found
}

func (p *patience) hit() {
	if p.misses > 0 {
		*p = patience{}
	}
}

// look records how long nothing has happened. Between two checks at most a nap counts: if more
// time has passed, this process did not run, and what has arrived meanwhile was not polled. The
// count begins again when the peer is done, as its last messages may be on their way.
func (p *patience) look(now time.Time, peer presence) {
	switch {
	case p.last.IsZero() || peer != p.peer:
		p.quiet = 0
	default:
		p.quiet += min(now.Sub(p.last), nap)
	}
	p.last, p.peer = now, peer
	p.misses = max(p.misses, 1)
}

// poll moves completions to e.wcs and returns their number, which may be 0.
func (e *endpoint) poll(ctx context.Context) (int, error) {
	n, err := e.cq.Poll(e.wcs[:])
	switch {
	case err != nil:
		return 0, err
	case n > 0:
		e.patience.hit()
		return n, nil
	case e.o.Events:
		return e.sleep(ctx)
	}
	return 0, e.miss(ctx)
}

// miss must be called after each poll that has found nothing.
func (e *endpoint) miss(ctx context.Context) error {
	p := &e.patience
	p.misses++
	if p.misses%yieldEach == 0 {
		e.o.yield.Do()
	}
	if p.misses%lookEach == 0 {
		return e.look(ctx)
	}
	return nil
}

// sleep waits for completions, up to a nap. It moves them to e.wcs and returns their number, which may be 0.
func (e *endpoint) sleep(ctx context.Context) (int, error) {
	wait, cancel := context.WithTimeout(ctx, nap)
	defer cancel()
	n, err := e.cq.Wait(wait, e.wcs[:])
	switch {
	case err == nil:
		e.patience.hit()
		return n, nil
	case !errors.Is(err, context.DeadlineExceeded):
		return 0, err
	}
	return 0, e.look(ctx)
}

// look returns an error if waiting makes no sense any more.
func (e *endpoint) look(ctx context.Context) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	e.patience.look(time.Now(), e.meeting.peer())
	quiet := e.patience.quiet
	if quiet > waiting.After && !e.patience.told {
		e.patience.told = true
		fmt.Fprintf(e.o.Log, "waiting for %v to go on, %v at most\n", e.remote[0].gid.Addr(), e.o.Timeout)
	}
	switch {
	case quiet > e.o.Timeout:
		return e.silent(quiet)
	case quiet > grace && e.patience.peer == gone:
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

// explain adds the most likely cause to the error of a failed completion.
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
			"that has failed there%s", peer, err, pathmtu.Hint(e.o.MTU))
	case ib.WCRNRRetryExcErr:
		return fmt.Errorf("%s posts no receives: %w; both ends need the same operation and number of messages (-n, -D)",
			peer, err)
	case ib.WCLocLenErr, ib.WCRemInvReqErr, ib.WCRemAccessErr:
		return fmt.Errorf("%s: %w; both ends need the same operation, size (-s, -a) and service (-c)", peer, err)
	}
	return fmt.Errorf("%s: %w", peer, err)
}
