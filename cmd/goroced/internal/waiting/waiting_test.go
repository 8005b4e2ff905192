package waiting

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestFor: what is waited for is said within a second, and not if the wait has ended before.
func TestFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said, nothing strings.Builder
		For(&nothing, "", "what came")()
		stop := For(&said, "", "a message, %v at most", 10*time.Second)
		defer stop()
		time.Sleep(time.Second)
		synctest.Wait()
		if said.String() != "waiting for a message, 10s at most\n" || nothing.Len() > 0 {
			t.Errorf("after a second: %q, and %q of a wait that has ended; want one message, and none", said.String(),
				nothing.String())
		}
	})
}

// slow is an argument that takes long to format.
type slow chan struct{}

func (s slow) String() string {
	<-s
	return "an answer"
}

// TestForStopped: nothing is printed after stop has returned, even if the text is in the making by then.
func TestForStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said strings.Builder
		made := make(slow)
		stop := For(&said, "", "%v", made)
		time.Sleep(time.Second)
		synctest.Wait()
		stop()
		close(made)
		synctest.Wait()
		if said.Len() > 0 {
			t.Errorf("after the wait: %q, want nothing", said.String())
		}
	})
}

// TestEnded: only the end of the context is an *Error.
func TestEnded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	other := errors.New("no route")
	if err := Ended(ctx, other, "a client"); err != other {
		t.Errorf("another error: %v, want %v", err, other)
	}
	cancel()
	if err := Ended(ctx, nil, "a client"); err != nil {
		t.Errorf("a wait that succeeded: %v", err)
	}
	var wait *Error
	if err := Ended(ctx, other, "a client on %d", 7); !errors.As(err, &wait) || wait.For != "a client on 7" ||
		!errors.Is(err, context.Canceled) || err.Error() != "waiting for a client on 7: context canceled" {
		t.Errorf("a context that has ended: %v, want one for the client, %v", err, context.Canceled)
	}
}
