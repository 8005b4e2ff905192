package wire

import (
	"hash/crc32"
	"math/rand/v2"
	"syscall"
	"testing"
)

// TestFold: any length and alignment, from any register.
func TestFold(t *testing.T) {
	if !canFold {
		t.Skip("the processor has no AVX-512 with VPCLMULQDQ")
	}
	rng := rand.New(rand.NewPCG(1, 2))
	data := make([]byte, 9000)
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	for n := 4; n < 4500; n++ {
		b, crc := data[n%67:][:n], rng.Uint32()
		if got, want := update(crc, b), ^crc32.Update(^crc, crc32.IEEETable, b); got != want {
			t.Fatalf("%d bytes from register %#x: %#x, want %#x", n, crc, got, want)
		}
	}
}

// TestFoldReadsNothingElse: neither before the bytes nor behind them.
func TestFoldReadsNothingElse(t *testing.T) {
	if !canFold {
		t.Skip("the processor has no AVX-512 with VPCLMULQDQ")
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
	for n := 4; n <= page; n += 4 {
		fold(0, b[:n])
		fold(0, b[page-n:])
	}
}
