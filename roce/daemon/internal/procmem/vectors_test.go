//go:build linux

package procmem

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/mr"
)

// TestTail checks how the end of a packet is cut off: as the aligned number that may be there.
func TestTail(t *testing.T) {
	for _, c := range []struct {
		end  uint64
		n    int
		want int
	}{
		{1024, 1024, 8}, {1024, 8, 8}, {1024, 7, 4}, {1024, 3, 2}, {1024, 1, 1}, {1024, 0, 0},
		{1028, 100, 4}, {1030, 100, 2}, {1031, 100, 1}, {1028, 3, 2}, {1030, 1, 1},
	} {
		if got := tail(c.end, c.n); got != c.want {
			t.Errorf("tail(%d, %d) = %d, want %d", c.end, c.n, got, c.want)
		}
	}
}

// TestVectors checks the vectors of calls: the end of each packet that is written is one of its own, behind
// the rest, and adjacent packets are one range of the process.
func TestVectors(t *testing.T) {
	buf := make([]byte, 1<<20)
	const base = 1 << 20
	m := &Memory{p: &Process{}, addr: base, length: 1 << 30}
	for _, c := range []struct {
		name   string
		pieces []mr.Piece
		write  bool
		want   string // local lengths : remote addresses and lengths, for each call
	}{
		{"a packet", []mr.Piece{{Off: 0, B: buf[:1024]}}, true, "1016 8 : 0+1024"},
		{"read", []mr.Piece{{Off: 0, B: buf[:1024]}}, false, "1024 : 0+1024"},
		{"a number", []mr.Piece{{Off: 16, B: buf[:8]}}, true, "8 : 16+8"},
		{"nothing", []mr.Piece{{Off: 16}}, true, ""},
		{"a train", []mr.Piece{{Off: 4, B: buf[:300], Each: 100}}, true, "92 8 96 4 92 8 : 4+300"},
		{"the last is shorter", []mr.Piece{{Off: 0, B: buf[:130], Each: 64}}, true, "56 8 56 8 2 : 0+130"},
		{"adjacent", []mr.Piece{{Off: 0, B: buf[:16]}, {Off: 16, B: buf[16:32]}, {Off: 40, B: buf[:1]}}, true,
			"8 8 8 8 1 : 0+32 40+1"},
		{"more than a call takes", []mr.Piece{{Off: 0, B: buf[:258*16], Each: 16}}, true,
			strings.Repeat("8 ", 512) + ": 0+4096; 8 8 8 8 : 4096+32"},
	} {
		var calls []string
		err := m.moveAll(c.pieces, c.write, func(v *vectors, write bool) error {
			call, total := "", 0
			for _, l := range v.local[:v.nl] {
				call += fmt.Sprint(l.Len, " ")
				total += int(l.Len)
			}
			call += ":"
			for _, r := range v.remote[:v.nr] {
				call += fmt.Sprintf(" %d+%d", r.Base-base, r.Len)
			}
			if total != v.total || write != c.write {
				t.Errorf("%s: %d bytes, want %d; written %v", c.name, total, v.total, write)
			}
			calls = append(calls, call)
			return nil
		})
		if got := strings.Join(calls, "; "); got != c.want || err != nil {
			t.Errorf("%s: %q, %v, want %q", c.name, got, err, c.want)
		}
	}
}

// Where messages of TestPolled begin and end, and the word by which the child asks for the next.
const (
	polledAt, polledEnd = 72, 72 + 3*1000
	polledNext          = 8192
	polledMessages      = 1000
)

// poll waits for one message after the other by their last 8 bytes. It returns what it finds wrong in front
// of these.
func poll(buf []byte) string {
	word := func(at int) *uint64 { return (*uint64)(unsafe.Pointer(&buf[at])) }
	for i := range uint64(polledMessages) {
		for atomic.LoadUint64(word(polledEnd-8)) != i+1 {
		}
		for at := polledAt; at < polledEnd; at += 8 {
			if v := atomic.LoadUint64(word(at)); v != i+1 {
				return fmt.Sprintf("message %d has %d at %d", i+1, v, at)
			}
		}
		atomic.StoreUint64(word(polledNext), i+1)
	}
	return "done"
}

// TestPolled checks that a process which polls the end of a message finds the rest there.
func TestPolled(t *testing.T) {
	t.Run("of whatever it runs", func(t *testing.T) { testPolled(t, start(t)) })
	t.Run("bound", func(t *testing.T) { testPolled(t, start(t).bind()) })
}

func testPolled(t *testing.T, c *child) {
	m := c.memory(childSize)
	fmt.Fprintln(c.in, "poll")
	message, word := make([]byte, polledEnd-polledAt), make([]byte, 8)
	for i, end := uint64(1), time.Now().Add(time.Minute); i <= polledMessages; i++ {
		copy(message, slices.Repeat(binary.NativeEndian.AppendUint64(nil, i), len(message)/8))
		c.must(m.WriteVector([]mr.Piece{{Off: polledAt, B: message, Each: 1000}}))
		for binary.NativeEndian.Uint64(word) != i {
			c.must(m.ReadAt(word, polledNext))
			if time.Now().After(end) {
				_ = c.cmd.Process.Kill() // so that line returns
				t.Errorf("no answer to message %d within a minute", i)
				t.Fatal(c.line())
			}
		}
	}
	if got := c.line(); got != "done" {
		t.Error(got)
	}
}

// TestWeakOrder checks that where stores may be seen out of order the end of a packet is a remote vector of its own,
// and that all arrives as elsewhere, by both ways to the memory.
func TestWeakOrder(t *testing.T) {
	defer func(before bool) { weak = before }(weak)
	weak = true
	var v vectors
	v.add(0x1000, make([]byte, 100), true)
	v.add(0x1064, make([]byte, 60), true)
	want := []unix.RemoteIovec{{Base: 0x1000, Len: 96}, {Base: 0x1060, Len: 4 + 52}, {Base: 0x1098, Len: 8}}
	if got := v.remote[:v.nr]; !slices.Equal(got, want) {
		t.Errorf("two packets: got %x, want %x", got, want)
	}
	for _, c := range []*child{start(t), start(t).bind()} {
		m, pieces, got := c.memory(1<<14), []mr.Piece(nil), make([]byte, 100)
		for i := range 150 { // more than one call
			pieces = append(pieces, mr.Piece{Off: uint64(100 * i), B: bytes.Repeat([]byte{byte(i)}, 100)})
		}
		c.must(m.WriteVector(pieces))
		for i, p := range pieces {
			if c.must(m.ReadAt(got, p.Off)); !bytes.Equal(got, p.B) {
				t.Fatalf("packet %d: got %x, want %x", i, got, p.B)
			}
		}
	}
}
