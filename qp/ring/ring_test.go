package ring

import (
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/goroce/goroce/ib"
)

// start is an index that wraps after a few entries.
const start = math.MaxUint32 - 5

// newSend returns a buffer and one handle for both sides.
func newSend(t testing.TB, entries, maxSGE, maxInline int) ([]byte, *Send) {
	t.Helper()
	b := Alloc(SendSize(entries, maxSGE, maxInline))
	q, err := NewSend(b, entries, maxSGE, maxInline)
	if err != nil {
		t.Fatal(err)
	}
	return b, q
}

func newRecv(t testing.TB, entries, maxSGE int) ([]byte, *Recv) {
	t.Helper()
	b := Alloc(RecvSize(entries, maxSGE))
	q, err := NewRecv(b, entries, maxSGE)
	if err != nil {
		t.Fatal(err)
	}
	return b, q
}

func newCQ(t testing.TB, entries int) ([]byte, *CQ) {
	t.Helper()
	b := Alloc(CQSize(entries))
	q, err := NewCQ(b, entries)
	if err != nil {
		t.Fatal(err)
	}
	return b, q
}

// startAt sets both indices of an empty ring to i, for handles opened later.
func startAt(b []byte, i uint32) {
	binary.NativeEndian.PutUint32(b[prodOffset:], i)
	binary.NativeEndian.PutUint32(b[consOffset:], i)
}

func second[T any](_ T, err error) error { return err }

func push(t testing.TB, q *Send, wr *ib.SendWR) {
	t.Helper()
	if err := q.Push(wr); err != nil {
		t.Fatalf("Push: %v", err)
	}
}

// pop calls Pop and fails the test if there is no entry.
func pop(t testing.TB, q *Send, wr *ib.SendWR) {
	t.Helper()
	if ok, err := q.Pop(wr); !ok || err != nil {
		t.Fatalf("Pop: %v, %v; want an entry", ok, err)
	}
}

func wantEmpty(t testing.TB, q *Send) {
	t.Helper()
	var wr ib.SendWR
	if ok, err := q.Pop(&wr); ok || err != nil {
		t.Fatalf("Pop: %v, %v; want no entry", ok, err)
	}
}

// drawSend draws a request that a ring with these limits accepts.
func drawSend(t *rapid.T, maxSGE, maxInline int) ib.SendWR {
	opcodes := []ib.WROpcode{ib.WRWrite, ib.WRWriteImm, ib.WRSend, ib.WRSendImm, ib.WRSendInv, ib.WRRead,
		ib.WRCompareSwap, ib.WRFetchAdd, ib.WRAtomicWrite, ib.WRLocalInv, ib.WRBindMW, ib.WRFlush}
	wr := ib.SendWR{
		ID: rapid.Uint64().Draw(t, "id"), Opcode: rapid.SampledFrom(opcodes).Draw(t, "opcode"),
		Flags: ib.SendFlags(rapid.Uint8Range(0, 7).Draw(t, "flags")), Imm: rapid.Uint32().Draw(t, "imm"),
		RemoteAddr: rapid.Uint64().Draw(t, "addr"),
		RKey:       ib.Key(rapid.Uint32().Draw(t, "rkey")), Compare: rapid.Uint64().Draw(t, "compare"),
		Swap: rapid.Uint64().Draw(t, "swap"),
		AH:   ib.AHNum(rapid.Uint32().Draw(t, "ah")), RemoteQPN: ib.QPN(rapid.Uint32Range(0, 1<<24-1).Draw(t, "qpn")),
		RemoteQKey: rapid.Uint32().Draw(t, "qkey"), RemoteSRQ: rapid.Uint32Range(0, 1<<24-1).Draw(t, "srq"),
	}
	drawArguments(t, &wr)
	sge := func(length uint32) ib.SGE {
		return ib.SGE{Addr: rapid.Uint64().Draw(t, "sge"), Length: length, LKey: ib.Key(rapid.Uint32().Draw(t, "lkey"))}
	}
	r := rules[wr.Opcode]
	if r.aligned {
		wr.RemoteAddr &^= 7
	}
	switch {
	case r.noSGL:
	case r.minLen > 0:
		wr.SGL = []ib.SGE{sge(uint32(r.minLen))}
	case r.inline && rapid.Bool().Draw(t, "inline"):
		wr.Flags |= ib.SendInline
		wr.Inline = rapid.SliceOfN(rapid.Byte(), 0, maxInline).Draw(t, "payload")
	default:
		for range rapid.IntRange(0, maxSGE).Draw(t, "sges") {
			wr.SGL = append(wr.SGL, sge(rapid.Uint32Range(0, MaxMessage/MaxSGE).Draw(t, "len")))
		}
	}
	return wr
}

