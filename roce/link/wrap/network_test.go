package wrap_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/wire"
)

// drain steps f from deadline to deadline until nothing waits, and returns the times
// at which frames came out of it.
func drain(t *testing.T, f link.Link, rec *recorder) (at []ib.Instant) {
	t.Helper()
	in := make([]link.Run, 1)
	for f.Deadline() != driver.Never {
		now, before := f.Deadline(), len(psns(rec.sent))
		if _, err := f.Recv(now, in); err != nil {
			t.Fatal(err)
		}
		for range len(psns(rec.sent)) - before {
			at = append(at, now)
		}
	}
	return at
}

func TestLatency(t *testing.T) {
	rec := newRecorder()
	f := wrap.Fault(rec, wrap.FaultConfig{Latency: 100 * time.Millisecond, Duplicate: 1})
	send(t, f, 5, newRun(0, 3, 64, 0))
	at := drain(t, f, rec)
	if diff := cmp.Diff([]int{0, 0, 1, 1, 2, 2}, psns(rec.sent)); diff != "" {
		t.Error(diff)
	}
	if len(at) != 6 || at[0] != 5+100*ms || at[5] != 5+100*ms {
		t.Errorf("arrived at %v, want all at %v", at, 5+100*ms)
	}
	if c := f.Counts(); c != (wrap.FaultCounts{Passed: 3, Duplicated: 3}) {
		t.Errorf("counts %+v, want %+v: latency is no fault", c, wrap.FaultCounts{Passed: 3, Duplicated: 3})
	}
}

// What is received has the way behind it, too.
func TestLatencyOnRecv(t *testing.T) {
	rec := newRecorder()
	f := wrap.Fault(rec, wrap.FaultConfig{Latency: time.Millisecond, OnRecv: true})
	rec.rx = []link.Run{newRun(0, 3, 64, 0)}
	in := make([]link.Run, 4)
	if n, err := f.Recv(5, in); n != 0 || err != nil || f.Deadline() != 5+ms {
		t.Fatalf("%d runs at once, %v; more at %v, want %v", n, err, f.Deadline(), 5+ms)
	}
	n, err := f.Recv(5+ms, in)
	if diff := cmp.Diff([]int{0, 1, 2}, psns(in[:n])); err != nil || diff != "" {
		t.Error(err, diff)
	}
}

// The path holds 16,384 frames; those beyond are lost.
func TestPathBound(t *testing.T) {
	rec := newRecorder()
	f := wrap.Fault(rec, wrap.FaultConfig{Latency: time.Second})
	for i := range uint32(400) {
		send(t, f, 0, newRun(50*i, 50, 16, 0))
	}
	if c := f.Counts(); c.Dropped != 20_000-16_384 {
		t.Errorf("counts %+v, want %d dropped", c, 20_000-16_384)
	}
}

func TestJitter(t *testing.T) {
	rec := newRecorder()
	f := wrap.Fault(rec, wrap.FaultConfig{Seed: 1, Latency: 2 * time.Millisecond, Jitter: time.Millisecond})
	send(t, f, 0, newRun(0, 200, 64, 0))
	at := drain(t, f, rec)
	if len(at) != 200 || at[0] < 2*ms || at[199] > 3*ms || at[199]-at[0] < ms/2 {
		t.Errorf("%d frames from %v to %v, want 200 from 2 to 3 ms", len(at), at[0], at[199])
	}
	if slices.IsSorted(psns(rec.sent)) {
		t.Error("none has overtaken another")
	}
}

func TestLate(t *testing.T) {
	rec := newRecorder()
	f := wrap.Fault(rec, wrap.FaultConfig{Seed: 1, Late: 0.3, LateBy: 5 * time.Millisecond})
	send(t, f, 0, newRun(0, 200, 64, 0))
	soon := len(psns(rec.sent))
	at := drain(t, f, rec)
	if soon < 120 || soon > 160 || len(at) != 200-soon || at[0] != 5*ms || at[len(at)-1] != 5*ms {
		t.Errorf("%d of 200 at once, %d later, at %v; want 120 to 160, the rest at %d", soon, len(at), at, 5*ms)
	}
}

