package wire

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
	"syscall"
	"testing"
)

// TestFold: all lengths and alignments that there may be.
func TestFold(t *testing.T) {
	if !canFold {
		t.Skip("skipped: needs a processor with AVX-512 and VPCLMULQDQ; without them this code never runs")
	}
	rng := rand.New(rand.NewPCG(1, 2))
	data := make([]byte, 9000)
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	for n := range 4500 {
		if !foldable(n) {
			continue
		}
		b, first := data[n%67:][:n], rng.Uint64()
		sum := bytes.Clone(b)
		binary.LittleEndian.PutUint64(sum, binary.LittleEndian.Uint64(b)^first)
		if got, want := foldCRC(first, b), ^crc32.Update(^uint32(0), crc32.IEEETable, sum); got != want {
			t.Fatalf("%d bytes and %#x: %#x, want %#x", n, first, got, want)
		}
	}
}

// TestFoldReadsNothingElse: neither before the bytes nor behind them.
func TestFoldReadsNothingElse(t *testing.T) {
	if !canFold {
		t.Skip("skipped: needs a processor with AVX-512 and VPCLMULQDQ; without them this code never runs")
	}
	page := syscall.Getpagesize()
	mem, err := syscall.Mmap(-1, 0, 3*page, syscall.PROT_NONE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Munmap(mem)
	b := mem[page : 2*page]
	if err := syscall.Mprotect(b, syscall.PROT_READ|syscall.PROT_WRITE); err != nil {
		t.Fatal(err)
	}
	for n := range page + 1 {
		if foldable(n) {
			foldCRC(0, b[:n])
			foldCRC(0, b[page-n:])
		}
	}
}
