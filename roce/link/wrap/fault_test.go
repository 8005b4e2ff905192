package wrap_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/tests/linktest"
)

const ms = ib.Instant(time.Millisecond)

func TestNoFault(t *testing.T) {
	rec := newRecorder()
	f := wrap.Fault(rec, wrap.FaultConfig{})
	send(t, f, 0, newRun(0, 4, 64, 32), newRun(5, 1, 64, 0))
	if len(rec.sent) != 2 || rec.sent[0].Frames() != 5 {
		t.Errorf("runs were split: %+v, want 2, of 5 frames the first", rec.sent)
	}
	if c := f.Counts(); c != (wrap.FaultCounts{Passed: 6}) {
		t.Errorf("counts %+v, want 6 passed", c)
	}
}

func TestDrop(t *testing.T) {
	rec := newRecorder()
	var lost []int
	f := wrap.Fault(rec, wrap.FaultConfig{Seed: 1, Drop: 0.3, OnDrop: func(now ib.Instant, r *link.Run, frame []byte) {
		if now != 7 || r.Dst != peer {
			t.Errorf("OnDrop at %d, run to %v; want 7, %v", now, r.Dst, peer)
		}
		lost = append(lost, psns([]link.Run{{Size: len(frame), Buf: frame}})...)
	}})
	send(t, f, 7, newRun(0, 60, 64, 32))
	got := psns(rec.sent)
	c := f.Counts()
	if len(lost) < 6 || len(lost) > 30 || int(c.Dropped) != len(lost) || int(c.Passed) != len(got) {
		t.Errorf("%d frames lost, counts %+v; want 6 to 30 lost, %d passed", len(lost), c, len(got))
	}
	all := append(slices.Clone(got), lost...)
	slices.Sort(all)
	if len(all) != 61 || len(slices.Compact(all)) != 61 || !slices.IsSorted(got) {
		t.Errorf("passed %v and lost %v, want together every frame once, in order", got, lost)
	}
	if len(rec.sent) > len(lost)+1 {
		t.Errorf("%d runs for %d losses, want at most one more: frames between losses do not stay together",
			len(rec.sent), len(lost))
	}
}

func TestDuplicate(t *testing.T) {
	rec := newRecorder()
	f := wrap.Fault(rec, wrap.FaultConfig{Duplicate: 1})
	send(t, f, 0, newRun(0, 2, 64, 16))
	if diff := cmp.Diff([]int{0, 0, 1, 1, 2, 2}, psns(rec.sent)); diff != "" {
		t.Error(diff)
	}
	if c := f.Counts(); c != (wrap.FaultCounts{Passed: 3, Duplicated: 3}) {
		t.Errorf("counts %+v, want %+v", c, wrap.FaultCounts{Passed: 3, Duplicated: 3})
	}
}

// A reordered frame is passed on after the next one between the same hosts, whenever that comes, but at MaxDelay at the
// latest.
func TestReorder(t *testing.T) {
	rec := newRecorder()
	seed := uint64(0)
	for ; ; seed++ { // find a seed that reorders the first frame only
		rec.sent = nil
		f := wrap.Fault(rec, wrap.FaultConfig{Seed: seed, Reorder: 0.5})
		send(t, f, 0, newRun(0, 4, 64, 0))
		if f.Counts().Reordered == 1 && psns(rec.sent)[0] == 1 {
			break
		}
	}
	if diff := cmp.Diff([]int{1, 0, 2, 3}, psns(rec.sent)); diff != "" {
		t.Error(diff)
	}

	rec.sent = nil
	f := wrap.Fault(rec, wrap.FaultConfig{Seed: seed, Reorder: 0.5, MaxDelay: time.Millisecond})
	send(t, f, 5, newRun(0, 1, 64, 0))
	elsewhere := newRun(1, 3, 64, 0)
	elsewhere.Dst[15] = 99
	send(t, f, 6, elsewhere)
	if diff := cmp.Diff([]int{1, 2, 3}, psns(rec.sent)); diff != "" {
		t.Errorf("behind frames to another host (-want +got): %s", diff)
	}
	if d := f.Deadline(); d != 5+ms {
		t.Errorf("Deadline %d, want %d", d, 5+ms)
	}
	if _, err := f.Recv(5+ms, make([]link.Run, 1)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int{1, 2, 3, 0}, psns(rec.sent)); diff != "" {
		t.Errorf("after MaxDelay (-want +got): %s", diff)
	}
	if d := f.Deadline(); d != driver.Never {
		t.Errorf("Deadline %d, want Never", d)
	}
}

func TestDelay(t *testing.T) {
	rec := newRecorder()
	f := wrap.Fault(rec, wrap.FaultConfig{Seed: 3, Delay: 1, MaxDelay: time.Millisecond})
	send(t, f, 100, newRun(0, 50, 64, 0))
	if len(rec.sent) != 0 {
		t.Fatalf("frames went at once: %v, want none", psns(rec.sent))
	}
	in := make([]link.Run, 1)
	last := ib.Instant(100)
	for n := 1; n <= 50; {
		d := f.Deadline()
		if d <= last || d > 100+ms {
			t.Fatalf("frame %d is due at %d, want after %d, at most %d", n, d, last, 100+ms)
		}
		if _, err := f.Recv(d-1, in); err != nil {
			t.Fatal(err)
		}
		if len(rec.sent) >= n {
			t.Fatalf("frame %d went before it was due", n)
		}
		if _, err := f.Recv(d, in); err != nil {
			t.Fatal(err)
		}
		if len(rec.sent) < n {
			t.Fatalf("frame %d did not go when it was due", n)
		}
		n, last = len(rec.sent)+1, d
	}
	got := psns(rec.sent)
	if slices.IsSorted(got) {
		t.Error("random delays keep the order")
	}
	slices.Sort(got)
	if len(slices.Compact(got)) != 50 {
		t.Errorf("frames %v, want every one of 50 once", got)
	}
}

