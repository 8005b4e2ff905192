package mr

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
)

// vector is slow memory that takes several pieces at once, and counts calls.
type vector struct {
	Memory
	b     []byte
	calls int
	fail  uint64 // offset that cannot be written, 0 for none
}

func (v *vector) Direct() []byte { return nil }

func (v *vector) WriteAt(p []byte, off uint64) error {
	return v.WriteVector([]Piece{{Off: off, B: p}})
}

func (v *vector) ReadVector(pieces []Piece) error {
	v.calls++
	for _, p := range pieces {
		if v.fail != 0 && p.Off == v.fail {
			return FaultBounds
		}
		copy(p.B, v.b[p.Off:])
	}
	return nil
}

func (v *vector) ReadAt(p []byte, off uint64) error {
	return v.ReadVector([]Piece{{Off: off, B: p}})
}

func (v *vector) WriteVector(pieces []Piece) error {
	v.calls++
	for _, p := range pieces {
		if v.fail != 0 && p.Off == v.fail {
			return FaultBounds
		}
		copy(v.b[p.Off:], p.B)
	}
	return nil
}

// newVector returns a vector and its region.
func newVector(t *testing.T, table *Table) (*vector, *Region) {
	t.Helper()
	pd, err := table.NewPD()
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 32<<10)
	v := &vector{Memory: Bytes(b), b: b}
	r, err := table.Register(pd, v, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	return v, r
}

// put returns a write of data.
func put(r *Region, off uint64, data string) Placement {
	return Placement{Kind: PlaceWrite, R: r, Off: off, Data: []byte(data)}
}

// TestBatch: writes that follow each other in one region are one call; others, and
// those beside one that fails, are done by themselves, all in order.
func TestBatch(t *testing.T) {
	table := NewTable(8, CountedKeys(func() uint8 { return 1 }))
	a, ra := newVector(t, table)
	b, rb := newVector(t, table)
	add := Placement{Kind: PlaceFetchAdd, R: ra, Off: 64, A: 5}
	list := []Placement{put(ra, 0, "one"), put(ra, 1, "two"), add, add, put(ra, 8, "x"), put(rb, 8, "y"),
		put(rb, 9, "z")}
	var batch Batch
	out := make([]Outcome, len(list))
	batch.Do(list, out)
	for i, o := range out {
		if o.Err != nil || o.Old != map[int]uint64{3: 5}[i] {
			t.Errorf("placement %d: %+v, want the old value %d", i, o, map[int]uint64{3: 5}[i])
		}
	}
	if a.calls != 2 || b.calls != 1 || !bytes.HasPrefix(a.b, []byte("otwo\x00")) || string(b.b[8:10]) != "yz" {
		t.Errorf("%d and %d calls, %q %q; want 2 and 1, otwo and yz", a.calls, b.calls, a.b[:9], b.b[8:10])
	}

	a.fail = 20
	list = []Placement{put(ra, 16, "a"), put(ra, 20, "b"), put(ra, 24, "c")}
	batch.Do(list, out[:3])
	if out[0].Err != nil || !errors.Is(out[1].Err, FaultBounds) || out[2].Err != nil || a.b[16] != 'a' ||
		a.b[24] != 'c' {
		t.Errorf("%+v, want only %v in the second", out[:3], FaultBounds)
	}

	a.calls = 0
	if err := table.Deregister(ra); err != nil {
		t.Fatal(err)
	}
	batch.Do(list, out[:3])
	if out[0].Err != FaultKey || out[2].Err != FaultKey || a.calls != 0 {
		t.Errorf("deregistered: %+v, %d calls; want %v and none", out[:3], a.calls, FaultKey)
	}
}

// TestBatchTrains: the packets of trains are pieces of a call, as single packets are.
func TestBatchTrains(t *testing.T) {
	a, ra := newVector(t, NewTable(8, CountedKeys(func() uint8 { return 1 })))
	var batch Batch
	out := make([]Outcome, 5)
	train := func(off uint64, packets int) Placement {
		frames := make([]byte, packets*30)
		for i := range packets {
			copy(frames[i*30+8:], fmt.Sprintf("payload %02d of train", i))
		}
		return Placement{Kind: PlaceWrite, R: ra, Off: off, Data: frames[8 : packets*30-2], Each: 20, Stride: 30}
	}
	trains := []Placement{train(0, 2), put(ra, 40, "single"), train(46, 3), train(200, maxPieces/3), train(100, 1)}
	batch.Do(trains, out)
	want := "payload 00 of train\x00payload 01 of train\x00singlepayload 00 of train\x00payload 01"
	if string(a.b[:76]) != want || !bytes.HasPrefix(a.b[100:], []byte("payload 00 of train")) || a.calls != 1 {
		t.Errorf("trains: %d calls, %q; want 1, %q", a.calls, a.b[:76], want)
	}
	a.calls = 0
	batch.Do([]Placement{train(0, maxPieces/6), train(0, maxPieces), train(0, 2)}, out[:3])
	if a.calls != 3 {
		t.Errorf("%d calls for more pieces than one takes, want 3", a.calls)
	}
	a.fail, a.calls = 60, 0
	batch.Do([]Placement{train(0, 2), train(20, 4), train(100, 2)}, out[:3])
	if out[0].Err != nil || out[1] != (Outcome{2, FaultBounds}) || out[2].Err != nil || a.calls != 1+2+3+2 {
		t.Errorf("a train whose third packet fails: %+v, %d calls; want %v and 8 calls", out[:3], a.calls,
			Outcome{2, FaultBounds})
	}
}

// TestBatchGather: messages that follow each other from one region are one call; others, and those beside one that
// fails, are read by themselves.
func TestBatchGather(t *testing.T) {
	table := NewTable(8, CountedKeys(func() uint8 { return 1 }))
	a, ra := newVector(t, table)
	b, rb := newVector(t, table)
	copy(a.b, "the quick brown fox")
	copy(b.b, "jumps")
	message := func(n int, spans ...Span) Message { return Message{spans, make([]byte, n)} }
	list := []Message{message(9, Span{R: ra, Off: 4, Len: 6}, Span{R: ra, Off: 0, Len: 8}),
		message(5, Span{R: ra, Off: 10, Len: 5}),
		message(8, Span{R: ra, Off: 16, Len: 3}, Span{R: rb, Len: 5}), message(5, Span{R: rb, Len: 5}), message(0),
		message(9, Span{R: rb, Len: 5})}
	var batch Batch
	errs := make([]error, len(list))
	batch.Gather(list, errs)
	for i, want := range []string{"quick the", "brown", "foxjumps", "jumps", ""} {
		if got := string(list[i].Buf); got != want || errs[i] != nil {
			t.Errorf("message %d is %q, %v, want %q", i, got, errs[i], want)
		}
	}
	if errs[5] != FaultBounds {
		t.Errorf("a buffer longer than its message: %v, want %v", errs[5], FaultBounds)
	}
	if a.calls != 2 || b.calls != 3 {
		t.Errorf("%d and %d calls, want 2 and 3", a.calls, b.calls)
	}

	a.fail = 10
	batch.Gather(list[:2], errs)
	if errs[0] != nil || errs[1] != FaultBounds {
		t.Errorf("the second cannot be read: %v, want %v", errs[:2], FaultBounds)
	}
	if err := table.Deregister(ra); err != nil {
		t.Fatal(err)
	}
	if batch.Gather(list[:2], errs); errs[0] != FaultKey || errs[1] != FaultKey {
		t.Errorf("deregistered: %v, want %v", errs[:2], FaultKey)
	}
}
