package ring

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/goroce/goroce/ib"
)

// The tests in this file simulate an application that writes arbitrary data into the
// buffer of a ring while the device uses the ring.

const (
	hostileEntries = 8
	hostileSGE     = 3
	hostileInline  = 100
)

// drainSend pops all requests and fails the test if one violates the limits of the
// ring. It returns the error that stopped it, if any.
func drainSend(t *testing.T, q *Send, wr *ib.SendWR) error {
	t.Helper()
	if n := q.Len(); n < 0 || n > hostileEntries {
		t.Fatalf("Len %d, want 0 to the %d entries", n, hostileEntries)
	}
	for range hostileEntries {
		ok, err := q.Pop(wr)
		if bad := known(t, ok, err); !ok || bad {
			return err
		}
		q.Release(1)
		if err != nil {
			continue
		}
		if len(wr.SGL) > hostileSGE || len(wr.Inline) > hostileInline || total(wr.SGL) > MaxMessage ||
			int(wr.Opcode) >= len(rules) || !rules[wr.Opcode].known {
			t.Fatalf("popped %+v, want at most %d pieces and %d bytes inline, and a known opcode", wr, hostileSGE,
				hostileInline)
		}
	}
	return nil
}

// known checks that an error of Pop is one of those that it may have, and reports whether there is one
// about the indices.
func known(t *testing.T, ok bool, err error) (corrupt bool) {
	t.Helper()
	switch status := Status(err); {
	case err == nil, ok && (status == ib.WCLocQPOpErr || status == ib.WCLocLenErr):
		return false
	case !ok && errors.Is(err, ErrCorrupt) && status == ib.WCSuccess:
		return true
	}
	t.Fatalf("popped %v: error %v", ok, err)
	return true
}

func drainRecv(t *testing.T, q *Recv, wr *ib.RecvWR) {
	t.Helper()
	if n := q.Available(); n < 0 || n > hostileEntries {
		t.Fatalf("Available %d, want 0 to the %d entries", n, hostileEntries)
	}
	for range hostileEntries {
		ok, err := q.Pop(wr)
		if known(t, ok, err); !ok {
			return
		}
		q.Release(1)
		if err != nil {
			continue
		}
		if len(wr.SGL) > hostileSGE || total(wr.SGL) > MaxMessage {
			t.Fatalf("popped %+v, want at most %d pieces and %d bytes", wr, hostileSGE, MaxMessage)
		}
	}
}

// scribble overwrites some random bytes of b: in indices, starts of slots, or anywhere.
func scribble(rng *rand.Rand, b []byte, slotSize int) {
	slot := func() int { return slotsOffset + rng.IntN((len(b)-slotsOffset)/slotSize)*slotSize }
	for range 1 + rng.IntN(8) {
		switch rng.IntN(5) {
		case 0:
			binary.NativeEndian.PutUint32(b[[]int{prodOffset, consOffset, wakeOffset}[rng.IntN(3)]:], rng.Uint32())
		case 1:
			binary.NativeEndian.PutUint32(b[prodOffset:], uint32(rng.IntN(2*hostileEntries)))
		case 2:
			b[slot()+8+rng.IntN(8)] = byte(rng.IntN(20)) // opcode, flags, counts
		case 3:
			b[rng.IntN(len(b))] = byte(rng.Uint32())
		case 4:
			for i, s := 0, slot(); i < slotSize; i++ {
				b[s+i] = byte(rng.Uint32())
			}
		}
	}
}

func TestHostileProducer(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	var swr ib.SendWR
	var rwr ib.RecvWR
	corrupt := 0
	for range 5000 {
		sb, s := newSend(t, hostileEntries, hostileSGE, hostileInline)
		rb, r := newRecv(t, hostileEntries, hostileSGE)
		s.Prepare(&swr)
		r.Prepare(&rwr)
		for range 4 {
			scribble(rng, sb, int(s.slotSize))
			scribble(rng, rb, int(r.slotSize))
			if drainSend(t, s, &swr) != nil {
				corrupt++
			}
			drainRecv(t, r, &rwr)
		}
	}
	if corrupt == 0 || corrupt == 20000 {
		t.Errorf("%d of 20000 rounds were corrupt: the test tries nothing", corrupt)
	}
}

