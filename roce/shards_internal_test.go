package roce

import (
	"bytes"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/goroce/goroce/roce/link"
)

// TestMailbox: what is put in comes out once, in order, unchanged by what is put in
// meanwhile; what finds no room is counted.
func TestMailbox(t *testing.T) {
	var m mailbox
	run := func(i, n int) *link.Run {
		return &link.Run{SrcPort: uint16(i), Size: 16, Buf: bytes.Repeat([]byte{byte(i)}, n)}
	}
	check := func(got []link.Run, first, n int) {
		t.Helper()
		if len(got) != n {
			t.Fatalf("%d runs, want %d", len(got), n)
		}
		for i := range got {
			if r := &got[i]; int(r.SrcPort) != first+i || !bytes.Equal(r.Buf, run(first+i, len(r.Buf)).Buf) {
				t.Fatalf("run %d is not the one that was put in", first+i)
			}
		}
	}
	check(m.take(), 0, 0)
	for i := range 10 {
		m.put(run(i, 64), 4)
	}
	got := m.take()
	for i := range 10 {
		m.put(run(10+i, 64), 4)
	}
	check(got, 0, 10)
	check(m.take(), 10, 10)

	for i := range mailRuns + 3 {
		m.put(run(i, 16), 1)
	}
	check(m.take(), 0, mailRuns)
	for i := range 20 {
		m.put(run(i, mailBytes/16), 2)
	}
	check(m.take(), 0, 16)
	check(m.take(), 0, 0)
	var st Stats
	m.count(&st)
	if want := uint64(20*4 + mailRuns + 16*2); st.CrossedShards != want || st.DropMailbox != 3+4*2 {
		t.Errorf("%d frames crossed, %d dropped; want %d, %d", st.CrossedShards, st.DropMailbox, want, 3+4*2)
	}
}

// TestCounterOverShards: a source counts its packets whatever QP they are for, so each
// shard sees gaps as long as what the others got.
func TestCounterOverShards(t *testing.T) {
	var all [idSources]atomic.Uint32
	var shards [2]identifier
	for i := range shards {
		for j := range all {
			shards[i].sources[j].all = &all[j]
		}
	}
	s, counter := newSender("192.0.2.1"), uint16(40000)
	for round := range 20 {
		for range 500 {
			if !accepts(&shards[round%2], 0, s.frame(counter, 8)) {
				t.Fatalf("round %d: identification %d refused", round, counter)
			}
			counter++
		}
	}
	if accepts(&shards[0], 0, s.frame(counter+5000, 8)) {
		t.Error("any identification is good")
	}
}

// TestReadyLanes: QPs of a lane have their turns one after the other, in order, but a
// lane that is never empty does not keep others waiting.
func TestReadyLanes(t *testing.T) {
	var l readyList
	var qs [12]QP
	for i := range qs {
		qs[i].lane = i % 3
		l.push(&qs[i])
		l.push(&qs[i]) // once is enough
	}
	l.remove(&qs[4])
	l.remove(&qs[4])
	var got []int
	for q := l.pop(); q != nil; q = l.pop() {
		for i := range qs {
			if q == &qs[i] {
				got = append(got, i)
			}
		}
	}
	if want := []int{0, 3, 6, 9, 1, 7, 10, 2, 5, 8, 11}; !slices.Equal(got, want) || !l.empty() {
		t.Errorf("turns of %v, want %v", got, want)
	}

	l.push(&qs[0])
	l.push(&qs[1])
	turns := 1
	for q := l.pop(); q != &qs[1]; q = l.pop() {
		l.push(q)
		turns++
	}
	if turns > 2*readyTurns {
		t.Errorf("the second lane has its turn after %d", turns)
	}
}
