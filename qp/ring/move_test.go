package ring

import (
	"testing"

	"github.com/goroce/goroce/ib"
)

// moved makes all steps of a move.
func moved(m *Move) (fits bool) {
	for done := false; !done; {
		_, done, fits = m.Step(1)
	}
	return fits
}

// TestMoveCompletions: the device adds completions to a ring while they move, and they move, too.
func TestMoveCompletions(t *testing.T) {
	_, dev := newCQ(t, 8)
	b, other := newCQ(t, 16)
	push := func(i int) {
		t.Helper()
		if !dev.Push(&ib.WC{ID: uint64(i)}) {
			t.Fatalf("completion %d has no room", i)
		}
	}
	for i := range 6 {
		push(i)
	}
	m := dev.MoveTo(other)
	for i := range 2 {
		if n, done, fits := m.Step(2); n != 2 || done || !fits {
			t.Fatalf("step %d: got %d, %v, %v; want 2 completions, and more to come", i, n, done, fits)
		}
		push(6 + i)
	}
	if !moved(m) {
		t.Fatal("the completions do not fit")
	}
	app, err := OpenCQ(b)
	if err != nil {
		t.Fatal(err)
	}
	var wcs [16]ib.WC
	n := app.Poll(wcs[:])
	for i, wc := range wcs[:n] {
		if wc.ID != uint64(i) {
			t.Errorf("completion %d has ID %d, want its number", i, wc.ID)
		}
	}
	if n != 8 {
		t.Errorf("got %d completions in the new ring, want 8", n)
	}
}

// TestMoveReceives: the device consumes receives of a ring while they move, before and after they are copied. It finds
// the others in the new ring, and the application finds room for what was consumed.
func TestMoveReceives(t *testing.T) {
	const entries = 8
	b := Alloc(RecvSize(entries, 1))
	dev, err := NewRecv(b, entries, 1)
	if err != nil {
		t.Fatal(err)
	}
	app, err := OpenRecv(b)
	if err != nil {
		t.Fatal(err)
	}
	for i := range entries {
		if err := app.Push(&ib.RecvWR{ID: uint64(i)}); err != nil {
			t.Fatal(err)
		}
	}
	app.Publish()
	pop := func(q *Recv, want uint64) {
		t.Helper()
		var wr ib.RecvWR
		if ok, err := q.Pop(&wr); !ok || err != nil || wr.ID != want {
			t.Fatalf("got receive %d, %v, %v; want %d", wr.ID, ok, err, want)
		}
		q.release(1)
	}
	pop(dev, 0)
	b2 := Alloc(RecvSize(entries, 1))
	other, err := NewRecv(b2, entries, 1)
	if err != nil {
		t.Fatal(err)
	}
	m := dev.MoveTo(other)
	for i := range uint64(2) {
		if n, done, fits := m.Step(2); n != 2 || done || !fits {
			t.Fatalf("step %d: got %d, %v, %v; want 2 receives, and more to come", i, n, done, fits)
		}
		pop(dev, 1+i)
	}
	if !moved(m) {
		t.Fatal("the receives do not fit")
	}
	if app, err = OpenRecv(b2); err != nil {
		t.Fatal(err)
	}
	for i := range uint64(3) { // as many as were consumed
		if err := app.Push(&ib.RecvWR{ID: entries + i}); err != nil {
			t.Fatalf("receive %d: %v", entries+i, err)
		}
	}
	if err := app.Push(&ib.RecvWR{}); err == nil {
		t.Error("the new ring takes more receives than it has entries")
	}
	app.Publish()
	for want := uint64(3); want < entries+3; want++ {
		pop(other, want)
	}
}
