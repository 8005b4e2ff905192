package server

import (
	"context"
	"time"
)

// AwaitIdle waits until the server has had no client for as long as limit, or ctx ends. Once it has returned nil, the
// server admits no client: it closes each new connection without a reply to hello.
func (s *Server) AwaitIdle(ctx context.Context, limit time.Duration) error {
	for {
		s.mu.Lock()
		rest := limit - time.Since(s.lastLeft)
		if len(s.sessions) > 0 {
			rest = limit
		}
		// Under the lock that enter takes: a client that comes now is either seen above, or finds the server closed.
		if rest <= 0 {
			s.closed = true
		}
		s.mu.Unlock()
		if rest <= 0 {
			return nil
		}
		select {
		case <-time.After(rest):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
