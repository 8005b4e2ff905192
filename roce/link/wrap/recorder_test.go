package wrap_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/tests/linktest"
)

// recorder is a Link that records what is sent, and receives what the test sets.
type recorder struct {
	caps link.Caps
	take int        // runs that Send takes before it would block; negative: all
	sent []link.Run // copies
	rx   []link.Run
}

var (
	local = ib.GID{10: 0xFF, 11: 0xFF, 12: 10, 15: 1}
	peer  = ib.GID{10: 0xFF, 11: 0xFF, 12: 10, 15: 2}
)

func newRecorder() *recorder {
	return &recorder{take: -1, caps: link.Caps{Name: "rec", MTU: 1500, Local: []ib.GID{local}, RunFrames: 64,
		RunBytes: 65000, ID: link.IDFree}}
}

func (r *recorder) Caps() link.Caps { return r.caps }

func (r *recorder) Send(_ ib.Instant, out []link.Run) (int, error) {
	n := len(out)
	if r.take >= 0 {
		n = min(n, r.take)
		r.take -= n
	}
	for _, run := range out[:n] {
		run.Buf = bytes.Clone(run.Buf)
		r.sent = append(r.sent, run)
	}
	return n, nil
}

func (r *recorder) Recv(_ ib.Instant, in []link.Run) (int, error) {
	n := copy(in, r.rx)
	r.rx = r.rx[n:]
	return n, nil
}

func (r *recorder) Keep()                          {}
func (r *recorder) Deadline() ib.Instant           { return driver.Never }
func (r *recorder) Wait(time.Duration, bool) error { return nil }
func (r *recorder) Watch(int) error                { return nil }
func (r *recorder) Wake()                          {}
func (r *recorder) Join(ib.GID) error              { return nil }
func (r *recorder) Leave(ib.GID) error             { return nil }
func (r *recorder) AddLocal(ib.GID) error          { return nil }
func (r *recorder) RemoveLocal(ib.GID) error       { return nil }
func (r *recorder) Stats() link.Stats              { return link.Stats{} }
func (r *recorder) Close() error                   { return nil }

// newRun returns a run to peer whose first frame has PSN psn.
func newRun(psn uint32, n, size, tail int) link.Run {
	r := newRecorder()
	run := linktest.NewRun(r, r, &psn, n, size, tail)
	run.Dst = peer
	return run
}

// send sends all runs.
func send(t *testing.T, l link.Link, now ib.Instant, out ...link.Run) {
	t.Helper()
	if n, err := l.Send(now, out); n != len(out) || err != nil {
		t.Fatalf("Send = %d, %v; want %d", n, err, len(out))
	}
}

// psns returns the PSN, counted from 0, of every frame.
func psns(runs []link.Run) []int {
	list := []int{}
	for _, f := range linktest.Frames(runs...) {
		list = append(list, int(f[9])<<16|int(f[10])<<8|int(f[11]))
	}
	return list
}
