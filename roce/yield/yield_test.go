//go:build linux

package yield

import (
	"testing"
	"time"
)

func TestTook(t *testing.T) {
	var y Yielder
	now := time.Now()
	if !y.took(now, now.Add(long/2)) || !y.next.IsZero() {
		t.Error("a short yield is not the last")
	}
	if y.took(now, now.Add(2*long)) || y.next.Sub(now) < rest {
		t.Error("after a long yield there is none for a while")
	}
}

func TestYield(t *testing.T) {
	y := Yielder{next: time.Now().Add(time.Hour)}
	if y.Yield() {
		t.Error("it yields where it should rest")
	}
}
