package afxdp

import (
	"bytes"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/internal/packet"
	"github.com/goroce/goroce/roce/link/internal/runs"
	"github.com/goroce/goroce/wire"
)

// Rings and chunks of FuzzRecv.
const (
	fuzzChunks = 64
	fuzzChunk  = 512
	fuzzMTU    = 2 * fuzzChunk
)

// FuzzRecv receives arbitrary frames in any number of chunks, as the kernel hands them over. What is
// received must be what the decoder says of each frame in one piece, and each chunk must go back to the
// kernel once. The input is a list of chunks: a byte whose first bit says that the frame has another
// chunk, two bytes with the length, and the bytes.
func FuzzRecv(f *testing.F) {
	chunk := func(more byte, b []byte) []byte { return append([]byte{more, byte(len(b)), byte(len(b) >> 8)}, b...) }
	for _, dst := range []ib.GID{v4(1), v6(1)} {
		frame := wire.Frame{Outer: wire.Outer{Src: dst, Dst: dst, SrcPort: 0xC123, DstPort: link.Port, HopLimit: 64}}
		b := append(frame.AppendHeaders(nil, 64), make([]byte, 64)...)
		tagged := slices.Insert(slices.Clone(b), 12, 0x81, 0, 0, 7)
		options := slices.Insert(slices.Clone(b), 34, 1, 1, 1, 0)
		options[14]++
		f.Add(slices.Concat(chunk(0, b), chunk(0, tagged), chunk(0, options), chunk(0, b[:60]), chunk(1, b)))
		f.Add(slices.Concat(chunk(1, b[:40]), chunk(0, b[40:]), chunk(1, b[:14]), chunk(1, b[14:50]), chunk(0, b[50:])))
		long := append(frame.AppendHeaders(nil, 1480), make([]byte, 1480)...)
		f.Add(slices.Concat(chunk(1, long[:500]), chunk(1, long[500:1000]), chunk(1, long[1000:1500]),
			chunk(0, long[1500:])))
	}
	mem := &umem{mem: make([]byte, fuzzChunks*fuzzChunk), chunk: fuzzChunk, rx: fuzzChunks}
	c := &conn{base: &base{mem: mem}}
	c.rx.init(&layout{chunk: fuzzChunk, mtu: fuzzMTU, several: true})
	f.Fuzz(func(t *testing.T, input []byte) {
		kernel, rx := newTestRing[unix.XDPDesc](fuzzChunks, 1<<32-3)
		fill, returned := newTestRing[uint64](fuzzChunks, 1<<32-9)
		tx, _ := newTestRing[unix.XDPDesc](fuzzChunks, 0)
		q := &queue{mem: mem, rx: *rx, fill: *fill, tx: *tx}
		frames, chunks := hand(kernel, mem, input)
		want := decoded(frames)
		in := make([]link.Run, rxBatch)
		for before := uint32(0); q.rx.own != before; {
			before = q.rx.own
			for _, r := range in[:c.receive(q, in, 0)] {
				if len(want) == 0 {
					t.Fatalf("received %d bytes more", len(r.Buf))
				}
				if !bytes.Equal(r.Buf, want[0].Buf) || r.Size != want[0].Size || r.Src != want[0].Src ||
					r.Dst != want[0].Dst || r.ID != want[0].ID {
					t.Fatalf("received %+v, want %+v", r, want[0])
				}
				want = want[1:]
			}
		}
		q.refill()
		if len(want) > 0 || returned.ready() != chunks {
			t.Fatalf("%d frames are not received; %d chunks went back, want %d", len(want), returned.ready(), chunks)
		}
		for i := range chunks {
			if addr := returned.at(i); addr != uint64(i*fuzzChunk) {
				t.Fatalf("chunk %d went back as %#x, want %#x", i, addr, i*fuzzChunk)
			}
		}
	})
}

// hand puts the chunks of an input into the memory and the ring. It returns the frames whose last chunk
// is there, and how many chunks they have.
func hand(kernel *producer[unix.XDPDesc], mem *umem, input []byte) (frames [][]byte, chunks int) {
	var frame []byte
	for i := 0; len(input) >= 3 && i < fuzzChunks; i++ {
		n := min(int(input[1])|int(input[2])<<8, fuzzChunk, len(input)-3)
		d := unix.XDPDesc{Addr: uint64(i * fuzzChunk), Len: uint32(n)}
		copy(mem.bytes(d.Addr, d.Len), input[3:])
		frame = append(frame, input[3:3+n]...)
		if d.Options = unix.XDP_PKT_CONTD; input[0]%2 == 0 {
			d.Options = 0
			frames, frame, chunks = append(frames, frame), nil, i+1
		}
		kernel.put(d)
		input = input[3+n:]
	}
	kernel.publish()
	return frames, chunks
}

// decoded returns the runs of frames, without those that are no RoCEv2.
func decoded(frames [][]byte) (all []link.Run) {
	for _, frame := range frames {
		headers := wire.Frame{PartialUDPSum: true}
		if headers.Decode(frame[:min(len(frame), max(wire.EtherLen+fuzzMTU, fuzzChunk))]) != nil ||
			packet.NoSource(&headers.Outer.Src) {
			continue
		}
		if r := packet.Received(&headers); runs.Trim(&r) == 0 {
			all = append(all, r)
		}
	}
	return all
}