// TestProducerIndexBounds checks that Pop accepts producer indices from popped to popped
// plus the free slots, and no others.
func TestProducerIndexBounds(t *testing.T) {
	for _, c := range []struct {
		popped, released int
		prod             uint32
		want             int // entries to pop; -1 for corrupt
	}{
		{0, 0, 0, 0}, {0, 0, 8, 8}, {0, 0, 9, -1}, {0, 0, 0xFFFFFFFF, -1}, {0, 0, 1 << 31, -1},
		{5, 0, 8, 3}, {5, 0, 9, -1}, {5, 0, 4, -1}, {5, 2, 10, 5}, {5, 2, 11, -1}, {5, 5, 13, 8}, {5, 5, 14, -1},
	} {
		b, q := newSend(t, hostileEntries, hostileSGE, hostileInline)
		var wr ib.SendWR
		q.Prepare(&wr)
		for range c.popped {
			push(t, q, &ib.SendWR{Opcode: ib.WRSend})
		}
		q.Publish()
		for range c.popped {
			pop(t, q, &wr)
		}
		q.Release(c.released)
		for i := range hostileEntries { // a valid request in every slot
			b[slotsOffset+i*int(q.slotSize)+8] = byte(ib.WRSend)
		}
		binary.NativeEndian.PutUint32(b[prodOffset:], c.prod)
		got := 0
		for got <= 2*hostileEntries {
			ok, err := q.Pop(&wr)
			if err != nil {
				got = -1
			}
			if !ok {
				break
			}
			got++
		}
		if got != c.want {
			t.Errorf("%d popped, %d released, producer index %#x: popped %d more, want %d", c.popped, c.released,
				c.prod, got, c.want)
		}
	}
}

// TestHostileConsumer checks that an invalid consumer index causes an overrun, and that
// the device writes only to slots that are free according to the index.
func TestHostileConsumer(t *testing.T) {
	for _, c := range []struct {
		cons uint32
		want int // completions that still fit
	}{
		{0, 0}, {1, 1}, {4, 4}, {5, 0}, {0xFFFFFFFF, 0}, {1 << 31, 0},
	} {
		b, q := newCQ(t, 4)
		for range 4 {
			q.Push(&ib.WC{})
		}
		binary.NativeEndian.PutUint32(b[consOffset:], c.cons)
		got := 0
		for got < 10 && q.Push(&ib.WC{}) {
			got++
		}
		if got != c.want {
			t.Errorf("consumer index %#x with producer index 4: %d completions fit, want %d", c.cons, got, c.want)
		}
		binary.NativeEndian.PutUint32(b[wakeOffset:], 0xDEAD)
		if !q.TakeArm(false) || q.TakeArm(false) {
			t.Error("a nonsense wake word is one event, not more")
		}
	}
}

// TestHeaderIsNotReadBack checks that the device never reads the header in the buffer.
func TestHeaderIsNotReadBack(t *testing.T) {
	b, q := newSend(t, hostileEntries, hostileSGE, hostileInline)
	clear(b[:prodOffset])
	push(t, q, &ib.SendWR{ID: 7, Opcode: ib.WRSend})
	q.Publish()
	var wr ib.SendWR
	if pop(t, q, &wr); wr.ID != 7 {
		t.Errorf("popped request %d, want 7", wr.ID)
	}
}

// TestIndicesAreNotReadBack checks that a new ring is empty for the device although the application, which may have
// the buffer already, writes indices into it while the device formats it.
func TestIndicesAreNotReadBack(t *testing.T) {
	b, _ := newSend(t, hostileEntries, hostileSGE, hostileInline)
	h := *(*header)(unsafe.Pointer(&b[0]))
	for off := prodOffset; off < wakeOffset; off++ {
		b[off] = 0xA5
	}
	r := newRing(b, &h)
	if r.next != 0 || r.published != 0 || r.consSeen != 0 || r.popped != 0 || r.released != 0 || r.prodSeen != 0 {
		t.Errorf("the device begins at the indices of the application: %+v, want all 0", r)
	}
}

func FuzzHostileProducer(f *testing.F) {
	b := Alloc(SendSize(hostileEntries, hostileSGE, hostileInline))
	q, err := NewSend(b, hostileEntries, hostileSGE, hostileInline)
	if err != nil {
		f.Fatal(err)
	}
	push(f, q, &ib.SendWR{Opcode: ib.WRSend, SGL: make([]ib.SGE, 3)})
	push(f, q, &ib.SendWR{Opcode: ib.WRSend, Flags: ib.SendInline, Inline: make([]byte, 9)})
	q.Publish()
	f.Add(b)
	f.Fuzz(func(t *testing.T, data []byte) {
		b, q := newSend(t, hostileEntries, hostileSGE, hostileInline)
		copy(b, data)
		var wr ib.SendWR
		q.Prepare(&wr)
		drainSend(t, q, &wr)
		if dev, err := OpenSend(b); err == nil && dev.entries > MaxEntries {
			t.Fatalf("opened a ring of %d entries, want at most %d", dev.entries, MaxEntries)
		}
	})
}

