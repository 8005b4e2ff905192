//go:build linux

package yield

import (
	"testing"
	"time"
)

func TestTook(t *testing.T) {
	var y Yielder
	now := 10 * time.Hour
	if !y.took(now, now+long/2) || y.next != 0 {
		t.Error("a short yield is not the last")
	}
	for want := leastRest; want < 4*mostRest; want *= 2 {
		if y.took(now, now+long) || y.next != now+long+min(want, mostRest) {
			t.Fatalf("a long yield, with %v until the next, want %v", y.next-now-long, min(want, mostRest))
		}
		now = y.next + restsBack*y.rest
	}
	if y.took(now+1, now+1+long) || y.rest != leastRest {
		t.Errorf("a long yield, the first for quite some time, with %v until the next, want %v", y.rest, leastRest)
	}
}

func TestYield(t *testing.T) {
	if y := (Yielder{}); !y.Yield() && y.next == 0 {
		t.Error("it does not yield from the start")
	}
	y := Yielder{next: clock() + time.Hour}
	if y.Yield() {
		t.Error("it yields where it should rest")
	}
}
