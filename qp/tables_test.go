package qp

import (
	"slices"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/wire"
)

// TestReadTable fills, empties and wraps the table of outstanding READs.
func TestReadTable(t *testing.T) {
	var rt readTable
	rt.size(3)
	if !rt.empty() || rt.left() == 0 || rt.oldest() != nil || rt.find(100) != nil {
		t.Fatal("a new table is not empty")
	}
	psn := ib.PSN(ib.PSNMask - 1) // so that one request lies across the wrap
	for i := range 3 {
		rt.push(uint32(i), psn, 2+i)
		psn = psn.Add(2 + i)
	}
	if rt.left() > 0 || rt.empty() {
		t.Fatal("three requests do not fill a table of three")
	}
	for _, c := range []struct {
		psn  ib.PSN
		slot int // -1: none
	}{
		{ib.PSNMask - 2, -1}, {ib.PSNMask - 1, 0}, {ib.PSNMask, 0}, {0, 1}, {2, 1}, {3, 2}, {6, 2}, {7, -1},
		{1 << 23, -1},
	} {
		rd := rt.find(c.psn)
		if (rd == nil) != (c.slot < 0) || rd != nil && rd.slot != uint32(c.slot) {
			t.Errorf("find(%d) = %+v, want slot %d", c.psn, rd, c.slot)
		}
	}
	for i := range 10 { // so that head wraps
		if got := rt.oldest().slot; got != uint32(i) {
			t.Fatalf("oldest is %d, want %d", got, i)
		}
		rt.pop()
		rt.push(uint32(i+3), psn, 1)
		psn = psn.Add(1)
	}
	rt.reset()
	if !rt.empty() {
		t.Fatal("not empty after reset")
	}
	rt.size(0)
	if rt.left() > 0 || !rt.empty() {
		t.Fatal("a table of none is not full and empty at once")
	}
}

// read returns the resource of a READ of n packets.
func read(psn ib.PSN, n int) resource {
	return resource{kind: resRead, first: psn, npsn: int32(n), span: [1]mr.Span{{Len: uint32(n) * 1024}}, a: 0x1000,
		b: number(7)}
}

// TestResourcesInOrder checks that responses are sent in PSN order, and that a resource
// that is not ready holds back those behind it.
func TestResourcesInOrder(t *testing.T) {
	var rt resourceTable
	rt.size(2)
	if rt.next() != nil || !rt.free() {
		t.Fatal("a new table is not empty")
	}
	for round := range 5 {
		psn := ib.PSN(round * 10)
		a := rt.push(read(psn, 4))
		b := rt.push(resource{kind: resAtomic, first: psn.Add(4), npsn: 1})
		if rt.next() != nil || rt.free() {
			t.Fatal("requests that were not executed have responses, or may be forgotten")
		}
		b.answer(7)
		if rt.next() != nil {
			t.Fatal("an atomic overtakes a READ")
		}
		a.start()
		if rt.next() != a || rt.free() {
			t.Fatal("the READ is not next")
		}
		a.pending, a.answered = false, true
		if rt.next() != b || !rt.free() {
			t.Fatal("the atomic is not next, or the READ may not be forgotten")
		}
		b.pending, b.answered = false, true
		if rt.next() != nil {
			t.Fatal("something is left")
		}
		for _, p := range []ib.PSN{psn, psn.Add(3)} {
			if rt.find(p) != a {
				t.Fatalf("PSN %d is not found", p)
			}
		}
		if rt.find(psn.Add(5)) != nil || rt.find(psn.Add(-1)) != nil {
			t.Fatal("a PSN is found that was never there")
		}
	}
	rt.size(0)
	if rt.free() || rt.next() != nil || rt.find(0) != nil {
		t.Fatal("a table of none takes requests")
	}
}

// TestResourcesIdle checks that a table which had nothing pending returns resources that
// become pending later, new or repeated.
func TestResourcesIdle(t *testing.T) {
	var rt resourceTable
	rt.size(2)
	silent := func(when string) {
		if rt.next() != nil || !rt.idle {
			t.Fatalf("%s: something is due", when)
		}
	}
	silent("empty")
	a := rt.push(resource{kind: resAtomic, first: 10, npsn: 1})
	if rt.next() != nil || rt.idle {
		t.Fatal("idle with a request that is under way")
	}
	a.answer(7)
	for _, again := range []bool{false, true} {
		if again {
			rt.answerAgain(10)
		}
		if rt.next() != a {
			t.Fatalf("again %v: the atomic is not due", again)
		}
		a.pending, a.answered = false, true
		silent("answered")
	}
	rt.size(2)
	silent("forgotten")
}

