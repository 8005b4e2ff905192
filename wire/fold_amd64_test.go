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

// TestFoldShort: all lengths that there may be, packed and apart, and nothing else is read.
func TestFoldShort(t *testing.T) {
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
	rng := rand.New(rand.NewPCG(3, 4))
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	for n := 8; n <= shortMost; n += 4 {
		for each := n; each < n+9; each++ {
			used := (foldMost-1)*each + n
			for _, in := range [][]byte{b[:used], b[page-used:]} {
				crcs := [foldMost]uint32{rng.Uint32(), rng.Uint32(), rng.Uint32(), rng.Uint32()}
				first := crcs
				foldShort(&crcs, in, each, n)
				for i, got := range crcs {
					sum := bytes.Clone(in[i*each:][:n])
					sum[4] = 0xFF
					if want := ^crc32.Update(^first[i], crc32.IEEETable, sum); got != want {
						t.Fatalf("%d bytes %d apart, packet %d: %#x, want %#x", n, each, i, got, want)
					}
				}
			}
		}
	}
}
