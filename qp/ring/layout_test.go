package ring

import (
	"encoding/binary"
	"errors"
	"testing"
	"unsafe"

	"github.com/goroce/goroce/ib"
)

// field is a row of a table in doc.go and the value that the test wrote there.
type field struct {
	name   string
	offset int
	bytes  int
	value  uint64
}

// checkFields compares b with the rows, and checks that all other bytes are zero.
func checkFields(t *testing.T, b []byte, fields []field) {
	t.Helper()
	rest := append([]byte(nil), b...)
	for _, f := range fields {
		got := uint64(0)
		switch p := b[f.offset:]; f.bytes {
		case 1:
			got = uint64(p[0])
		case 2:
			got = uint64(binary.NativeEndian.Uint16(p))
		case 4:
			got = uint64(binary.NativeEndian.Uint32(p))
		case 8:
			got = binary.NativeEndian.Uint64(p)
		}
		if got != f.value {
			t.Errorf("%s at offset %d is %#x, want %#x", f.name, f.offset, got, f.value)
		}
		clear(rest[f.offset : f.offset+f.bytes])
	}
	for i, c := range rest {
		if c != 0 {
			t.Errorf("reserved byte %d is %#x, want 0", i, c)
		}
	}
}

func TestHeaderLayout(t *testing.T) {
	b := Alloc(SendSize(5, 3, 100))
	if _, err := NewSend(b, 5, 3, 100); err != nil {
		t.Fatal(err)
	}
	if want := 256 + 8*192; len(b) != want { // 64 + 100 bytes round up to 192
		t.Errorf("size %d, want %d", len(b), want)
	}
	checkFields(t, b[:256], []field{
		{"magic", 0, 4, 0x474E4952}, {"version", 4, 2, 1}, {"kind", 6, 2, 1}, {"entries", 8, 4, 8},
		{"slot_size", 12, 4, 192}, {"max_sge", 16, 4, 3}, {"max_inline", 20, 4, 100}, {"generation", 24, 4, 1},
		{"wake", 192, 4, 1},
	})

	b = Alloc(RecvSize(4, 4))
	if _, err := NewRecv(b, 4, 4); err != nil {
		t.Fatal(err)
	}
	checkFields(t, b[:256], []field{
		{"magic", 0, 4, 0x474E4952}, {"version", 4, 2, 1}, {"kind", 6, 2, 2}, {"entries", 8, 4, 4},
		{"slot_size", 12, 4, 128}, {"max_sge", 16, 4, 4}, {"generation", 24, 4, 1},
	})

	b = Alloc(CQSize(3))
	if _, err := NewCQ(b, 3); err != nil {
		t.Fatal(err)
	}
	checkFields(t, b[:256], []field{
		{"magic", 0, 4, 0x474E4952}, {"version", 4, 2, 1}, {"kind", 6, 2, 3}, {"entries", 8, 4, 4},
		{"slot_size", 12, 4, 64}, {"generation", 24, 4, 1},
	})
}

func TestSendLayout(t *testing.T) {
	b, q := newSend(t, 2, 2, 16)
	push(t, q, &ib.SendWR{ID: 0x0102030405060708, Opcode: ib.WRSendImm, Flags: ib.SendFence | ib.SendSolicited,
		SGL: []ib.SGE{{Addr: 0x1111111111111111, Length: 0x222222, LKey: 0x33333333}, {Addr: 4, Length: 5, LKey: 6}},
		Imm: 0x44444444, RemoteSRQ: 0x555555, RemoteAddr: 0x6666666666666666, RKey: 0x77777777,
		Compare: 0x8888888888888888, Swap: 0x9999999999999999, RemoteQPN: 0xAAAAAA, AH: 0xBBBBBBBB,
		RemoteQKey: 0xCCCCCCCC})
	push(t, q, &ib.SendWR{ID: 1, Opcode: ib.WRSend, Flags: ib.SendInline, Inline: []byte{0xA1, 0xA2, 0xA3}})
	q.Publish()

	slots := b[256:]
	checkFields(t, slots[:128], []field{
		{"id", 0, 8, 0x0102030405060708}, {"opcode", 8, 1, 3}, {"flags", 9, 1, 5}, {"num_sge", 10, 2, 2},
		{"imm", 16, 4, 0x44444444}, {"remote_srq", 20, 4, 0x555555}, {"remote_addr", 24, 8, 0x6666666666666666},
		{"rkey", 32, 4, 0x77777777}, {"remote_qpn", 36, 4, 0xAAAAAA}, {"compare", 40, 8, 0x8888888888888888},
		{"swap", 48, 8, 0x9999999999999999}, {"ah", 56, 4, 0xBBBBBBBB}, {"remote_qkey", 60, 4, 0xCCCCCCCC},
		{"sge[0].addr", 64, 8, 0x1111111111111111}, {"sge[0].length", 72, 4, 0x222222},
		{"sge[0].lkey", 76, 4, 0x33333333},
		{"sge[1].addr", 80, 8, 4}, {"sge[1].length", 88, 4, 5}, {"sge[1].lkey", 92, 4, 6},
	})
	checkFields(t, slots[128:256], []field{
		{"id", 0, 8, 1}, {"opcode", 8, 1, 2}, {"flags", 9, 1, 8}, {"inline_len", 12, 4, 3},
		{"inline[0]", 64, 1, 0xA1}, {"inline[1]", 65, 1, 0xA2}, {"inline[2]", 66, 1, 0xA3},
	})
	if got := binary.NativeEndian.Uint32(b[64:]); got != 2 {
		t.Errorf("producer index %d, want 2", got)
	}
}

