package roce_test

import (
	"bytes"
	"testing"

	"github.com/goroce/goroce/ib"
)

// TestHeldFrames: a shard writes from the received frames, which it does not use again before: of WRITEs
// that follow each other, each has its own data in place when it completes.
func TestHeldFrames(t *testing.T) {
	w := newStuck(t, true)
	close(w.mem.gate)
	a, b := w.tenant.a, w.tenant.b
	const size, window = 8 << 10, 8
	got := make([]byte, size)
	posted := 0
	post := func() {
		at := posted % window * size
		for i := range size {
			a.buf[at+i] = byte((posted*31 + i) * 7 >> (i % 3))
		}
		w.tenant.send(a, ib.SendWR{ID: uint64(posted), Opcode: ib.WRWrite, SGL: a.sge(at, size), RemoteAddr: uint64(at),
			RKey: b.mr.RKey()})
		posted++
	}
	for range window {
		post()
	}
	for i := range 2000 {
		wc := w.tenant.wait(a)
		if wc.Err() != nil || wc.ID != uint64(i) {
			t.Fatalf("WRITE %d: %+v", i, wc)
		}
		at := i % window * size
		if err := w.mem.Memory.ReadAt(got, uint64(at)); err != nil || !bytes.Equal(got, a.buf[at:at+size]) {
			t.Fatalf("WRITE %d has completed, and its data is not in place: %v", i, err)
		}
		post()
	}
	if n := w.mem.pieces.Load(); n < 2000 { // packets that are copied become one piece
		t.Errorf("%d pieces for 2000 WRITEs: the frames were copied", n)
	}
}