// drawArguments draws the fields that only some opcodes have, and clears the fields that
// share bytes of the slot with them.
func drawArguments(t *rapid.T, wr *ib.SendWR) {
	switch wr.Opcode {
	case ib.WRSendInv, ib.WRLocalInv:
		wr.Imm, wr.InvalidateKey = 0, ib.Key(rapid.Uint32().Draw(t, "inv"))
	case ib.WRBindMW:
		wr.Imm, wr.RemoteAddr, wr.Compare, wr.Swap = 0, 0, 0, 0
		wr.Bind = ib.MWBind{LKey: ib.Key(rapid.Uint32().Draw(t, "bind key")), Addr: rapid.Uint64().Draw(t, "bind addr"),
			Length: rapid.Uint64().Draw(t, "bind len"), Access: ib.Access(rapid.Uint32().Draw(t, "bind access"))}
	case ib.WRFlush:
		wr.Compare, wr.Swap = 0, 0
		wr.Flush = ib.Flush{Length: rapid.Uint32().Draw(t, "flush len"),
			Level:  ib.FlushLevel(rapid.Uint8Range(1, 3).Draw(t, "level")),
			Extent: ib.FlushExtent(rapid.Uint8Range(0, 1).Draw(t, "extent"))}
	}
}

// TestSendModel compares a send ring, with both sides attached separately and indices
// that wrap, with a plain queue.
func TestSendModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		entries := 1 << rapid.IntRange(0, 4).Draw(t, "log entries")
		maxSGE, maxInline := rapid.IntRange(1, MaxSGE).Draw(t, "max SGE"), rapid.IntRange(0, 200).Draw(t, "max inline")
		b := Alloc(SendSize(entries, maxSGE, maxInline))
		if _, err := NewSend(b, entries, maxSGE, maxInline); err != nil {
			t.Fatal(err)
		}
		startAt(b, start)
		app, err := OpenSend(b)
		if err != nil {
			t.Fatal(err)
		}
		dev, _ := OpenSend(b)
		var pushed, published []ib.SendWR
		popped := 0
		var got ib.SendWR
		dev.Prepare(&got)
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				wr := drawSend(t, maxSGE, maxInline)
				err := app.Push(&wr)
				if full := len(pushed)+len(published)+popped == entries; full != errors.Is(err, ib.ErrQueueFull) ||
					!full && err != nil {
					t.Fatalf("Push: %v with %d+%d+%d of %d slots taken, want %v only if all are", err, len(pushed),
						len(published), popped, entries, ib.ErrQueueFull)
				}
				if err == nil {
					pushed = append(pushed, wr)
				}
			},
			"publish": func(*rapid.T) {
				app.Publish()
				published, pushed = append(published, pushed...), nil
			},
			"pop": func(t *rapid.T) {
				ok, err := dev.Pop(&got)
				if err != nil || ok != (len(published) > 0) {
					t.Fatalf("Pop: %v, %v with %d published; want %v", ok, err, len(published), len(published) > 0)
				}
				if !ok {
					return
				}
				if d := cmp.Diff(published[0], got, cmpopts.EquateEmpty()); d != "" {
					t.Fatalf("request changed on its way (-pushed +popped):\n%s", d)
				}
				published = published[1:]
				popped++
			},
			"release": func(t *rapid.T) {
				n := rapid.IntRange(0, popped).Draw(t, "n")
				dev.Release(n)
				popped -= n
			},
			"": func(t *rapid.T) {
				if dev.Len() != len(published) {
					t.Fatalf("Len %d, want %d", dev.Len(), len(published))
				}
			},
		})
	})
}