// A bottleneck of 1 Gb/s sends a packet of 1,000 bytes in 8 us. With a buffer of 80 us
// it takes 11 that come at once.
func TestRate(t *testing.T) {
	const frame = 1000 - 28
	rec := newRecorder()
	lost := 0
	f := wrap.Fault(rec, wrap.FaultConfig{Rate: 1e9, Buffer: 80 * time.Microsecond,
		OnDrop: func(ib.Instant, *link.Run, []byte) { lost++ }})
	send(t, f, 0, newRun(0, 20, frame, 0))
	at := drain(t, f, rec)
	want := []ib.Instant{}
	for i := range ib.Instant(11) {
		want = append(want, (i+1)*8000)
	}
	if diff := cmp.Diff(want, at); diff != "" {
		t.Error(diff)
	}
	if c := f.Counts(); lost != 9 || c.Dropped != 9 {
		t.Errorf("%d lost, counts %+v, want 9", lost, c)
	}
	send(t, f, 100_000, newRun(20, 1, frame, 0))
	if d := f.Deadline(); d != 108_000 {
		t.Errorf("on the free path until %v, want 108 us", d)
	}
}

func TestBlackHole(t *testing.T) {
	rec := newRecorder()
	f := wrap.Fault(rec, wrap.FaultConfig{BlackHole: 1000})
	send(t, f, 0, newRun(0, 1, 1000-28, 0), newRun(1, 2, 1004-28, 500))
	if diff := cmp.Diff([]int{0, 3}, psns(rec.sent)); diff != "" {
		t.Errorf("packets of 1000, 1004, 1004 and 528 bytes (-want +got): %s", diff)
	}
}

// Bursts of 8 frames on average, 100 apart.
func TestBurst(t *testing.T) {
	rec := newRecorder()
	f := wrap.Fault(rec, wrap.FaultConfig{Seed: 1, Burst: wrap.Burst{Begin: 0.01, End: 0.125}})
	const n = 20_000
	for i := range uint32(n / 50) {
		send(t, f, 0, newRun(i*50, 50, 64, 0))
	}
	got := psns(rec.sent)
	bursts := 0
	for i, psn := range got {
		if i > 0 && psn != got[i-1]+1 {
			bursts++
		}
	}
	lost := n - len(got)
	if c := f.Counts(); int(c.Dropped) != lost {
		t.Errorf("counts %+v, want %d lost", c, lost)
	}
	if length := float64(lost) / float64(bursts); bursts < 150 || bursts > 220 || length < 7 || length > 9 {
		t.Errorf("%d bursts of %.1f frames, want about %d of 8", bursts, length, n/108)
	}
	// Five of seven frames are in bursts, and these lose a fifth.
	some := wrap.Fault(newRecorder(), wrap.FaultConfig{Seed: 1, Burst: wrap.Burst{Begin: 0.5, End: 0.2, Loss: 0.2}})
	for i := range uint32(n / 50) {
		send(t, some, 0, newRun(i*50, 50, 64, 0))
	}
	if c := some.Counts(); math.Abs(float64(c.Dropped)/n-1./7) > 0.01 {
		t.Errorf("counts %+v in bursts that lose a fifth, want %d dropped", c, n/7)
	}
}

func TestMarkCE(t *testing.T) {
	rec := newRecorder()
	f := wrap.Fault(rec, wrap.FaultConfig{Seed: 1, MarkCE: 0.5})
	r := newRun(0, 100, 64, 0)
	r.TrafficClass = 0x68
	send(t, f, 0, r)
	marked := 0
	for _, r := range rec.sent {
		switch r.TrafficClass {
		case 0x6B:
			marked += r.Frames()
		case 0x68:
		default:
			t.Errorf("traffic class %#x", r.TrafficClass)
		}
	}
	if c := f.Counts(); len(psns(rec.sent)) != 100 || int(c.Marked) != marked || marked < 30 {
		t.Errorf("%d marked, counts %+v; want at least 30 of 100, all counted", marked, c)
	}
}

