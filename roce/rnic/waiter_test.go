//go:build rnic && cgo

package rnic

import (
	"context"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
)

// TestWaiter checks that a wait ends when the descriptor is readable, when its context ends,
// and when the waiter is closed, and that a canceled wait does not affect the next one.
func TestWaiter(t *testing.T) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	w, err := newWaiter(fds[0], "pipe")
	if err != nil {
		t.Fatal(err)
	}
	var entered chan struct{} // closed when take has found nothing
	take := func() (bool, error) {
		_, err := unix.Read(fds[0], make([]byte, 1))
		if errors.Is(err, unix.EAGAIN) {
			if entered != nil {
				close(entered)
				entered = nil
			}
			return false, nil
		}
		return err == nil, err
	}
	// during waits, and calls f meanwhile.
	during := func(ctx context.Context, f func()) error {
		found := make(chan struct{})
		entered = found
		done := make(chan error)
		go func() { done <- w.wait(ctx, take) }()
		<-found
		f()
		return <-done
	}
	write := func() {
		if _, err := unix.Write(fds[1], []byte{1}); err != nil {
			t.Error(err)
		}
	}
	for range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		if err := during(ctx, cancel); !errors.Is(err, context.Canceled) {
			t.Errorf("canceled: %v, want %v", err, context.Canceled)
		}
		if err := during(t.Context(), write); err != nil {
			t.Errorf("after a canceled wait: %v", err)
		}
	}
	if err := during(t.Context(), w.close); !errors.Is(err, ib.ErrClosed) {
		t.Errorf("closed: %v, want %v", err, ib.ErrClosed)
	}
	write()
	w.close()
	if err := w.wait(t.Context(), take); !errors.Is(err, ib.ErrClosed) {
		t.Errorf("waits on after it was closed: %v, want %v", err, ib.ErrClosed)
	}
}