func TestRecvWrapsAndFills(t *testing.T) {
	b, _ := newRecv(t, 4, 3)
	startAt(b, start)
	app, err := OpenRecv(b)
	if err != nil {
		t.Fatal(err)
	}
	dev, _ := OpenRecv(b)
	var got ib.RecvWR
	dev.Prepare(&got)
	sgl := []ib.SGE{{Addr: 1, Length: 2, LKey: 3}, {Addr: 1 << 63, Length: 1 << 20, LKey: math.MaxUint32}, {}}
	for round := range uint64(4) {
		for i := range uint64(4) {
			if err := app.Push(&ib.RecvWR{ID: round<<8 | i, SGL: sgl[:i%4]}); err != nil {
				t.Fatal(err)
			}
		}
		if dev.Available() != 0 {
			t.Fatal("receives show before Publish")
		}
		if app.Publish() {
			t.Error("a doorbell for a device that is not asleep")
		}
		if err := app.Push(&ib.RecvWR{}); !errors.Is(err, ib.ErrQueueFull) {
			t.Fatalf("Push to a full ring: %v, want %v", err, ib.ErrQueueFull)
		}
		for i := range uint64(4) {
			if n := dev.Available(); n != int(4-i) {
				t.Fatalf("Available %d, want %d", n, 4-i)
			}
			if ok, err := dev.Pop(&got); !ok || err != nil {
				t.Fatal(ok, err)
			}
			if d := cmp.Diff(ib.RecvWR{ID: round<<8 | i, SGL: sgl[:i%4]}, got, cmpopts.EquateEmpty()); d != "" {
				t.Fatal(d)
			}
		}
		if ok, err := dev.Pop(&got); ok || err != nil {
			t.Fatal(ok, err)
		}
		dev.Release(4)
	}
}

// allFieldsWC has a different value in every field.
var allFieldsWC = ib.WC{ID: 0x0102030405060708, SL: 10, Status: ib.WCRetryExcErr, Opcode: ib.WCRecvImm,
	Flags:     ib.WCGRH | ib.WCWithInv,
	VendorErr: 0x11111111, ByteLen: 0x22222222, Imm: 0x33333333, InvalidatedKey: 0x44444444, QPN: 0x555555,
	SrcQP: 0x666666, Timestamp: -7}

func TestCQWrapsAndFills(t *testing.T) {
	b, _ := newCQ(t, 4)
	startAt(b, start)
	dev, err := OpenCQ(b)
	if err != nil {
		t.Fatal(err)
	}
	app, _ := OpenCQ(b)
	wcs := make([]ib.WC, 8)
	for round := range uint64(4) {
		wc := allFieldsWC
		for i := range uint64(4) {
			wc.ID = round<<8 | i
			if !dev.Push(&wc) {
				t.Fatal("full too early")
			}
		}
		if dev.Push(&wc) {
			t.Fatal("a fifth completion in four slots")
		}
		if app.Len() != 4 {
			t.Fatalf("Len %d, want 4", app.Len())
		}
		if n := app.Poll(wcs[:1]) + app.Poll(wcs[1:]); n != 4 || app.Poll(wcs) != 0 {
			t.Fatalf("polled %d, want 4", n)
		}
		for i := range uint64(4) {
			wc.ID = round<<8 | i
			if d := cmp.Diff(wc, wcs[i]); d != "" {
				t.Fatal(d)
			}
		}
	}
}

// TestNoEntries checks that a queue of capacity zero is legal and accepts no requests.
func TestNoEntries(t *testing.T) {
	_, s := newSend(t, 0, 0, 0)
	if err := s.Push(&ib.SendWR{Opcode: ib.WRSend}); !errors.Is(err, ib.ErrQueueFull) {
		t.Error(err)
	}
	wantEmpty(t, s)
	_, r := newRecv(t, 0, 0)
	if err := r.Push(&ib.RecvWR{}); !errors.Is(err, ib.ErrQueueFull) {
		t.Error(err)
	}
}