// FuzzHostileConsumer has the application write arbitrary words to its rings at any time, while the
// device completes work and takes receives. The device must stay within the limits of the rings, write
// nothing but what its own side owns, and read no slot that was not free. Four bytes of the input are a step.
func FuzzHostileConsumer(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 1, 0, 0, 0, 2, 32, 3, 0, 1, 0, 0, 0, 3, 0, 0, 0})
	f.Add([]byte{4, 16, 5, 0, 5, 0, 0, 0, 4, 64, 255, 255, 5, 0, 0, 0, 4, 16, 9, 0, 5, 0, 0, 0})
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0, 2, 48, 1, 0, 6, 0, 0, 0, 2, 32, 255, 255, 6, 1, 0, 0})
	f.Fuzz(func(t *testing.T, script []byte) {
		cqBuf, cq := newCQ(t, hostileEntries)
		recvBuf, recv := newRecv(t, hostileEntries, hostileSGE)
		var rwr ib.RecvWR
		recv.Prepare(&rwr)
		write := func(b []byte, step []byte) {
			at, value := int(step[1])*4%len(b), uint32(int32(int16(binary.LittleEndian.Uint16(step[2:]))))
			binary.NativeEndian.PutUint32(b[at:], value)
		}
		for ; len(script) >= 4; script = script[4:] {
			switch script[0] % 7 {
			case 0, 1:
				for n := 0; cq.Push(&ib.WC{ID: uint64(n)}); n++ {
					if n == 2*cq.Entries() { // by the index that was read last, and by the current one
						t.Fatalf("more than %d completions fit, want at most %d", n, cq.Entries())
					}
				}
			case 2:
				write(cqBuf, script)
			case 3:
				if cq.TakeArm(script[1]%2 == 0) && cq.TakeArm(true) {
					t.Fatal("one word of the application is two events")
				}
			case 4:
				write(recvBuf, script)
			case 5:
				drainRecv(t, recv, &rwr)
			case 6: // a resize
				grown, larger := newCQ(t, hostileEntries<<(script[1]%2))
				if moved(cq.MoveTo(larger)) {
					cqBuf, cq = grown, larger
					if cq.next > cq.entries {
						t.Fatalf("%d completions were moved to a ring, want at most its %d entries", cq.next,
							cq.entries)
					}
				}
			}
		}
	})
}

// FuzzHostileDevice has the device write arbitrary data into the rings that it shares with an
// application, before it opens them and later. A ring that opens must be within its buffer, and
// posting and polling must stay within the limits that it was opened with. The input begins with the
// header of the buffer; then four bytes are a step.
func FuzzHostileDevice(f *testing.F) {
	const header, size = 64, 4096
	const most = 2 // rings: what is free by the index that was read last, and by the current one
	sb, _ := newSend(f, hostileEntries, hostileSGE, hostileInline)
	rb, _ := newRecv(f, hostileEntries, hostileSGE)
	cb, _ := newCQ(f, hostileEntries)
	for _, b := range [][]byte{sb, rb, cb} {
		f.Add(append(append([]byte(nil), b[:header]...), 1, 1, 1, 0, 0, 16, 9, 0, 1, 255, 0, 0, 0, 32, 255, 255, 2, 3,
			0, 0))
	}
	whole := Alloc(size + 2*Align)
	f.Fuzz(func(t *testing.T, script []byte) {
		clear(whole)
		b := whole[Align : Align+size]
		script = script[copy(b[:header], script):]
		send, _ := OpenSend(b)
		recv, _ := OpenRecv(b)
		cq, _ := OpenCQ(b)
		for ; len(script) >= 4; script = script[4:] {
			how := int(script[1])
			if script[0]%3 == 0 {
				at, value := how*4%len(b), uint32(int32(int16(binary.LittleEndian.Uint16(script[2:]))))
				binary.NativeEndian.PutUint32(b[at:], value)
				continue
			}
			if send != nil {
				n := 0
				wr := ib.SendWR{Opcode: ib.WRSend, SGL: make([]ib.SGE, how%4)}
				for n <= most*send.Entries() && send.Push(&wr) == nil {
					n++
				}
				_ = send.Push(&ib.SendWR{Opcode: ib.WRSend, Flags: ib.SendInline, Inline: make([]byte, how)})
				if send.Publish(); n > most*send.Entries() {
					t.Fatalf("%d requests fit a ring, want at most %d times its %d entries", n, most, send.Entries())
				}
			}
			if recv != nil {
				n := 0
				for n <= most*recv.Entries() && recv.Push(&ib.RecvWR{SGL: make([]ib.SGE, how%4)}) == nil {
					n++
				}
				if recv.Publish(); n > most*recv.Entries() {
					t.Fatalf("%d receives fit a ring, want at most %d times its %d entries", n, most, recv.Entries())
				}
			}
			if cq != nil {
				wcs := make([]ib.WC, how)
				if n := cq.Poll(wcs); n > min(how, cq.Entries()) {
					t.Fatalf("%d completions polled, want at most %d of a ring of %d", n, how, cq.Entries())
				}
				if n := cq.Len(); n < 0 || n > cq.Entries() {
					t.Fatalf("%d completions wait, want 0 to the %d entries", n, cq.Entries())
				}
				cq.Arm(how%2 == 0)
			}
		}
		for i, v := range whole {
			if v != 0 && (i < Align || i >= Align+size) {
				t.Fatalf("byte %d outside of the buffer is written", i-Align)
			}
		}
	})
}
