package wrap_test

import (
	"math"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/mem"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/wire"
)

// outer returns the headers of a run's first frame, as a receiver knows them.
func outer(r *link.Run) wire.Outer {
	return wire.Outer{Src: r.Src, Dst: r.Dst, SrcPort: r.SrcPort, DstPort: link.Port, ID: r.ID}
}

func TestSeal(t *testing.T) {
	tests := []struct {
		name    string
		rule    link.IDRule
		srcPort uint16   // fixed
		ids     []uint16 // of two runs of two frames
	}{
		{"zero", link.IDZero, link.Port, []uint16{0, 0, 0, 0}},
		{"index", link.IDIndex, link.Port, []uint16{0, 1, 0, 1}},
		{"free, free source port", link.IDFree, 0, []uint16{0, 1, 2, 3}},
	}
	for _, tt := range tests {
		rec := newRecorder()
		rec.caps.ID, rec.caps.FixedSrcPort = tt.rule, tt.srcPort
		l := wrap.Seal(rec)
		send(t, l, 0, newRun(0, 2, 64, 0), newRun(2, 1, 1040, 16))
		n := 0
		for i := range rec.sent {
			r := &rec.sent[i]
			o := outer(r)
			if tt.srcPort != 0 {
				o.SrcPort = tt.srcPort
			}
			if tt.rule == link.IDFree && r.ID != tt.ids[n] {
				t.Errorf("%s: run %d has ID %d, want %d", tt.name, i, r.ID, tt.ids[n])
			}
			for j := range r.Frames() {
				o.ID = tt.ids[n]
				if !o.Check(r.Frame(j)) {
					t.Errorf("%s: run %d frame %d: ICRC is not right for ID %d", tt.name, i, j, o.ID)
				}
				n++
			}
		}
	}
}

// Identifications wrap around; frames that are too short to be sealed are ignored.
func TestSealLimits(t *testing.T) {
	rec := newRecorder()
	l := wrap.Seal(rec)
	for range 1025 {
		send(t, l, 0, newRun(0, 64, 16, 0))
	}
	last := &rec.sent[1024]
	o := outer(last)
	if last.ID != 0 || !o.Check(last.Frame(0)) {
		t.Errorf("after 65536 frames the ID is %d, want 0", last.ID)
	}
	send(t, l, 0, link.Run{}, link.Run{Size: 4, Buf: make([]byte, 15)}, link.Run{Size: -1, Buf: make([]byte, 15)})
}

func TestLoopback(t *testing.T) {
	rec := newRecorder()
	rec.caps.ID, rec.caps.FixedSrcPort = link.IDIndex, link.Port
	second := ib.GID{0: 0xFD, 15: 7}
	rec.caps.Local = append(rec.caps.Local, second)
	l := wrap.Seal(wrap.Loopback(rec))

	away, own, own6 := newRun(0, 2, 64, 0), newRun(2, 2, 64, 32), newRun(5, 1, 64, 0)
	own.Dst = local
	own6.Src, own6.Dst = second, second
	send(t, l, 0, away, own, own6, away)
	if got := psns(rec.sent); len(got) != 4 || got[0] != 0 {
		t.Errorf("PSNs %v went down, want those of two runs to others", got)
	}
	rec.rx = []link.Run{newRun(9, 1, 64, 0)}
	rec.rx[0].Src, rec.rx[0].Dst = peer, local
	in := make([]link.Run, 8)
	n, err := l.Recv(0, in)
	if n != 3 || err != nil {
		t.Fatalf("Recv = %d, %v; want 3 runs", n, err)
	}
	if got := psns(in[:n]); len(got) != 5 || got[0] != 2 || got[4] != 9 {
		t.Errorf("PSNs %v came back, want 2 3 4 5 9", got)
	}
	for i := range in[:2] {
		o := outer(&in[i])
		if !in[i].KnownID || o.SrcPort != link.Port {
			t.Errorf("looped run %+v, want its ID known and the port that the link uses", in[i])
		}
		for j := range in[i].Frames() {
			if o.ID = uint16(j); !o.Check(in[i].Frame(j)) {
				t.Errorf("looped run %d frame %d has a wrong ICRC", i, j)
			}
		}
	}
	if s := l.Stats(); s.TxFrames != 4 || s.RxFrames != 4 {
		t.Errorf("stats %+v, want 4 frames looped", s)
	}
}

// Runs to an address are looped as long as the link has it.
func TestLoopbackAddresses(t *testing.T) {
	n := mem.NewNetwork()
	l := wrap.Loopback(n.Open([]ib.GID{local}, mem.Options{}))
	later := ib.GID{10: 0xFF, 11: 0xFF, 12: 10, 15: 9}
	in := make([]link.Run, 4)
	for i, has := range []bool{false, true, false} {
		switch i {
		case 1:
			if err := l.AddLocal(later); err != nil {
				t.Fatal(err)
			}
		case 2:
			if err := l.RemoveLocal(later); err != nil {
				t.Fatal(err)
			}
		}
		before := l.Stats().TxErrors
		to, from := newRun(0, 1, 64, 0), newRun(1, 1, 64, 0)
		to.Dst, from.Src, from.Dst = later, later, local
		send(t, l, 0, to, from)
		got, _ := l.Recv(0, in)
		want := 0
		if has {
			want = 2
		}
		if lost := int(l.Stats().TxErrors - before); got != want || lost != 2-want {
			t.Errorf("with the address %v: %d runs come back, %d are lost; want %d and %d", has, got, lost, want,
				2-want)
		}
	}
}

