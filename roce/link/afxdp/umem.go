package afxdp

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/wire"
)

// Sizes of chunks. The kernel supports powers of two up to a page.
const (
	smallChunk = 2048
	largeChunk = 4096

	// maxChunks is the number of chunks that a frame may take: enough for an MTU of 9000.
	maxChunks = 3
)

// layout says how frames are stored in chunks.
type layout struct {
	chunk   int  // size of a chunk
	mtu     int  // largest IP packet that fits
	several bool // a frame may take several chunks
}

// layoutFor returns the layout for an interface's MTU. If the kernel does not support frames of several chunks, the MTU
// of the layout may be smaller.
func layoutFor(mtu int, several bool) layout {
	switch {
	case mtu <= mtuFor(smallChunk, 1):
		return layout{smallChunk, mtu, false}
	case mtu <= mtuFor(largeChunk, 1) || !several:
		return layout{largeChunk, min(mtu, mtuFor(largeChunk, 1)), false}
	}
	return layout{largeChunk, min(mtu, mtuFor(largeChunk, maxChunks)), true}
}

// mtuFor returns the MTU of packets that fit into a number of chunks. In chunks of received frames, the kernel reserves
// headroom for programs that add headers.
func mtuFor(chunk, chunks int) int { return chunks*(chunk-unix.XDP_PACKET_HEADROOM) - wire.EtherLen }

// umem is the memory that this process shares with the kernel, in chunks. Each queue has some for received frames and
// some to send from.
type umem struct {
	mem    []byte
	chunk  int // size of one
	rx, tx int // chunks of a queue
}

// newUMEM allocates the memory for a number of queues.
func newUMEM(queues, chunk int) (*umem, error) {
	u := share(queues, chunk)
	size := queues * (u.rx + u.tx) * chunk
	var err error
	u.mem, err = unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
	if err != nil {
		return nil, fmt.Errorf("map %d KiB for frames: %w", size>>10, err)
	}
	return u, nil
}

// share returns the number of chunks for each queue, which is smaller if there are many queues.
func share(queues, chunk int) *umem {
	u := &umem{chunk: chunk, rx: 2048}
	for u.rx > 512 && u.rx*queues > 8192 {
		u.rx /= 2
	}
	u.tx = u.rx / 2
	return u
}

func (u *umem) free() { _ = unix.Munmap(u.mem) }

// rxChunks returns the addresses of the queue's chunks for received frames.
func (u *umem) rxChunks(queue int) []uint64 { return u.chunks(queue*(u.rx+u.tx), u.rx) }

// txChunks returns the addresses of the queue's chunks to send from.
func (u *umem) txChunks(queue int) []uint64 { return u.chunks(queue*(u.rx+u.tx)+u.rx, u.tx) }

func (u *umem) chunks(first, n int) []uint64 {
	addrs := make([]uint64, n)
	for i := range addrs {
		addrs[i] = uint64((first + i) * u.chunk)
	}
	return addrs
}

// bytes returns the memory of a descriptor.
func (u *umem) bytes(addr uint64, n uint32) []byte { return u.mem[addr : addr+uint64(n)] }

// pieces returns how many chunks a frame of n bytes takes when it is sent.
func (u *umem) pieces(n int) int { return (n + u.chunk - 1) / u.chunk }
