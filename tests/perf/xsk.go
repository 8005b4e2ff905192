package perf

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// xsk is an AF_XDP socket on queue 0 of an interface, in copy mode, with a UMEM
// and all four rings of its own.
type xsk struct {
	fd         int
	umem       []byte
	fill       xskRing[uint64]
	completion xskRing[uint64]
	rx         xskRing[unix.XDPDesc]
	tx         xskRing[unix.XDPDesc]
}

const (
	chunks   = 2048 // in the UMEM
	chunkLen = 2048
	// ringEntries is twice the number of chunks, because the kernel reports consumed entries of the FILL ring late.
	ringEntries = 2 * chunks
)

func newXSK(ifIndex int) (s *xsk, err error) {
	s = &xsk{}
	if s.fd, err = unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
		return nil, fmt.Errorf("AF_XDP socket: %w", err)
	}
	if err = s.open(ifIndex); err != nil {
		s.close()
		return nil, fmt.Errorf("AF_XDP socket: %w", err)
	}
	return s, nil
}

func (s *xsk) open(ifIndex int) (err error) {
	s.umem, err = unix.Mmap(-1, 0, chunks*chunkLen, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
	if err != nil {
		return os.NewSyscallError("mmap", err)
	}
	reg := unix.XDPUmemReg{Addr: uint64(uintptr(unsafe.Pointer(&s.umem[0]))), Len: uint64(len(s.umem)), Size: chunkLen}
	if err := s.setOption(unix.XDP_UMEM_REG, unsafe.Pointer(&reg), unsafe.Sizeof(reg)); err != nil {
		return err
	}
	for _, option := range []int{unix.XDP_UMEM_FILL_RING, unix.XDP_UMEM_COMPLETION_RING, unix.XDP_RX_RING,
		unix.XDP_TX_RING} {
		entries := uint32(ringEntries)
		if err := s.setOption(option, unsafe.Pointer(&entries), unsafe.Sizeof(entries)); err != nil {
			return err
		}
	}
	var off unix.XDPMmapOffsets
	size := uint32(unsafe.Sizeof(off))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(s.fd), unix.SOL_XDP, unix.XDP_MMAP_OFFSETS,
		uintptr(unsafe.Pointer(&off)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return os.NewSyscallError("getsockopt XDP_MMAP_OFFSETS", errno)
	}
	err = errors.Join(s.fill.open(s.fd, unix.XDP_UMEM_PGOFF_FILL_RING, off.Fr, true),
		s.completion.open(s.fd, unix.XDP_UMEM_PGOFF_COMPLETION_RING, off.Cr, false),
		s.rx.open(s.fd, unix.XDP_PGOFF_RX_RING, off.Rx, false),
		s.tx.open(s.fd, unix.XDP_PGOFF_TX_RING, off.Tx, true))
	if err != nil {
		return err
	}
	return os.NewSyscallError("bind", unix.Bind(s.fd, &unix.SockaddrXDP{Flags: unix.XDP_COPY,
		Ifindex: uint32(ifIndex)}))
}

func (s *xsk) setOption(option int, value unsafe.Pointer, size uintptr) error {
	_, _, errno := unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(s.fd), unix.SOL_XDP, uintptr(option), uintptr(value),
		size, 0)
	if errno != 0 {
		return os.NewSyscallError(fmt.Sprintf("setsockopt %d of SOL_XDP", option), errno)
	}
	return nil
}

// chunk returns a chunk of the UMEM.
func (s *xsk) chunk(i int) []byte { return s.umem[i*chunkLen : (i+1)*chunkLen] }

// kick makes the kernel send entries of the TX ring, not necessarily all.
func (s *xsk) kick() error {
	_, _, errno := unix.Syscall6(unix.SYS_SENDTO, uintptr(s.fd), 0, 0, unix.MSG_DONTWAIT, 0, 0)
	switch errno {
	case 0, unix.EAGAIN, unix.EBUSY, unix.ENOBUFS:
		return nil
	}
	return os.NewSyscallError("sendto", errno)
}

// close closes the socket, and frees its memory when the kernel does not use it any more.
func (s *xsk) close() {
	_ = unix.Close(s.fd)
	for _, mapped := range [][]byte{s.fill.mapped, s.completion.mapped, s.rx.mapped, s.tx.mapped, s.umem} {
		if mapped != nil {
			_ = unix.Munmap(mapped)
		}
	}
}

// xskRing is the producer's or the consumer's side of a ring that is shared with the kernel. publish passes entries to
// the other side (Documentation/networking/af_xdp.rst).
type xskRing[T any] struct {
	mapped       []byte
	mine, theirs *atomic.Uint32 // indices, free running
	entries      []T
	next         uint32 // next entry to use
	limit        uint32 // first entry that must not be used, as last read
	room         uint32 // distance of limit and theirs
}

func (r *xskRing[T]) open(fd int, at int64, off unix.XDPRingOffset, producer bool) (err error) {
	var entry T
	size := int(off.Desc) + ringEntries*int(unsafe.Sizeof(entry))
	r.mapped, err = unix.Mmap(fd, at, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return os.NewSyscallError("mmap of a ring", err)
	}
	index := func(at uint64) *atomic.Uint32 { return (*atomic.Uint32)(unsafe.Pointer(&r.mapped[at])) }
	r.mine, r.theirs = index(off.Consumer), index(off.Producer)
	if producer {
		r.mine, r.theirs, r.room = r.theirs, r.mine, ringEntries
	}
	r.entries = unsafe.Slice((*T)(unsafe.Pointer(&r.mapped[off.Desc])), ringEntries)
	return nil
}

// give returns the next entry to fill, take the next one that the kernel has filled; nil if there is none.
func (r *xskRing[T]) give() *T { return r.use() }
func (r *xskRing[T]) take() *T { return r.use() }

func (r *xskRing[T]) use() *T {
	if r.next == r.limit {
		if r.limit = r.theirs.Load() + r.room; r.next == r.limit {
			return nil
		}
	}
	entry := &r.entries[r.next%ringEntries]
	r.next++
	return entry
}

// publish passes the used entries to the other side.
func (r *xskRing[T]) publish() { r.mine.Store(r.next) }
