// Package waiting tells people what a tool waits for, once that takes about a second.
package waiting

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/neigh"
)

// After is how long a tool waits without a word.
const After = 900 * time.Millisecond

// For prints what is waited for, unless stop is called before. If the next hop to host is silent, it says so. Once stop
// has returned, it prints nothing. Stop may be called more than once.
func For(w io.Writer, host, format string, args ...any) (stop func()) {
	var mu sync.Mutex
	stopped := false
	t := time.AfterFunc(After, func() {
		// The name lookup of silence may take seconds: stop does not wait for it.
		text := fmt.Sprintf("waiting for %s%s\n", fmt.Sprintf(format, args...), silence(host))
		mu.Lock()
		defer mu.Unlock()
		if !stopped {
			_, _ = io.WriteString(w, text)
		}
	})
	return func() {
		t.Stop()
		mu.Lock()
		defer mu.Unlock()
		stopped = true
	}
}

// Error is the error of a wait that the end of a context has ended.
type Error struct {
	For string // what was waited for: "a client on TCP port 18515"
	Err error  // of the context
}

func (e *Error) Error() string { return fmt.Sprintf("waiting for %s: %v", e.For, e.Err) }

// Awaited returns For.
func (e *Error) Awaited() string { return e.For }

// Unwrap returns the context's error.
func (e *Error) Unwrap() error { return e.Err }

// Ended returns the error of a wait that failed: an *Error if ctx has ended, otherwise err.
func Ended(ctx context.Context, err error, format string, args ...any) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	return &Error{fmt.Sprintf(format, args...), ctx.Err()}
}

// silence says that the next hop to a host does not answer, if that is so.
func silence(host string) string {
	addr, err := net.ResolveUDPAddr("udp", net.JoinHostPort(host, strconv.Itoa(link.Port)))
	if err != nil {
		return ""
	}
	hop, netif, silent := neigh.Silent(addr.AddrPort().Addr().Unmap())
	switch {
	case !silent:
		return ""
	case hop.Is4():
		return fmt.Sprintf("; %v does not answer ARP on %s: is it up?", hop, netif)
	}
	return fmt.Sprintf("; %v does not answer neighbour discovery on %s: is it up?", hop, netif)
}

// Completions waits for completions, for at most limit, and prints what it waits for if that takes long and there is
// much of the limit left. It returns how many are in wcs. The error matches context.DeadlineExceeded when the limit has
// passed.
func Completions(ctx context.Context, cq ib.CQ, wcs []ib.WC, limit time.Duration, w io.Writer, format string,
	args ...any) (int, error) {
	quiet := After
	if limit < 2*After {
		quiet = limit
	}
	n, err := within(ctx, cq, wcs, quiet)
	if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil || quiet == limit {
		return n, err
	}
	fmt.Fprintf(w, "waiting for "+format+"\n", args...)
	return within(ctx, cq, wcs, limit-quiet)
}

func within(ctx context.Context, cq ib.CQ, wcs []ib.WC, limit time.Duration) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return cq.Wait(ctx, wcs)
}