// TestSharedBytes checks the fields that share their bytes with fields of other opcodes.
func TestSharedBytes(t *testing.T) {
	b, q := newSend(t, 4, 0, 0)
	push(t, q, &ib.SendWR{Opcode: ib.WRSendInv, InvalidateKey: 0x11111111})
	push(t, q, &ib.SendWR{Opcode: ib.WRLocalInv, InvalidateKey: 0x22222222})
	push(t, q, &ib.SendWR{Opcode: ib.WRBindMW, RKey: 0x33333333,
		Bind: ib.MWBind{LKey: 0x44444444, Addr: 0x5555555555555555,
			Length: 0x6666666666666666, Access: 0x77777777}})
	push(t, q, &ib.SendWR{Opcode: ib.WRFlush, RKey: 0x33333333, RemoteAddr: 8,
		Flush: ib.Flush{Length: 0x88888888, Level: ib.FlushGlobally | ib.FlushPersistently, Extent: ib.FlushRegion}})
	slots := b[256:]
	checkFields(t, slots[0:64], []field{{"opcode", 8, 1, 9}, {"key", 16, 4, 0x11111111}})
	checkFields(t, slots[64:128], []field{{"opcode", 8, 1, 7}, {"key", 16, 4, 0x22222222}})
	checkFields(t, slots[128:192], []field{{"opcode", 8, 1, 8}, {"key", 16, 4, 0x44444444},
		{"remote_addr", 24, 8, 0x5555555555555555},
		{"rkey", 32, 4, 0x33333333}, {"length", 40, 8, 0x6666666666666666}, {"access", 48, 8, 0x77777777}})
	checkFields(t, slots[192:256], []field{{"opcode", 8, 1, 14}, {"remote_addr", 24, 8, 8}, {"rkey", 32, 4, 0x33333333},
		{"length", 40, 8, 0x88888888}, {"flush", 48, 8, 3 | 1<<32}})
}

func TestRecvLayout(t *testing.T) {
	b, q := newRecv(t, 2, 2)
	if err := q.Push(&ib.RecvWR{ID: 0x0102030405060708, SGL: []ib.SGE{{Addr: 1, Length: 2, LKey: 3},
		{Addr: 4, Length: 5, LKey: 6}}}); err != nil {
		t.Fatal(err)
	}
	checkFields(t, b[256:320], []field{
		{"id", 0, 8, 0x0102030405060708}, {"num_sge", 8, 2, 2},
		{"sge[0].addr", 16, 8, 1}, {"sge[0].length", 24, 4, 2}, {"sge[0].lkey", 28, 4, 3},
		{"sge[1].addr", 32, 8, 4}, {"sge[1].length", 40, 4, 5}, {"sge[1].lkey", 44, 4, 6},
	})
}