func TestBadChecksum(t *testing.T) {
	rec := newRecorder()
	f := wrap.Fault(rec, wrap.FaultConfig{Seed: 1, BadChecksum: 0.5})
	send(t, f, 0, newRun(0, 100, 64, 0))
	if c := f.Counts(); c.BadChecksums < 30 || len(psns(rec.sent)) != 100-int(c.BadChecksums) {
		t.Errorf("%d arrived, want 30 of 100 or more lost; counts %+v: a kernel drops those with wrong checksums",
			len(psns(rec.sent)), c)
	}
	var taken []int
	f = wrap.Fault(newRecorder(), wrap.FaultConfig{BadChecksum: 1, OnBadChecksum: func(_ ib.Instant, r *link.Run) {
		taken = append(taken, psns([]link.Run{*r})...)
	}})
	send(t, f, 0, newRun(0, 3, 64, 0))
	if diff := cmp.Diff([]int{0, 1, 2}, taken); diff != "" {
		t.Error(diff)
	}
}

// Below the seal, in either direction, the ICRC shows all damage, and none but damage.
func TestNetworkDamage(t *testing.T) {
	damage := wrap.FaultConfig{Seed: 1, Drop: 0.1, Duplicate: 0.1, MarkCE: 0.1, Reorder: 0.1, Corrupt: 0.2,
		Truncate: 0.2}
	check := func(t *testing.T, got []link.Run, c wrap.FaultCounts) {
		t.Helper()
		bad, short := 0, 0
		for i := range got {
			r := &got[i]
			if r.Size > len(r.Buf) {
				t.Errorf("a run of %[2]d bytes has frames of %[1]d, want at most as many", r.Size, len(r.Buf))
			}
			for f := range r.Frames() {
				o := wire.Outer{Src: r.Src, Dst: r.Dst, SrcPort: r.SrcPort, DstPort: link.Port, ID: r.ID + uint16(f)}
				if !o.Check(r.Frame(f)) {
					bad++
				}
				if len(r.Frame(f)) < 64 {
					short++
				}
			}
		}
		if bad != int(c.Corrupted+c.Truncated) || short != int(c.Truncated) || c.Corrupted < 100 || c.Truncated < 100 {
			t.Errorf("%d frames with wrong ICRCs, %d short ones, counts %+v; want as many, at least 100 of each", bad,
				short, c)
		}
	}
	t.Run("sent", func(t *testing.T) {
		rec := newRecorder()
		n := wrap.Network(rec, damage)
		l := wrap.Seal(n)
		for i := range uint32(20) {
			send(t, l, 0, newRun(50*i, 50, 64, 0))
		}
		check(t, rec.sent, n.Counts())
	})
	t.Run("received", func(t *testing.T) {
		from := newRecorder()
		for i := range uint32(20) {
			send(t, wrap.Seal(from), 0, newRun(50*i, 1, 64, 0))
		}
		rec, got := newRecorder(), newRecorder()
		onRecv := damage
		onRecv.OnRecv = true
		n := wrap.Network(rec, onRecv)
		in := make([]link.Run, 8)
		for range 50 {
			rec.rx = slices.Clone(from.sent)
			for {
				k, err := n.Recv(0, in)
				if err != nil {
					t.Fatal(err)
				}
				if k == 0 {
					break
				}
				send(t, got, 0, in[:k]...)
			}
		}
		check(t, got.sent, n.Counts())
	})
	t.Run("above the seal", func(t *testing.T) {
		f := wrap.Fault(newRecorder(), damage)
		send(t, f, 0, newRun(0, 500, 64, 0))
		if c := f.Counts(); c.Corrupted+c.Truncated != 0 {
			t.Errorf("counts %+v, want none: what is damaged above the seal is sealed", c)
		}
	})
}

