package socket

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"
)

// patience is how long Connect tries while the daemon has no room: as long as the C library.
const patience = 30 * time.Second

// Connect connects to one of the daemon's sockets. If more clients are waiting than its backlog has room for, the
// kernel refuses a connect that does not wait, as all connects of Go programs, with EAGAIN: then Connect tries again.
func Connect(ctx context.Context, k Kind, path string) (*net.UnixConn, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	network := "unixpacket"
	if k == Admin {
		network = "unix"
	}
	var dialer net.Dialer
	var full error
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		c, err := dialer.DialContext(ctx, network, path)
		if err == nil {
			return c.(*net.UnixConn), nil
		}
		timeout := net.Error(nil) // of the dialer, which may notice the deadline a moment before ctx does
		switch {
		case errors.Is(err, syscall.EAGAIN):
			full = err
		case !errors.As(err, &timeout) || !timeout.Timeout():
			return nil, err
		}
		select {
		case <-time.After(wait):
			continue
		case <-ctx.Done():
		}
		if full == nil {
			return nil, fmt.Errorf("no answer: %w", ended(ctx))
		}
		return nil, fmt.Errorf("too many clients are waiting for the daemon: %w: %w", ended(ctx), full)
	}
}

// ended returns why ctx has ended: its error, and its cause if that is another.
func ended(ctx context.Context) error {
	if cause := context.Cause(ctx); cause != ctx.Err() {
		return fmt.Errorf("%w: %w", ctx.Err(), cause)
	}
	return ctx.Err()
}
