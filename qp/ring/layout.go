package ring

import (
	"errors"
	"fmt"
	"math/bits"
	"unsafe"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// Limits of every ring. A buffer that claims more is refused.
const (
	MaxEntries   = 1 << 16 // send and receive rings
	MaxCQEntries = 1 << 20
	MaxSGE       = 32
	MaxInline    = 1024    // bytes
	MaxMessage   = 1 << 31 // bytes in one request (IBTA 9.7.2)
)

// ErrCorrupt is returned when the other side wrote invalid indices into a ring. The device
// treats the object that owns the ring as failed. The application causes it only by
// writing to the buffer without the methods of this package.
var ErrCorrupt = errors.New("corrupt ring")

// Align is the boundary in bytes on which every buffer starts.
const Align = 64

const (
	magic      = 0x474E4952
	version    = 1
	generation = 1

	prodOffset    = 64
	overrunOffset = 68
	consOffset    = 128
	wakeOffset    = 192
	slotsOffset   = 256
)

type kind uint16

const (
	kindSend kind = 1
	kindRecv kind = 2
	kindCQ   kind = 3
)

func (k kind) String() string {
	switch k {
	case kindSend:
		return "send ring"
	case kindRecv:
		return "receive ring"
	case kindCQ:
		return "completion ring"
	}
	return fmt.Sprintf("ring of kind %d", uint16(k))
}

// header is the start of every buffer.
type header struct {
	magic      uint32
	version    uint16
	kind       kind
	entries    uint32
	slotSize   uint32
	maxSGE     uint32
	maxInline  uint32
	generation uint32
	_          [9]uint32
}

// The sizes that doc.go states.
var (
	_ [64]byte = [unsafe.Sizeof(header{})]byte{}
	_ [64]byte = [unsafe.Sizeof(sendSlot{})]byte{}
	_ [16]byte = [unsafe.Sizeof(recvSlot{})]byte{}
	_ [64]byte = [unsafe.Sizeof(cqSlot{})]byte{}
	_ [16]byte = [unsafe.Sizeof(ib.SGE{})]byte{}
)

// geometry determines the size of a ring.
type geometry struct {
	kind              kind
	entries           int // as asked for; rounded up in header
	maxSGE, maxInline int
}

// check returns an error if g exceeds the limits.
func (g geometry) check() error {
	maxEntries := MaxEntries
	minEntries := 0
	if g.kind == kindCQ {
		minEntries, maxEntries = 1, MaxCQEntries
	}
	for _, a := range []struct {
		attr            string
		value, min, max int
	}{
		{"entries", g.entries, minEntries, maxEntries},
		{"max SGE", g.maxSGE, 0, MaxSGE},
		{"max inline", g.maxInline, 0, MaxInline},
	} {
		if a.value < a.min || a.value > a.max {
			return driver.Refuse("make "+g.kind.String(), a.attr, a.value,
				fmt.Sprintf("%d to %d", a.min, a.max), ib.ErrInvalid)
		}
	}
	return nil
}

// header returns the header of a ring with geometry g, which has been checked.
func (g geometry) header() header {
	size := 0
	switch g.kind {
	case kindSend:
		size = sendPayload + max(g.maxSGE*sgeSize, g.maxInline)
	case kindRecv:
		size = recvPayload + g.maxSGE*sgeSize
	case kindCQ:
		size = int(unsafe.Sizeof(cqSlot{}))
	}
	return header{
		magic: magic, version: version, kind: g.kind, generation: generation,
		entries: uint32(Slots(g.entries)), slotSize: uint32(size+Align-1) &^ (Align - 1),
		maxSGE: uint32(g.maxSGE), maxInline: uint32(g.maxInline),
	}
}

// Slots returns how many slots a ring for n entries has: the next power of two, or 0 for 0.
func Slots(n int) int {
	if n <= 0 {
		return 0
	}
	return 1 << bits.Len(uint(n-1))
}

// CQSlots returns the entries of a completion ring for a program that asks for n. There is room for at least one more,
// as there is in NICs: programs lean on it, perftest's send_lat for one, which asks for 1 and leaves one unpolled.
func CQSlots(n int) int { return Slots(n + 1) }

// size returns the bytes of the buffer.
func (h *header) size() int { return slotsOffset + int(h.entries)*int(h.slotSize) }

// size returns the bytes that a ring of geometry g takes, 0 if it exceeds a limit.
func (g geometry) size() int {
	if g.check() != nil {
		return 0
	}
	h := g.header()
	return h.size()
}

// SendSize returns the bytes of a send ring, or 0 if an argument is out of its
// limits (NewSend then says which). Entries are rounded up to a power of two.
func SendSize(entries, maxSGE, maxInline int) int {
	return geometry{kindSend, entries, maxSGE, maxInline}.size()
}

// RecvSize returns the bytes of a receive ring, as SendSize does.
func RecvSize(entries, maxSGE int) int { return geometry{kindRecv, entries, maxSGE, 0}.size() }

// CQSize returns the bytes of a completion ring, as SendSize does.
func CQSize(entries int) int { return geometry{kindCQ, entries, 0, 0}.size() }

// Alloc returns size zero bytes that start on a 64-byte boundary, for rings
// within one process.
func Alloc(size int) []byte {
	// The Go allocator aligns allocations of a multiple of 64 bytes in this way, though
	// that is not guaranteed.
	b := make([]byte, (size+Align-1)&^(Align-1))
	if misaligned(b) != 0 {
		b = make([]byte, size+Align)
		b = b[Align-misaligned(b):]
	}
	return b[:size:size]
}

// misaligned returns how many bytes after a boundary b starts.
func misaligned(b []byte) uintptr {
	return uintptr(unsafe.Pointer(unsafe.SliceData(b))) % Align
}

// checkBuffer refuses a buffer that cannot hold a ring of size bytes.
func checkBuffer(op string, b []byte, size int) error {
	if len(b) < size {
		return driver.Refuse(op, "buffer length", len(b), fmt.Sprintf("at least %d bytes", size), ib.ErrInvalid)
	}
	if misaligned(b) != 0 {
		return driver.Refuse(op, "buffer address", fmt.Sprintf("%p", b),
			"multiples of 64; ring.Alloc and mapped pages are", ib.ErrInvalid)
	}
	return nil
}

// create formats b. The other side may have b already, and write to it meanwhile: nothing is read back.
func (g geometry) create(b []byte) (ring, error) {
	if err := g.check(); err != nil {
		return ring{}, err
	}
	h := g.header()
	if err := checkBuffer("make "+g.kind.String(), b, h.size()); err != nil {
		return ring{}, err
	}
	clear(b[:h.size()])
	*(*header)(unsafe.Pointer(&b[0])) = h
	return newRing(b, &h), nil
}

// open attaches to the ring in b. It reads the header once and checks the copy.
func open(b []byte, want kind) (ring, error) {
	op := "attach to " + want.String()
	if err := checkBuffer(op, b, slotsOffset); err != nil {
		return ring{}, err
	}
	h := *(*header)(unsafe.Pointer(&b[0]))
	if h.magic != magic || h.version != version || h.kind != want {
		return ring{}, fmt.Errorf("%s: magic %#x, version %d, kind %d, but this program knows %#x, %d, %d: %w",
			op, h.magic, h.version, h.kind, magic, version, want, ErrCorrupt)
	}
	g := geometry{h.kind, int(h.entries), int(h.maxSGE), int(h.maxInline)}
	if err := g.check(); err != nil {
		return ring{}, fmt.Errorf("%s: %w: %w", op, ErrCorrupt, err)
	}
	if w := g.header(); h.entries != w.entries || h.slotSize != w.slotSize {
		return ring{}, fmt.Errorf("%s: %d entries of %d bytes, but its limits make %d of %d: %w",
			op, h.entries, h.slotSize, w.entries, w.slotSize, ErrCorrupt)
	}
	if err := checkBuffer(op, b, h.size()); err != nil {
		return ring{}, err
	}
	r := newRing(b, &h)
	r.readIndices()
	return r, nil
}