func TestPushRefuses(t *testing.T) {
	_, q := newSend(t, 4, 2, 16)
	sge := func(lengths ...uint32) (l []ib.SGE) {
		for _, n := range lengths {
			l = append(l, ib.SGE{Length: n})
		}
		return l
	}
	for _, c := range []struct {
		attr string // the invalid field; empty if the request is valid
		wr   ib.SendWR
	}{
		{"", ib.SendWR{Opcode: ib.WRSend}},
		{"", ib.SendWR{Opcode: ib.WRWrite, SGL: sge(1<<31-1, 1)}},
		{"length", ib.SendWR{Opcode: ib.WRWrite, SGL: sge(1<<31-1, 2)}},
		{"length", ib.SendWR{Opcode: ib.WRRead, SGL: sge(math.MaxUint32, math.MaxUint32)}},
		{"SGL", ib.SendWR{Opcode: ib.WRSend, SGL: sge(0, 0, 0)}},
		{"Opcode", ib.SendWR{Opcode: 10}},
		{"Opcode", ib.SendWR{Opcode: 16}},
		{"Opcode", ib.SendWR{Opcode: 255}},
		{"Flags", ib.SendWR{Opcode: ib.WRSend, Flags: 16}},
		{"", ib.SendWR{Opcode: ib.WRSend, Flags: ib.SendInline, Inline: make([]byte, 16)}},
		{"Inline", ib.SendWR{Opcode: ib.WRSend, Flags: ib.SendInline, Inline: make([]byte, 17)}},
		{"Inline", ib.SendWR{Opcode: ib.WRSend, Inline: make([]byte, 1)}},
		{"SGL", ib.SendWR{Opcode: ib.WRSend, Flags: ib.SendInline, SGL: sge(1)}},
		{"Flags", ib.SendWR{Opcode: ib.WRRead, Flags: ib.SendInline}},
		{"", ib.SendWR{Opcode: ib.WRFetchAdd, RemoteAddr: 8, SGL: sge(8)}},
		{"length", ib.SendWR{Opcode: ib.WRFetchAdd, RemoteAddr: 8, SGL: sge(7)}},
		{"RemoteAddr", ib.SendWR{Opcode: ib.WRFetchAdd, RemoteAddr: 12, SGL: sge(8)}},
		{"RemoteAddr", ib.SendWR{Opcode: ib.WRCompareSwap, RemoteAddr: 1, SGL: sge(8)}},
		{"length", ib.SendWR{Opcode: ib.WRAtomicWrite, SGL: sge(16)}},
		{"", ib.SendWR{Opcode: ib.WRAtomicWrite, Flags: ib.SendInline, Inline: make([]byte, 8)}},
	} {
		err := q.Push(&c.wr)
		var attr *ib.AttrError
		switch {
		case c.attr == "" && err != nil:
			t.Errorf("%+v: %v, want no error", c.wr, err)
		case c.attr != "" && (!errors.As(err, &attr) || !errors.Is(err, ib.ErrInvalid) || attr.Attr != c.attr):
			t.Errorf("%+v: error %v, want one about %s", c.wr, err, c.attr)
		}
		if err == nil {
			q.Publish()
			var wr ib.SendWR
			pop(t, q, &wr)
			q.Release(1)
		}
	}
	q.Publish()
	wantEmpty(t, q)

	_, r := newRecv(t, 4, 2)
	for _, wr := range []ib.RecvWR{{SGL: sge(0, 0, 0)}, {SGL: sge(1<<31, 1)}} {
		if err := r.Push(&wr); !errors.Is(err, ib.ErrInvalid) {
			t.Errorf("%+v: %v, want %v", wr, err, ib.ErrInvalid)
		}
	}
}

// TestDoorbell checks that Publish asks for one doorbell for each Sleep of the device, and
// for none while the device is awake.
func TestDoorbell(t *testing.T) {
	_, q := newSend(t, 16, 1, 0)
	publish := func(want bool, why string) {
		t.Helper()
		push(t, q, &ib.SendWR{Opcode: ib.WRSend})
		if got := q.Publish(); got != want {
			t.Errorf("%s: doorbell %v, want %v", why, got, want)
		}
	}
	if q.Publish() {
		t.Error("doorbell with nothing published")
	}
	publish(true, "new ring: nobody looks at it yet")
	publish(false, "the doorbell is rung already")
	q.Sleep()
	if q.Len() != 2 {
		t.Error("the look after Sleep misses what was published before")
	}
	q.Awake()
	publish(false, "awake")
	q.Sleep()
	publish(true, "asleep")
	publish(false, "asleep, rung already")
}

func TestArm(t *testing.T) {
	const (
		any       = false
		solicited = true
	)
	for _, c := range []struct {
		name      string
		arm       []bool // solicitedOnly, in order
		solicited bool   // the completion
		want      bool
	}{
		{"not armed", nil, true, false},
		{"armed", []bool{any}, false, true},
		{"armed for solicited, unsolicited comes", []bool{solicited}, false, false},
		{"armed for solicited, solicited comes", []bool{solicited}, true, true},
		{"any after solicited", []bool{solicited, any}, false, true},
		{"solicited does not weaken any", []bool{any, solicited}, false, true},
	} {
		_, q := newCQ(t, 4)
		for _, a := range c.arm {
			q.Arm(a)
		}
		if got := q.TakeArm(c.solicited); got != c.want {
			t.Errorf("%s: event %v, want %v", c.name, got, c.want)
		}
		if c.want && q.TakeArm(true) {
			t.Errorf("%s: a second event", c.name)
		}
		if !c.want && len(c.arm) > 0 && !q.TakeArm(true) {
			t.Errorf("%s: disarmed without an event", c.name)
		}
	}
}