// If the driver blocks, the order is kept: runs after the one that it does not take are not looped.
func TestLoopbackBlocked(t *testing.T) {
	rec := newRecorder()
	rec.take = 1
	l := wrap.Loopback(rec)
	away, own := newRun(0, 1, 64, 0), newRun(1, 1, 64, 0)
	own.Dst = local
	in := make([]link.Run, 8)
	if n, err := l.Send(0, []link.Run{own, away, own, away, own}); n != 3 || err != nil {
		t.Errorf("Send = %d, %v; want 3", n, err)
	}
	if n, _ := l.Recv(0, in); n != 2 {
		t.Errorf("%d runs came back, want 2", n)
	}
}

// TestLoopbackForged: what comes from below is not from the link itself, whatever it claims.
// Only what it has sent to a group comes back there, from its own port.
func TestLoopbackForged(t *testing.T) {
	later := ib.GID{10: 0xFF, 11: 0xFF, 12: 10, 15: 9}
	multicast := ib.GID{10: 0xFF, 11: 0xFF, 12: 239, 15: 1}
	for _, c := range []struct {
		name     string
		src, dst ib.GID
		port     uint16 // that the run comes from
		fixed    uint16 // Caps.FixedSrcPort
		taken    bool
	}{
		{"another host", peer, local, 0xC000, 0, true},
		{"oneself", local, local, 0xC000, 0, false},
		{"oneself, right port", local, local, link.Port, link.Port, false},
		{"an address that came later", later, local, 0xC000, 0, false},
		{"to a group", local, multicast, 0xC000, 0, true},
		{"to a group, right port", local, multicast, link.Port, link.Port, true},
		{"to a group, another port", local, multicast, 0xC000, link.Port, false},
		{"to a group, another host", peer, multicast, 0xC000, link.Port, true},
	} {
		below := newRecorder()
		below.caps.FixedSrcPort = c.fixed
		l := wrap.Loopback(below)
		if err := l.AddLocal(later); err != nil {
			t.Fatal(err)
		}
		run, honest := newRun(0, 3, 64, 0), newRun(7, 1, 64, 0)
		run.Src, run.Dst, run.SrcPort = c.src, c.dst, c.port
		honest.Src, honest.Dst = peer, local
		below.rx = []link.Run{run, honest}
		in := make([]link.Run, 8)
		n, _ := l.Recv(0, in)
		want, forged := 2, uint64(0)
		if !c.taken {
			want, forged = 1, 3
		}
		if n != want || in[n-1].Frame(0)[12] != honest.Frame(0)[12] {
			t.Errorf("%s: %d runs received, want %d, the last an honest one", c.name, n, want)
		}
		if s := l.Stats(); s.RxForged != forged {
			t.Errorf("%s: %d frames counted as forged, want %d", c.name, s.RxForged, forged)
		}
	}
}

func TestLoopbackOverflow(t *testing.T) {
	l := wrap.Loopback(newRecorder())
	own := newRun(0, 62, 1040, 0)
	own.Dst = local
	for range 100 {
		send(t, l, 0, own)
	}
	bad := own
	bad.Size = 0
	send(t, l, 0, bad)
	s := l.Stats()
	if s.RxOverflow == 0 || s.TxErrors != 1 {
		t.Errorf("stats %+v, want frames dropped and one refused", s)
	}
	in, got := make([]link.Run, 8), uint64(0)
	for n := -1; n != 0; got += uint64(max(n, 0)) * 62 {
		n, _ = l.Recv(0, in)
	}
	if got+s.RxOverflow != 6200 {
		t.Errorf("%d frames came back, %d were dropped; want 6200 together", got, s.RxOverflow)
	}
}

// Corrupt damages as many frames as it counts, leaves runs whole, and does not touch the caller's frames.
func TestCorrupt(t *testing.T) {
	for _, p := range []float64{1, 0.1} {
		rec := newRecorder()
		c := wrap.Corrupt(rec, wrap.FaultConfig{Seed: 1, Corrupt: p})
		l := wrap.Seal(c)
		out := newRun(0, 49, 64, 16)
		for range 100 {
			send(t, l, 0, out)
		}
		bad := len(badICRCs(rec.sent))
		if n := c.Counts().Corrupted; bad != int(n) || math.Abs(float64(bad)-5000*p) > 100 || len(rec.sent) != 100 {
			t.Errorf("%d of 5000 frames are damaged, %d counted, want about %.0f; %d runs, want 100", bad, n, 5000*p,
				len(rec.sent))
		}
		o := outer(&out)
		if o.ID = rec.sent[99].ID; !o.Check(out.Frame(0)) {
			t.Error("the caller's frame was damaged")
		}
	}
}

// TestSealForRxe: only FLUSH has a different ICRC.
func TestSealForRxe(t *testing.T) {
	for _, opcode := range []wire.Opcode{wire.RCFlush, wire.RCReadRequest} {
		rec := newRecorder()
		run := newRun(0, 1, 64, 0)
		run.Buf[0] = byte(opcode)
		send(t, wrap.SealForRxe(rec), 0, run)
		o := outer(&rec.sent[0])
		o.Twice = opcode == wire.RCFlush
		if !o.Check(rec.sent[0].Frame(0)) {
			t.Errorf("%v: the ICRC is not right", opcode)
		}
	}
}