// What the Link below does not take is kept, in order; the caller may change its buffers.
func TestFaultBlocked(t *testing.T) {
	rec := newRecorder()
	rec.take = 2
	f := wrap.Fault(rec, wrap.FaultConfig{Duplicate: 1})
	r := newRun(0, 3, 64, 0)
	send(t, f, 0, r)
	clear(r.Buf)
	if n, err := f.Send(0, []link.Run{newRun(3, 1, 64, 0)}); n != 0 || err != nil {
		t.Fatalf("Send = %d, %v while frames wait; want 0", n, err)
	}
	rec.take = 1
	if _, err := f.Recv(0, make([]link.Run, 1)); err != nil {
		t.Fatal(err)
	}
	rec.take = -1
	send(t, f, 0, newRun(3, 1, 64, 0))
	if diff := cmp.Diff([]int{0, 0, 1, 1, 2, 2, 3, 3}, psns(rec.sent)); diff != "" {
		t.Error(diff)
	}
}

func TestFaultOnRecv(t *testing.T) {
	rec := newRecorder()
	f := wrap.Fault(rec, wrap.FaultConfig{Seed: 1, Duplicate: 0.5, OnRecv: true})
	send(t, f, 0, newRun(0, 8, 64, 0))
	if len(rec.sent) != 1 {
		t.Fatalf("what is sent suffers faults: %v, want 1 run", psns(rec.sent))
	}
	r := newRun(0, 40, 64, 0)
	r.ID, r.KnownID = 5, true
	rec.rx = []link.Run{r}
	var got []int
	in := make([]link.Run, 3) // less than the pieces
	for {
		n, err := f.Recv(0, in)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			break
		}
		for i := range in[:n] {
			if first := psns(in[i : i+1])[0] == 0; in[i].KnownID != first {
				t.Errorf("piece that begins with frame %d: KnownID %v, want %v", psns(in[i : i+1])[0], in[i].KnownID,
					first)
			}
		}
		got = append(got, psns(in[:n])...)
	}
	if c := f.Counts(); len(got) != 40+int(c.Duplicated) || c.Duplicated == 0 || !slices.IsSorted(got) {
		t.Errorf("received %v, counts %+v; want %d received, in order, some twice", got, c, 40+int(c.Duplicated))
	}
}

// What happens to sent frames does not depend on received ones, and is not the same.
func TestDirections(t *testing.T) {
	fates := func(onRecv bool) (sent, received []int) {
		rec := newRecorder()
		f := wrap.Fault(rec, wrap.FaultConfig{Seed: 1, Drop: 0.3, OnSend: true, OnRecv: onRecv})
		rec.rx = []link.Run{newRun(0, 60, 64, 0)}
		in := make([]link.Run, 60)
		n, err := f.Recv(0, in)
		if err != nil {
			t.Fatal(err)
		}
		send(t, f, 0, newRun(0, 60, 64, 0))
		return psns(rec.sent), psns(in[:n])
	}
	alone, all := fates(false)
	sent, received := fates(true)
	if len(all) != 60 || !slices.Equal(sent, alone) || slices.Equal(sent, received) {
		t.Errorf("faults on send: sent %v, received %v; on both: %v, %v; want the same sent, others received",
			alone, all, sent, received)
	}
}

// The number of delayed frames is limited: further ones are passed on at once.
func TestHeldBound(t *testing.T) {
	rec := newRecorder()
	f := wrap.Fault(rec, wrap.FaultConfig{Delay: 1})
	for range 100 {
		send(t, f, 0, newRun(0, 64, 64, 0))
	}
	if c := f.Counts(); c.Delayed != 4096 || c.Passed != 6400-4096 {
		t.Errorf("counts %+v, want 4096 delayed", c)
	}
	if _, err := f.Recv(ms, make([]link.Run, 1)); err != nil {
		t.Fatal(err)
	}
	if n := len(linktest.Frames(rec.sent...)); n != 6400 {
		t.Errorf("%d frames sent, want 6400", n)
	}
}

func TestFaultNoAllocation(t *testing.T) {
	for _, c := range []wrap.FaultConfig{
		{Seed: 1, Drop: 0.1, Duplicate: 0.1, Reorder: 0.1, Delay: 0.1},
		{Rate: 4e8, Buffer: 10 * time.Millisecond}, // more is sent: thousands of frames wait
	} {
		f := wrap.Fault(&sink{newRecorder()}, c)
		out := []link.Run{newRun(0, 60, 64, 32)}
		now := ib.Instant(0)
		step := func() {
			now += ms / 10
			_, _ = f.Send(now, out)
		}
		for range 1000 {
			step()
		}
		if n := testing.AllocsPerRun(1, func() {
			for range 1000 {
				step()
			}
		}); n > 10 {
			t.Errorf("%+v: %v allocations in 1,000 Sends, want at most 10", c, n)
		}
	}
}

// sink is a recorder that keeps nothing.
type sink struct{ *recorder }

func (*sink) Send(_ ib.Instant, out []link.Run) (int, error) { return len(out), nil }
