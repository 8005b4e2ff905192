package script

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/mr/mrtest"
)

// untouched is the initial content of each byte of a buffer.
const untouched = 0xEE

// fill writes the bytes of a message or region, from byte off on. Every eight
// bytes differ from all others of all sources, so a payload identifies its source.
func fill(dst []byte, name string, off int) {
	h := fnv.New64a()
	h.Write([]byte(name))
	seed := h.Sum64()
	for i := range dst {
		at := uint64(off + i)
		x := seed + (at/8+1)*0x9E3779B97F4A7C15 // a step of splitmix64
		x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
		x = (x ^ x>>27) * 0x94D049BB133111EB
		dst[i] = byte((x ^ x>>31) >> (at % 8 * 8))
	}
}

// slice names bytes of a source: "9[0:1024]".
type slice struct {
	name     string
	from, to int
}

func (s slice) len() int { return s.to - s.from }

func (s slice) String() string { return fmt.Sprintf("%s[%d:%d]", s.name, s.from, s.to) }

// bytes returns the bytes that s names.
func (s slice) bytes() []byte {
	b := make([]byte, s.len())
	fill(b, s.name, s.from)
	return b
}

// parseSlice reads "9[0:1024]".
func parseSlice(text string) (slice, error) {
	name, rest, ok := strings.Cut(text, "[")
	from, to, ok2 := strings.Cut(strings.TrimSuffix(rest, "]"), ":")
	a, err := strconv.Atoi(from)
	b, err2 := strconv.Atoi(to)
	if !ok || !ok2 || name == "" || err != nil || err2 != nil || a < 0 || b < a || b > maxArea {
		return slice{}, fmt.Errorf("%q is no data, such as 1[0:1024]", text)
	}
	return slice{name, a, b}, nil
}

// parseSlices reads "GRH[0:40],9[0:10]" and returns the bytes.
func parseSlices(text string) (b []byte, err error) {
	for part := range strings.SplitSeq(text, ",") {
		s, err := parseSlice(part)
		if err != nil {
			return nil, err
		}
		if len(b)+s.to-s.from > maxArea {
			return nil, fmt.Errorf("%.40q... is more than %d bytes", text, maxArea)
		}
		b = append(b, s.bytes()...)
	}
	return b, nil
}

// identify says which bytes of which source b holds, for error messages.
func identify(b []byte, areas map[string]*area, messages map[string]int) string {
	if len(b) == 0 {
		return "no data"
	}
	sizes := map[string]int{}
	for name, a := range areas {
		sizes[name] = a.size
	}
	for name, size := range messages {
		sizes[name] = size
	}
	for name, size := range sizes {
		for off := 0; off+len(b) <= size; off++ {
			if s := (slice{name, off, off + len(b)}); bytes.Equal(s.bytes(), b) {
				return s.String()
			}
		}
	}
	return fmt.Sprintf("%d bytes of unknown origin", len(b))
}

// maxArea bounds regions, in bytes.
const maxArea = 1 << 22

// area is memory that has a name: a region, the buffer of a work request, or an
// address of the scripted peer.
type area struct {
	name   string
	addr   uint64
	key    ib.Key
	size   int
	region *mr.Region     // nil for memory of the scripted peer and for a window
	window *mr.Window     // nil if it is no window
	slow   *mrtest.Memory // nil for direct memory
	mem    []byte         // the bytes
	want   []byte         // what the script has claimed so far
	unsure bool           // a failed request leaves it undefined
	pieces []piece        // the SGEs of a buffer, in the order of the message
}

// piece is an SGE's part of a buffer.
type piece struct{ off, len int }

// cut divides a buffer into n SGEs. Their order in memory is reversed, so that code
// which ignores the SGL does not produce the right message by accident.
func (a *area) cut(n int) {
	end := a.size
	for i := range n {
		l := end / (n - i)
		a.pieces = append(a.pieces, piece{end - l, l})
		end -= l
	}
}

// sgl returns the scatter/gather list of a buffer.
func (a *area) sgl() []ib.SGE {
	var l []ib.SGE
	for _, p := range a.pieces {
		l = append(l, ib.SGE{Addr: a.addr + uint64(p.off), Length: uint32(p.len), LKey: a.key})
	}
	return l
}

// message writes b, the beginning of a message, into dst, which has the layout
// of the buffer.
func (a *area) message(dst, b []byte) {
	for _, p := range a.pieces {
		n := copy(dst[p.off:p.off+p.len], b)
		b = b[n:]
	}
}

// claim records that b is expected at off, and checks that it is there.
func (a *area) claim(off int, b []byte) error {
	if off < 0 || off > a.size-len(b) {
		return fmt.Errorf("%s has %d bytes", a.name, a.size)
	}
	copy(a.want[off:], b)
	return a.differs(off, off+len(b))
}

// differs returns an error for the first byte from..to that is not as claimed.
func (a *area) differs(from, to int) error {
	for i := from; i < to; i++ {
		if a.mem[i] != a.want[i] {
			return fmt.Errorf("memory at %s+%d is %#02x, claimed %#02x", a.name, i, a.mem[i], a.want[i])
		}
	}
	return nil
}

// number returns a 64-bit number in the byte order of memory.
func number(v uint64) []byte { return binary.NativeEndian.AppendUint64(nil, v) }
