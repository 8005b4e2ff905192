package server

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/daemon/client"
	"github.com/goroce/goroce/tests/require"
)

// soon fails the test if f does not return.
func soon(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Fatalf("%s waits for memory that does not move", what)
	}
}

// TestHangingMemory checks that nothing else waits while a client deregisters memory that blocks:
// neither the listing of all clients' objects, nor another client, nor the end of the server.
func TestHangingMemory(t *testing.T) {
	s, listener := newServer(t)
	s.SetProcesses(true, true)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, listener) }()
	c := newStuckClient(t, listener.Addr().String(), (*stuckClient).sendStuck)
	deregistered := make(chan error, 1)
	go func() { deregistered <- c.mapped.Close() }()
	for gone := false; !gone; { // until the session is dropped, at least
		soon(t, "the list of MRs", func() { s.MRs() })
		soon(t, "the list of QPs", func() { s.QPs() })
		soon(t, "the list of users", func() { s.Usage() })
		soon(t, "a change of limits", func() { s.SetLimits(Limits{}, Limits{}) })
		soon(t, "another client", func() {
			other, err := client.Dial(t.Context(), client.Options{Socket: listener.Addr().String()})
			if err == nil {
				err = other.Close()
			}
			if err != nil {
				t.Error(err)
			}
		})
		select {
		case err := <-deregistered:
			gone = errors.Is(err, client.ErrGone) || errors.Is(err, ib.ErrClosed)
			if !gone {
				t.Fatalf("memory that is in use is deregistered: %v", err)
			}
		default:
		}
	}
	cancel()
	soon(t, "the end of the server", func() {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	must(t, c.fault.Resolve(c.pages))
	require.Until(t, "the user holds nothing", func() bool { return len(s.Usage()) == 0 })
}
