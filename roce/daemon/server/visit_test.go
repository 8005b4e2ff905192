package server

import "testing"

// TestVisits: connections of a process are one visit. Processes that the kernel does not show here have no number, and
// those of two users are no visit of both.
func TestVisits(t *testing.T) {
	var v visits
	a, again, b, shown := v.enter(0, 1000), v.enter(0, 1000), v.enter(0, 1001), v.enter(7, 1000)
	if a != again || a == b || a == shown {
		t.Errorf("got visits %p, %p of a user without number, %p of another, %p with a number; want the first two "+
			"equal and no others", a, again, b, shown)
	}
	if a.uid != 1000 || b.uid != 1001 {
		t.Errorf("got users %d and %d, want 1000 and 1001", a.uid, b.uid)
	}
	if v.leave(a) || !v.leave(again) || !v.leave(b) || !v.leave(shown) {
		t.Error("got another last connection than each visit's latest")
	}
	if len(v.all) != 0 {
		t.Errorf("got %d visits after all have left, want none", len(v.all))
	}
}
