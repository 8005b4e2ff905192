package objects_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/internal/objects"
)

// fakeCQ is a CQ with the rules of IBTA 11.4.2.2: one event after Arm, and none for what is in the queue already.
type fakeCQ struct {
	ib.CQ
	*objects.Waiter
	gone chan struct{}

	mu     sync.Mutex
	queue  []ib.WC
	armed  bool
	armErr error
	onArm  func() // called before the CQ is armed
}

func newFake() *fakeCQ { return &fakeCQ{Waiter: objects.NewWaiter(), gone: make(chan struct{})} }

func (c *fakeCQ) complete(id uint64) {
	c.mu.Lock()
	c.queue = append(c.queue, ib.WC{ID: id})
	armed := c.armed
	c.armed = false
	c.mu.Unlock()
	if armed {
		c.Wake()
	}
}

func (c *fakeCQ) Poll(wcs []ib.WC) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := copy(wcs, c.queue)
	c.queue = c.queue[n:]
	return n, nil
}

func (c *fakeCQ) Arm(bool) error {
	if c.onArm != nil {
		c.onArm()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.armed = true
	return c.armErr
}

func (c *fakeCQ) Close() error {
	c.Waiter.Close()
	return nil
}

func (c *fakeCQ) Wait(ctx context.Context, wcs []ib.WC) (int, error) {
	return c.Waiter.Wait(ctx, c, c.gone, wcs)
}

// TestArrivesBeforeArm: what completes between Poll and Arm raises no event, and is found nevertheless.
func TestArrivesBeforeArm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFake()
		c.onArm = sync.OnceFunc(func() { c.complete(7) })
		if wc, err := ib.WaitOne(t.Context(), c); err != nil || wc.ID != 7 {
			t.Errorf("%+v, %v; want ID 7", wc, err)
		}
	})
}

// TestStaleEvent: an event does not end Wait if somebody else has polled its completion already.
func TestStaleEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFake()
		c.Wake()
		got := make(chan uint64)
		go func() {
			wc, _ := ib.WaitOne(t.Context(), c)
			got <- wc.ID
		}()
		synctest.Wait()
		c.complete(3)
		if id := <-got; id != 3 {
			t.Errorf("got the completion of %d, want that of 3", id)
		}
	})
}

// TestTwoWaiters: an event wakes one goroutine and leaves the CQ not armed, so the other one must arm it again.
func TestTwoWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFake()
		got := make(chan uint64, 2)
		for range cap(got) {
			go func() {
				wc, _ := ib.WaitOne(t.Context(), c)
				got <- wc.ID
			}()
		}
		for id := range uint64(2) {
			synctest.Wait()
			c.complete(id)
			if woken := <-got; woken != id {
				t.Errorf("completion of %d, want %d", woken, id)
			}
		}
	})
}

// TestWaiters: many goroutines wait, completions come one by one and in bunches, and many calls end by their context.
func TestWaiters(t *testing.T) {
	const goroutines, each = 8, 100
	synctest.Test(t, func(t *testing.T) {
		c := newFake()
		var done sync.WaitGroup
		for i := range goroutines {
			done.Go(func() {
				for n := 0; n < each; {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+(i+n)%3)*time.Millisecond)
					_, err := ib.WaitOne(ctx, c)
					cancel()
					switch {
					case err == nil:
						n++
					case !errors.Is(err, context.DeadlineExceeded):
						t.Error(err)
						return
					}
				}
			})
		}
		for id := range uint64(goroutines * each) {
			c.complete(id)
			if id%5 == 0 {
				time.Sleep(time.Millisecond)
			}
		}
		done.Wait()
	})
}

// TestEnds: what ends a wait, and what the error says. A completion that is there comes first.
func TestEnds(t *testing.T) {
	closed := errors.Join(errors.New("poll CQ"), ib.ErrClosed)
	for name, c := range map[string]struct {
		end  func(*fakeCQ, context.CancelFunc)
		want error
	}{
		"context": {func(_ *fakeCQ, cancel context.CancelFunc) { cancel() }, context.Canceled},
		"CQ":      {func(c *fakeCQ, _ context.CancelFunc) { c.armErr = closed; _ = c.Close() }, closed},
		"device":  {func(c *fakeCQ, _ context.CancelFunc) { c.armErr = closed; close(c.gone) }, closed},
		"channel": {func(c *fakeCQ, _ context.CancelFunc) { close(c.gone) }, ib.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cq := newFake()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				ended := make(chan error, 3)
				for range cap(ended) { // one sleeps, the others wait for their turn
					go func() {
						_, err := ib.WaitOne(ctx, cq)
						ended <- err
					}()
				}
				synctest.Wait()
				cq.mu.Lock()
				c.end(cq, cancel)
				cq.mu.Unlock()
				for range cap(ended) {
					if err := <-ended; !errors.Is(err, c.want) {
						t.Errorf("ended with %v, want %v", err, c.want)
					}
				}
				cq.complete(9)
				if wc, err := ib.WaitOne(ctx, cq); err != nil || wc.ID != 9 {
					t.Errorf("what is there: %+v, %v; want ID 9", wc, err)
				}
			})
		})
	}
}

// TestCompletions: a failed request goes on with its error, the end of the context ends the iteration, and a loop that
// is left loses nothing.
func TestCompletions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFake()
		c.queue = []ib.WC{{ID: 1}, {ID: 2, Status: ib.WCRemAccessErr}, {ID: 3}}
		for wc, err := range ib.Completions(t.Context(), c) {
			if want := wc.ID == 2; want != errors.Is(err, &ib.WCError{Status: ib.WCRemAccessErr}) {
				t.Errorf("completion %d: %v, want %v: %v", wc.ID, err, ib.WCRemAccessErr, want)
			}
			if wc.ID == 2 {
				break
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var errs []error
		for _, err := range ib.Completions(ctx, c) {
			errs = append(errs, err)
		}
		if len(errs) != 2 || errs[0] != nil || !errors.Is(errs[1], context.DeadlineExceeded) {
			t.Errorf("%v, want the third completion and the end", errs)
		}
	})
}