// TestReadAgain checks which repetitions of a READ are answered, and from where.
func TestReadAgain(t *testing.T) {
	for _, c := range []struct {
		name      string
		psn       ib.PSN
		va        uint64
		key       ib.Key
		n         uint32
		from, end ib.PSN // 0: no answer
	}{
		{"whole", 100, 0x1000, 7, 4096, 100, 104},
		{"from the middle", 102, 0x1800, 7, 2048, 102, 104},
		{"a part", 101, 0x1400, 7, 1000, 101, 102},
		{"nothing of it", 101, 0x1400, 7, 0, 101, 102},
		{"beyond the end", 102, 0x1800, 7, 2049, 0, 0},
		{"another address", 102, 0x1801, 7, 1024, 0, 0},
		{"another key", 102, 0x1800, 8, 1024, 0, 0},
		{"behind it", 104, 0x2000, 7, 1, 0, 0},
		{"length that wraps", 101, 0x1400, 7, 1<<32 - 1, 0, 0},
	} {
		r := newResponder(t)
		rt := &r.res
		s := rt.push(read(100, 4))
		s.start()
		s.pending, s.answered, s.begins = false, true, false
		if rt.next() != nil {
			t.Fatal("the READ is not answered")
		}
		p := request(wire.RCReadRequest, c.psn, nil)
		p.RETH = wire.RETH{VA: c.va, RKey: c.key, Len: c.n}
		r.readAgain(0, &p)
		switch {
		case s.pending != (c.end != 0) || s.pending != (rt.next() == s):
			t.Errorf("%s: answered: got %v, want %v", c.name, s.pending, c.end != 0)
		case s.pending && (!s.begins || s.cursor != c.from || s.end != c.end):
			t.Errorf("%s: answers %d to %d, want %d to %d", c.name, s.cursor, s.end, c.from, c.end)
		}
	}
}

// TestReadAgainWhileAnswering checks that a repetition from a PSN that is still to be sent
// changes nothing, and that one from a PSN that was sent restarts there.
func TestReadAgainWhileAnswering(t *testing.T) {
	r := newResponder(t)
	s := r.res.push(read(100, 4))
	s.start()
	s.cursor, s.begins = 102, false
	p := request(wire.RCReadRequest, 103, nil)
	p.RETH = wire.RETH{VA: 0x1000 + 3*1024, RKey: 7, Len: 1024}
	r.readAgain(0, &p)
	if s.begins || s.cursor != 102 || s.end != 104 {
		t.Errorf("got answers from %d to %d, begins %v, want 102 to 104, false", s.cursor, s.end, s.begins)
	}
	p.PSN, p.RETH.VA, p.RETH.Len = 101, 0x1000+1024, 3*1024
	r.readAgain(0, &p)
	if !s.begins || s.cursor != 101 || s.end != 104 {
		t.Errorf("got answers from %d to %d, begins %v, want 101 to 104, true", s.cursor, s.end, s.begins)
	}
}

// TestReadAgainInParts: parts of a READ that do not touch what is being answered are answered after it, each once.
func TestReadAgainInParts(t *testing.T) {
	r := newResponder(t)
	s := r.res.push(read(100, 9))
	s.start()
	s.cursor = 108
	for _, psn := range []ib.PSN{101, 103, 106} {
		p := request(wire.RCReadRequest, psn, nil)
		p.RETH = wire.RETH{VA: 0x1000 + uint64(psn-100)*1024, RKey: 7, Len: 1024}
		if !r.readAgain(0, &p) {
			t.Errorf("PSN %d is not answered again", psn)
		}
	}
	var got []ib.PSN
	for s.pending {
		got = append(got, s.cursor)
		s.pending = false
		r.nextPart(s)
	}
	if want := []ib.PSN{108, 101, 103, 106}; !slices.Equal(got, want) {
		t.Errorf("got answers %v, want %v", got, want)
	}
}

// newResponder returns a responder that remembers one READ.
func newResponder(t *testing.T) *responder {
	r := &newHost(t, ourNum).q.resp
	r.q.attr.PathMTU = ib.MTU1024
	r.res.size(1)
	return r
}

// TestTimerTable checks the deadlines one by one and together.
func TestTimerTable(t *testing.T) {
	var tt timerTable
	tt.clearAll()
	if tt.earliest() != driver.Never {
		t.Fatal("a clear table has a deadline")
	}
	for k := range numTimers {
		at := ib.Instant(100 - int(k)*10)
		tt.set(k, at)
		if !tt.isSet(k) || tt.earliest() != at {
			t.Errorf("timer %d: set %v, earliest %d, want %d", k, tt.isSet(k), tt.earliest(), at)
		}
		if tt.expired(k, at-1) || !tt.isSet(k) {
			t.Errorf("timer %d fires too early", k)
		}
	}
	for k := range numTimers {
		if !tt.expired(k, 1000) || tt.expired(k, 1000) || tt.isSet(k) {
			t.Errorf("timer %d does not fire late, once", k)
		}
	}
	tt.set(timerAck, 5)
	tt.clear(timerAck)
	if tt.expired(timerAck, 1000) {
		t.Error("a cleared timer fires")
	}
}
