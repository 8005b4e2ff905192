package device_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
)

// TestEventsLost: each event that finds the queue full is counted, that of a failed link too.
func TestEventsLost(t *testing.T) {
	dev := newTarget(t).dev
	for i := 0; i < 10_000 && dev.Stats().EventsLost == 0; i++ { // each change of the state is an event
		dev.SetPortState([]ib.PortState{ib.PortDown, ib.PortActive}[i%2])
	}
	for range 2 { // a link of another shard fails too
		dev.LinkDown(link.ErrClosed)
	}
	if n := dev.Stats().EventsLost; n != 2 {
		t.Errorf("%d events lost, want the last of the port and that of the link", n)
	}
}

// TestNextEventClosed: NextEvent of a closed device says what has failed.
func TestNextEventClosed(t *testing.T) {
	dev := newTarget(t).dev
	must(t, dev.Close())
	if _, err := dev.NextEvent(t.Context()); !errors.Is(err, ib.ErrClosed) || !strings.Contains(err.Error(), "event") {
		t.Errorf("%v, want ErrClosed with the operation", err)
	}
}