func TestZeroAllocations(t *testing.T) {
	_, s := newSend(t, 8, 4, 128)
	_, r := newRecv(t, 8, 4)
	_, c := newCQ(t, 8)
	var swr ib.SendWR
	var rwr ib.RecvWR
	s.Prepare(&swr)
	r.Prepare(&rwr)
	sgl := make([]ib.SGE, 4)
	withSGL := ib.SendWR{Opcode: ib.WRWrite, SGL: sgl}
	inline := ib.SendWR{Opcode: ib.WRSend, Flags: ib.SendInline, Inline: make([]byte, 128)}
	recv := ib.RecvWR{SGL: sgl}
	wcs := make([]ib.WC, 4)
	if n := testing.AllocsPerRun(100, func() {
		for _, wr := range []*ib.SendWR{&withSGL, &inline} {
			push(t, s, wr)
			s.Publish()
			pop(t, s, &swr)
			s.Release(1)
		}
		if r.Push(&recv) != nil {
			t.Fatal("push")
		}
		r.Publish()
		if ok, _ := r.Pop(&rwr); !ok {
			t.Fatal("pop")
		}
		r.Release(1)
		c.Arm(false)
		if !c.Push(&wcs[0]) || !c.TakeArm(false) || c.Poll(wcs) != 1 {
			t.Fatal("completion")
		}
	}); n != 0 {
		t.Errorf("%v allocations a round, want 0", n)
	}
}

func BenchmarkSend(b *testing.B) {
	_, q := newSend(b, 256, 4, 64)
	wr := ib.SendWR{Opcode: ib.WRWrite, SGL: []ib.SGE{{Addr: 1, Length: 2, LKey: 3}}}
	var got ib.SendWR
	q.Prepare(&got)
	for b.Loop() {
		if q.Push(&wr) != nil {
			b.Fatal("full")
		}
		q.Publish()
		if ok, _ := q.Pop(&got); !ok {
			b.Fatal("empty")
		}
		q.Release(1)
	}
}

func BenchmarkCQ(b *testing.B) {
	_, q := newCQ(b, 256)
	wc := allFieldsWC
	wcs := make([]ib.WC, 16)
	for b.Loop() {
		q.Push(&wc)
		q.Poll(wcs)
	}
}

// TestExactCQ checks that a CQ takes the completions that it was made for, and no more, although its ring
// has more slots.
func TestExactCQ(t *testing.T) {
	b, dev := newCQ(t, 5)
	app, err := OpenCQ(b)
	if err != nil || dev.Entries() != 5 {
		t.Fatalf("%d entries, %v; want 5", dev.Entries(), err)
	}
	for i := range 5 {
		if !dev.Push(&ib.WC{ID: uint64(i)}) {
			t.Fatalf("completion %d of 5 has no room", i)
		}
	}
	if dev.Push(&ib.WC{ID: 5}) {
		t.Error("5 entries hold 6 completions")
	}
	if _, small := newCQ(t, 4); moved(dev.MoveTo(small)) {
		t.Error("4 entries hold 5 completions")
	}
	var wcs [1]ib.WC
	if n := app.Poll(wcs[:]); n != 1 || !dev.Push(&ib.WC{ID: 5}) || dev.Push(&ib.WC{ID: 6}) {
		t.Errorf("%d polled; want 1, and then room for one", n)
	}
	if _, same := newCQ(t, 5); !moved(dev.MoveTo(same)) || same.Push(&ib.WC{}) {
		t.Error("5 entries have room for other than 5 completions")
	}
}

// TestDiscard: all slots are free afterwards, whether they were popped or not; with an invalid producer index, those
// that the device has seen.
func TestDiscard(t *testing.T) {
	const entries = 8
	for _, corrupt := range []bool{false, true} {
		b := Alloc(SendSize(entries, 1, 0))
		device, err := NewSend(b, entries, 1, 0)
		if err != nil {
			t.Fatal(err)
		}
		app, err := OpenSend(b)
		if err != nil {
			t.Fatal(err)
		}
		for id := range entries - 2 {
			if err := app.Push(&ib.SendWR{ID: uint64(id), Opcode: ib.WRSend}); err != nil {
				t.Fatal(err)
			}
		}
		app.Publish()
		var wr ib.SendWR
		if ok, err := device.Pop(&wr); !ok || err != nil {
			t.Fatal(ok, err)
		}
		if corrupt {
			*device.prod() = 1 << 20
		}
		device.Discard()
		if got := device.released; got != entries-2 {
			t.Errorf("corrupt %v: %d slots released, want %d", corrupt, got, entries-2)
		}
		if ok, err := device.Pop(&wr); ok || (err != nil) != corrupt {
			t.Errorf("corrupt %v: Pop returns %v, %v after Discard; want false, and an error only if corrupt", corrupt,
				ok, err)
		}
	}
}
