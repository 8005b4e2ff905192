package engine

import (
	"bytes"
	"testing"

	"github.com/goroce/goroce/roce/link"
)

// TestMailboxKeep: runs that were kept do not change while others come.
func TestMailboxKeep(t *testing.T) {
	var m mailbox
	run := link.Run{Size: 16, Buf: bytes.Repeat([]byte{1}, 64)}
	m.put(&run, 4)
	kept := m.take()[0]
	m.keep()
	for range 4 {
		run.Buf = bytes.Repeat([]byte{2}, 64)
		m.put(&run, 4)
		m.take()
	}
	if !bytes.Equal(kept.Buf, bytes.Repeat([]byte{1}, 64)) {
		t.Error("a kept run has changed")
	}
}

// TestMailbox: take returns each run once, in order, and later puts do not change it. Runs
// without room are counted.
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