func TestCQLayout(t *testing.T) {
	b, q := newCQ(t, 2)
	wc := allFieldsWC
	if !q.Push(&wc) {
		t.Fatal("CQ full")
	}
	checkFields(t, b[256:320], []field{
		{"id", 0, 8, 0x0102030405060708}, {"status", 8, 1, 12}, {"opcode", 9, 1, 129}, {"flags", 10, 1, 9},
		{"sl", 11, 1, 10},
		{"vendor_err", 12, 4, 0x11111111}, {"byte_len", 16, 4, 0x22222222}, {"imm", 20, 4, 0x33333333},
		{"invalidated_key", 24, 4, 0x44444444}, {"qpn", 28, 4, 0x555555}, {"src_qp", 32, 4, 0x666666},
		{"timestamp", 40, 8, 0xFFFFFFFFFFFFFFF9},
	})
	if got := binary.NativeEndian.Uint32(b[64:]); got != 1 {
		t.Errorf("producer index %d, want 1", got)
	}
}

func TestCreateRefuses(t *testing.T) {
	good := Alloc(SendSize(16, 4, 64))
	for _, c := range []struct {
		name string
		err  error
	}{
		{"negative entries", second(NewSend(good, -1, 4, 64))},
		{"too many entries", second(NewSend(good, MaxEntries+1, 4, 64))},
		{"negative SGEs", second(NewSend(good, 16, -1, 64))},
		{"too many SGEs", second(NewSend(good, 16, MaxSGE+1, 64))},
		{"too much inline", second(NewSend(good, 16, 4, MaxInline+1))},
		{"too many receives", second(NewRecv(good, MaxEntries+1, 4))},
		{"completion ring without entries", second(NewCQ(good, 0))},
		{"too many completions", second(NewCQ(good, MaxCQEntries+1))},
		{"short buffer", second(NewSend(good[:len(good)-1], 16, 4, 64))},
		{"unaligned buffer", second(NewSend(good[8:], 8, 4, 64))},
		{"no buffer", second(NewSend(nil, 8, 4, 64))},
	} {
		var attr *ib.AttrError
		if !errors.Is(c.err, ib.ErrInvalid) || !errors.As(c.err, &attr) || attr.Allowed == "" {
			t.Errorf("%s: error %v, want an AttrError", c.name, c.err)
		}
	}
	if SendSize(-1, 0, 0) != 0 || RecvSize(1, MaxSGE+1) != 0 || CQSize(0) != 0 {
		t.Error("a ring that cannot be has a size")
	}
}

func TestOpenRefuses(t *testing.T) {
	for _, c := range []struct {
		name   string
		offset int
		value  uint32
	}{
		{"magic", 0, 1}, {"version", 4, 2 | 1<<16}, {"kind", 4, 1 | 2<<16},
		{"entries not a power of two", 8, 3}, {"entries beyond the buffer", 8, 32},
		{"entries beyond the limit", 8, 1 << 31},
		{"slot size", 12, 64}, {"max SGE", 16, 33}, {"max SGE beyond the slot", 16, 32}, {"max inline", 20, 1 << 30},
	} {
		b, _ := newSend(t, 16, 4, 64)
		binary.NativeEndian.PutUint32(b[c.offset:], c.value)
		if _, err := OpenSend(b); err == nil {
			t.Errorf("%s: accepted, want an error", c.name)
		}
	}
	b, _ := newSend(t, 16, 4, 64)
	if _, err := OpenSend(b[:len(b)-1]); !errors.Is(err, ib.ErrInvalid) {
		t.Errorf("buffer a byte short: %v, want %v", err, ib.ErrInvalid)
	}
	if _, err := OpenSend(b[:255]); !errors.Is(err, ib.ErrInvalid) {
		t.Errorf("buffer shorter than its header: %v, want %v", err, ib.ErrInvalid)
	}
	if _, err := OpenCQ(b); !errors.Is(err, ErrCorrupt) {
		t.Errorf("send ring opened as completion ring: %v, want %v", err, ErrCorrupt)
	}
	if _, err := OpenSend(b); err != nil {
		t.Errorf("intact buffer: %v", err)
	}
}

func TestAllocIsAligned(t *testing.T) {
	for size := range 200 {
		b := Alloc(size)
		if p := uintptr(unsafe.Pointer(unsafe.SliceData(b))); size > 0 && p%Align != 0 || len(b) != size ||
			cap(b) != size {
			t.Fatalf("Alloc(%d): address %#x, length %d, capacity %d; want %d bytes aligned to %d", size, p, len(b),
				cap(b), size, Align)
		}
	}
}
