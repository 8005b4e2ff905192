package slowmem

import (
	"bytes"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/mr/mrtest"
)

// until is memory that is shorter than the region registered on it.
type until struct {
	*mrtest.Memory
	end uint64
}

func (u until) WriteAt(p []byte, off uint64) error {
	if off+uint64(len(p)) > u.end {
		return mr.FaultBounds
	}
	return u.Memory.WriteAt(p, off)
}

func lateRegion(t *testing.T, mem mr.Memory) *mr.Region {
	t.Helper()
	table := mr.NewTable(1, mr.CountedKeys(func() uint8 { return 1 }))
	pd, err := table.NewPD()
	if err != nil {
		t.Fatal(err)
	}
	r, err := table.Register(pd, mem, 0, ib.LocalWrite)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// user has placements.
type user struct{ _ byte }

// TestWorkJoins: packets of one size that write to consecutive addresses are merged into one placement, those
// of another size, QP, region or address are not. Each packet gets an answer of its own.
func TestWorkJoins(t *testing.T) {
	mem := mrtest.New(1000)
	r := lateRegion(t, mem)
	a, b := new(user), new(user)
	var k work[*user]
	want := make([]byte, 1000)
	for i, p := range []struct {
		q      *user
		kind   mr.PlacementKind
		off, n int
	}{
		{a, mr.PlaceWrite, 0, 100}, {a, mr.PlaceWrite, 100, 100}, {a, mr.PlaceWrite, 200, 8},
		{a, mr.PlaceWrite, 300, 100}, // a gap
		{b, mr.PlaceWrite, 400, 100}, // another QP
		{b, mr.PlaceFetchAdd, 504, 0}, {b, mr.PlaceFetchAdd, 504, 0}, {b, mr.PlaceWrite, 512, 4},
		{b, mr.PlaceWrite, 516, 4},
	} {
		data := bytes.Repeat([]byte{byte(i + 1)}, p.n)
		copy(want[p.off:], data)
		k.place(p.q, &mr.Placement{ID: uint64(i), Kind: p.kind, R: r, Off: uint64(p.off), Data: data, A: 1})
		clear(data) // the link's again
	}
	want[504] = 2
	if len(k.writes) != 7 {
		t.Errorf("%d placements, want 7", len(k.writes))
	}
	var list []Answer[*user]
	for i := range k.writes {
		old, err := k.writes[i].Do()
		list = k.answer(list, i, mr.Outcome{Old: old, Err: err})
	}
	for i, x := range list {
		if x.ID != uint64(i) || x.Err != nil || (x.User == a) != (i < 4) || (i == 5 || i == 6) && x.Old != uint64(i-5) {
			t.Errorf("answer %d: %+v; want ID %d, of the first user: %v", i, x, i, i < 4)
		}
	}
	if len(list) != 9 || !bytes.Equal(mem.B, want) {
		t.Errorf("%d answers; the memory is right: %v", len(list), bytes.Equal(mem.B, want))
	}
}

// TestWorkFails: of packets that were merged into one placement, only those fail whose memory is
// missing.
func TestWorkFails(t *testing.T) {
	r := lateRegion(t, until{mrtest.New(1000), 250})
	var k work[*user]
	for i := range 4 {
		k.place(new(user), &mr.Placement{}) // of the time before
		k = k.emptied()
		for j := range i + 1 {
			k.place(nil, &mr.Placement{ID: uint64(j), R: r, Off: uint64(j * 100), Data: make([]byte, 100)})
		}
		_, err := k.writes[0].Do()
		for j, x := range k.answer(nil, 0, mr.Outcome{Err: err}) {
			if x.ID != uint64(j) || (x.Err != nil) != (j >= 2) {
				t.Errorf("packet %d of %d: %v, want an error: %v", j, i+1, x.Err, j >= 2)
			}
		}
	}
}

// TestWorkTrain: a train is merged with the packets before and behind it, and fails from the
// packet on whose memory is missing.
func TestWorkTrain(t *testing.T) {
	const size, head, each = 140, 30, 100 // frames
	payload := func(i int) []byte { return bytes.Repeat([]byte{byte(i + 1)}, each) }
	for _, end := range []uint64{1000, 350, 250, 150, 50} {
		mem, want := mrtest.New(1000), make([]byte, 1000)
		for i := 0; i < 5 && (i+1)*each <= int(end); i++ {
			copy(want[i*each:], payload(i))
		}
		r := lateRegion(t, until{mem, end})
		frames := make([]byte, 3*size)
		for i := range 3 {
			copy(frames[i*size+head:], payload(i+1))
		}
		var k work[*user]
		k.place(nil, &mr.Placement{ID: 1, R: r, Off: 0, Data: payload(0)})
		k.place(nil, &mr.Placement{ID: 2, R: r, Off: each, Data: frames[head : 2*size+head+each], Each: each,
			Stride: size})
		k.place(nil, &mr.Placement{ID: 3, R: r, Off: 4 * each, Data: payload(4)})
		clear(frames) // the link's again
		if len(k.writes) != 1 {
			t.Fatalf("%d placements, want 1", len(k.writes))
		}
		old, err := k.writes[0].Do()
		for i, a := range k.answer(nil, 0, mr.Outcome{Old: old, Err: err}) {
			first, n := uint64(max(0, i*3-2)), uint64(1+i%2*2) // its packets: 0, 1 to 3, 4
			good := min(n, max(end/each, first)-first)
			if a.ID != uint64(i+1) || (a.Err != nil) != (good < n) || a.Err != nil && a.Old != good {
				t.Errorf("memory of %d bytes, answer %d: %d were placed, %v; want %d", end, i, a.Old, a.Err, good)
			}
		}
		if !bytes.Equal(mem.B, want) {
			t.Errorf("memory of %d bytes is not as it should be", end)
		}
		if end < 4*each {
			continue
		}
		clear(mem.B) // and one that is placed alone
		k = k.emptied()
		for i := range 3 {
			copy(frames[i*size+head:], payload(i))
		}
		k.place(nil, &mr.Placement{R: r, Data: frames[head : 2*size+head+each], Each: each, Stride: size})
		if _, err := k.writes[0].Do(); err != nil || !bytes.Equal(mem.B[:3*each], want[:3*each]) {
			t.Errorf("a train alone: %v", err)
		}
	}
}

// TestWorkTurn: the numbers of placements and bytes in a turn are bounded, but a turn has at
// least one placement.
func TestWorkTurn(t *testing.T) {
	for _, x := range []struct{ size, want int }{{8, turnPlaces}, {turnBytes / 4, 4}, {turnBytes - 1, 1},
		{2 * turnBytes, 1}} {
		r := lateRegion(t, mrtest.New(1))
		var k work[*user]
		for range 2 * turnPlaces {
			k.place(nil, &mr.Placement{R: r, Data: make([]byte, x.size)})
		}
		turns := 0
		for ; !k.finished(); turns++ {
			n := k.some()
			if n != x.want {
				t.Errorf("a turn of %d placements of %d bytes, want %d", n, x.size, x.want)
			}
			k.placed += max(n, 1)
		}
		if turns != 2*turnPlaces/x.want || k.some() != 0 {
			t.Errorf("%d turns, want %d", turns, 2*turnPlaces/x.want)
		}
	}
}
