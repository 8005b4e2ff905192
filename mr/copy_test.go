package mr

import (
	"bytes"
	"encoding/binary"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/goroce/goroce/ib"
)

// Every length at every alignment lands whole, and nothing beside it changes.
func TestCopyLastIsExact(t *testing.T) {
	for n := range 40 {
		for shift := range 8 {
			area := aligned(64, 0)
			src := make([]byte, n)
			for i := range src {
				src[i] = byte(i + 1)
			}
			want := make([]byte, 64)
			copy(want[8+shift:], src)
			copyLast(area[8+shift:8+shift+n], src)
			if !bytes.Equal(area, want) {
				t.Errorf("%d bytes at %d: got %x, want %x", n, 8+shift, area, want)
			}
		}
	}
}

// The source begins a byte behind the destination here, so that a store to the end
// of the destination would spoil what is still to be copied before it.
func TestEndIsStoredLast(t *testing.T) {
	for n := range 40 {
		for shift := range 8 {
			area := aligned(64, 0)
			for i := range area {
				area[i] = byte(i)
			}
			want := bytes.Clone(area)
			copy(want[shift:], want[shift+1:shift+1+n])
			copyLast(area[shift:shift+n], area[shift+1:shift+1+n])
			if !bytes.Equal(area, want) {
				t.Errorf("%d bytes at %d: the end was stored before the rest", n, shift)
			}
		}
	}
}

// A program polls the last byte of its buffer. When that changes, the rest of the
// packet is there, whatever its length and alignment.
func TestLastByteAppearsLast(t *testing.T) {
	const rounds = 30
	area := aligned(4200, 0)
	var ack atomic.Uint32 // the round that the program has checked
	var program sync.WaitGroup
	defer program.Wait()
	for _, n := range []int{1, 2, 3, 4, 7, 8, 12, 100, 4000} {
		for _, shift := range []int{0, 1, 4} {
			ack.Store(0)
			dst := area[8+shift : 8+shift+n]
			program.Go(func() {
				got := make([]byte, n)
				for round := uint32(1); round <= rounds; round++ {
					poll(func() bool { return lastByte(dst) == byte(round) })
					copyBytes(got, dst)
					if want := bytes.Repeat([]byte{byte(round)}, n); !bytes.Equal(got, want) {
						t.Errorf("%d bytes at %d, round %d: the last byte came before others", n, 8+shift, round)
					}
					ack.Store(round)
				}
			})
			for round := uint32(1); round <= rounds; round++ {
				copyLast(dst, bytes.Repeat([]byte{byte(round)}, n))
				poll(func() bool { return ack.Load() == round })
			}
		}
	}
}

// poll spins until ok, and lets others run now and then.
func poll(ok func() bool) {
	for n := 1; !ok(); n++ {
		if n%100 == 0 {
			runtime.Gosched()
		}
	}
}

// lastByte polls as a program does: with an atomic load, of the word around it.
func lastByte(b []byte) byte {
	p := unsafe.Pointer(&b[len(b)-1])
	shift := uintptr(p) % 4
	word := atomic.LoadUint32((*uint32)(unsafe.Add(p, -int(shift))))
	var bytes [4]byte
	binary.NativeEndian.PutUint32(bytes[:], word)
	return bytes[shift]
}

// A number at the end of a message is never seen torn.
func TestLastWordIsAtomic(t *testing.T) {
	b := aligned(24, 0)
	p := (*uint64)(unsafe.Pointer(&b[16]))
	const ones = 0xFFFFFFFFFFFFFFFF
	src := [][]byte{make([]byte, 20), bytes.Repeat([]byte{0xFF}, 20)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 20000 {
			copyLast(b[4:24], src[i%2])
		}
	}()
	for {
		if v := atomic.LoadUint64(p); v != 0 && v != ones {
			t.Fatalf("torn: %#x, want 0 or all ones", v)
		}
		select {
		case <-done:
			return
		default:
		}
	}
}

