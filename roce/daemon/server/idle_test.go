package server

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestAwaitIdle checks that the wait ends so long after the last client has left, and not while one is there.
func TestAwaitIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{sessions: map[*session]struct{}{}, lastLeft: time.Now()}
		start := time.Now()
		first, second := &session{}, &session{}
		for _, step := range []struct {
			at time.Duration
			do func()
		}{
			{30 * time.Second, func() { s.enter(first) }},
			{50 * time.Second, func() { s.enter(second) }},
			{130 * time.Second, func() { s.exit(second) }},
			{200 * time.Second, func() { s.exit(first) }},
			{230 * time.Second, func() { s.enter(second); s.exit(second) }},
		} {
			time.AfterFunc(step.at, step.do)
		}
		if err := s.AwaitIdle(t.Context(), time.Minute); err != nil || time.Since(start) != 290*time.Second {
			t.Errorf("idle after %v, %v; want 4m50s", time.Since(start), err)
		}
		if s.enter(first) || s.Clients() != 0 {
			t.Error("a client is admitted afterwards")
		}

		s = &Server{sessions: map[*session]struct{}{}, lastLeft: time.Now()}
		s.enter(first)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := s.AwaitIdle(ctx, time.Minute); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("with a client: %v", err)
		}
	})
}