// Same seed, same frames at the same times: the same faults, on a path as well.
func TestDeterminism(t *testing.T) {
	run := func(seed uint64) ([]link.Run, wrap.FaultCounts) {
		rec := newRecorder()
		n := wrap.Network(rec, wrap.FaultConfig{Seed: seed, Drop: 0.05, Duplicate: 0.05, Reorder: 0.05, Delay: 0.05,
			Late: 0.05, LateBy: time.Millisecond, BadChecksum: 0.05, MarkCE: 0.05, Corrupt: 0.05, Truncate: 0.05,
			Burst: wrap.Burst{Begin: 0.01, End: 0.2}, Latency: time.Millisecond, Jitter: time.Millisecond,
			Rate: 1e8, Buffer: 20 * time.Microsecond})
		for i := range uint32(50) {
			send(t, n, ib.Instant(i)*ms/10, newRun(20*i, 20, 64, 0))
		}
		drain(t, n, rec)
		return rec.sent, n.Counts()
	}
	a, ca := run(42)
	b, cb := run(42)
	c, _ := run(43)
	if diff := cmp.Diff(a, b); diff != "" || ca != cb {
		t.Error("the same seed gives different faults: ", diff)
	}
	if cmp.Equal(a, c) {
		t.Error("different seeds give the same faults")
	}
	for what, n := range map[string]uint64{"dropped": ca.Dropped, "duplicated": ca.Duplicated,
		"reordered": ca.Reordered, "delayed": ca.Delayed, "bad checksums": ca.BadChecksums,
		"marked": ca.Marked, "corrupted": ca.Corrupted, "truncated": ca.Truncated} {
		if n == 0 {
			t.Errorf("no frames %s: counts %+v, want some", what, ca)
		}
	}
}

// A probability is that of all frames, whatever other faults there are, and together they may be 1.
func TestShares(t *testing.T) {
	const n = 20_000
	share := func(c wrap.FaultConfig) wrap.FaultCounts {
		f := wrap.Network(newRecorder(), c)
		for i := range uint32(n / 50) {
			send(t, f, 0, newRun(i*50, 50, 64, 0))
		}
		return f.Counts()
	}
	c := share(wrap.FaultConfig{Seed: 1, Drop: 0.3, Duplicate: 0.2, MarkCE: 0.1, Corrupt: 0.2, Truncate: 0.2})
	for what, s := range map[string]struct {
		got  uint64
		want float64
	}{"dropped": {c.Dropped, 0.3}, "duplicated": {c.Duplicated, 0.2}, "marked": {c.Marked, 0.1},
		"corrupted": {c.Corrupted, 0.2}, "truncated": {c.Truncated, 0.2}} {
		if math.Abs(float64(s.got)/n-s.want) > 0.015 {
			t.Errorf("%d of %d frames %s, want about %.0f %%", s.got, n, what, s.want*100)
		}
	}
	if c.Passed != c.Duplicated || c.Dropped+c.Passed+c.Marked+c.Corrupted+c.Truncated != n {
		t.Errorf("counts %+v, want one fault for each of %d frames", c, n)
	}
}

func TestPerfect(t *testing.T) {
	if c := (wrap.FaultConfig{Seed: 7, MaxDelay: 1, LateBy: 1, Buffer: 1, OnRecv: true}); !c.Perfect() {
		t.Errorf("%+v is not perfect, want it to be", c)
	}
	for _, c := range []wrap.FaultConfig{{Drop: 0.1}, {Late: 0.1}, {Truncate: 0.1}, {Latency: 1}, {Jitter: 1},
		{Rate: 1},
		{BlackHole: 1}, {Burst: wrap.Burst{Begin: 0.1}}} {
		if c.Perfect() {
			t.Errorf("%+v is perfect, want it not to be", c)
		}
	}
}