// An application that changes memory under the device is no data race of the
// device's: this test is for the race detector.
func TestDeviceAccessIsNoRace(t *testing.T) {
	table, pd := newTable(t, 1)
	b := aligned(256, 0)
	r := register(t, table, pd, Bytes(b), 0, allRights)
	app := make(chan struct{})
	go func() {
		defer close(app)
		for i := range 2000 {
			for j := range b {
				b[j]++
			}
			if b[i%len(b)] == 77 {
				b[0] = 0
			}
		}
	}()
	p := make([]byte, 256)
	for n := range 2000 {
		sgl := SGL{{r, uint64(n % 7), uint32(200 + n%40)}}
		if err := Gather(p[:n%200], sgl, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := Scatter(sgl, 0, p[:n%200], nil); err != nil {
			t.Fatal(err)
		}
	}
	<-app
}

func TestAtomics(t *testing.T) {
	table, pd := newTable(t, 8)
	b := aligned(32, 0)
	r := register(t, table, pd, Bytes(b), 0x100, allRights)
	odd := register(t, table, pd, Bytes(aligned(32, 4)), 0, ib.LocalWrite)
	far := register(t, table, pd, late{Bytes(aligned(32, 0))}, 0, allRights)
	gone := register(t, table, pd, Bytes(aligned(32, 0)), 0, allRights)
	if err := table.Deregister(gone); err != nil {
		t.Fatal(err)
	}
	word := Span{r, 8, 8}
	steps := []struct {
		name      string
		do        func() (uint64, error)
		old, then uint64
	}{
		{"add", func() (uint64, error) { return word.FetchAdd(5) }, 0, 5},
		{"add -6 wraps", func() (uint64, error) { return word.FetchAdd(^uint64(5)) }, 5, ^uint64(0)},
		{"swap refused", func() (uint64, error) { return word.CompareSwap(1, 2) }, ^uint64(0), ^uint64(0)},
		{"swap done", func() (uint64, error) { return word.CompareSwap(^uint64(0), 7) }, ^uint64(0), 7},
		{"write", func() (uint64, error) { return 7, word.AtomicWrite([8]byte{1, 2, 3, 4, 5, 6, 7, 8}) }, 7,
			binary.NativeEndian.Uint64([]byte{1, 2, 3, 4, 5, 6, 7, 8})},
	}
	for _, s := range steps {
		old, err := s.do()
		if then := binary.NativeEndian.Uint64(b[8:]); err != nil || old != s.old || then != s.then {
			t.Errorf("%s: returned %#x, %v and left %#x; want %#x and %#x", s.name, old, err, then, s.old, s.then)
		}
	}
	if !bytes.Equal(b[:8], make([]byte, 8)) || !bytes.Equal(b[16:], make([]byte, 16)) {
		t.Errorf("neighbours changed: %x, want 0", b)
	}
	for _, c := range []struct {
		name string
		s    Span
		want error
	}{
		{"odd offset", Span{r, 4, 8}, ErrMisaligned}, {"odd memory", Span{odd, 8, 8}, ErrMisaligned},
		{"even in odd memory", Span{odd, 4, 8}, nil},
		{"not direct", Span{far, 8, 8}, ErrNotDirect}, {"short", Span{r, 8, 4}, FaultBounds},
		{"long", Span{r, 8, 16}, FaultBounds},
		{"beyond the region", Span{r, 32, 8}, FaultBounds}, {"offset huge", Span{r, 1<<64 - 8, 8}, FaultBounds},
		{"region gone", Span{gone, 8, 8}, FaultKey},
	} {
		_, e1 := c.s.CompareSwap(0, 0)
		_, e2 := c.s.FetchAdd(0)
		if e3 := c.s.AtomicWrite([8]byte{}); !errors.Is(e1, c.want) || !errors.Is(e2, c.want) ||
			!errors.Is(e3, c.want) {
			t.Errorf("%s: %v, %v, %v; want %v", c.name, e1, e2, e3, c.want)
		}
	}
}

// Many at once add up: the operations are atomic among themselves.
func TestAtomicsAreAtomic(t *testing.T) {
	table, pd := newTable(t, 1)
	r := register(t, table, pd, Bytes(aligned(8, 0)), 0, allRights)
	word := Span{r, 0, 8}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 1000 {
				if _, err := word.FetchAdd(1); err != nil {
					t.Error(err)
				}
				for {
					old, _ := word.CompareSwap(0, 0)
					if now, _ := word.CompareSwap(old, old+1); now == old {
						break
					}
				}
			}
		})
	}
	wg.Wait()
	if sum, _ := word.FetchAdd(0); sum != 8000 {
		t.Errorf("sum %d, want 8000", sum)
	}
}

// Direct memory as a Memory: the same operations by offset, within its bounds.
func TestBytes(t *testing.T) {
	m := Bytes(aligned(16, 0))
	if err := m.WriteAt([]byte{1, 2, 3}, 13); err != nil {
		t.Error(err)
	}
	p := make([]byte, 4)
	if err := m.ReadAt(p, 12); err != nil || !bytes.Equal(p, []byte{0, 1, 2, 3}) {
		t.Errorf("read %x, %v; want 00010203", p, err)
	}
	if old, err := m.FetchAdd(0, 3); old != 0 || err != nil {
		t.Error(old, err)
	}
	if old, err := m.CompareSwap(0, 3, 9); old != 3 || err != nil {
		t.Error(old, err)
	}
	for _, off := range []uint64{13, 17, 1 << 63, 1<<64 - 1} {
		_, e1 := m.FetchAdd(off, 1)
		_, e2 := m.CompareSwap(off, 1, 1)
		for _, err := range []error{m.ReadAt(p, off), m.WriteAt(p, off), e1, e2} {
			if err != FaultBounds {
				t.Errorf("offset %#x: got %v, want %v", off, err, FaultBounds)
			}
		}
	}
	if _, err := m.FetchAdd(4, 1); err != ErrMisaligned {
		t.Error(err)
	}
}
