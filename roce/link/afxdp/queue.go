package afxdp

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/internal/sock"
)

const (
	// releaseTime bounds the wait for what a closed socket had: the kernel takes queue
	// and locked memory back some time after the close.
	releaseTime  = 2 * time.Second
	releaseRetry = time.Millisecond

	// sendBuffer is more than all chunks of a queue, in socket buffers: these rings
	// bound what is under way, not the socket.
	sendBuffer = 64 << 20

	kernelBatch = 32 // TX_BATCH_SIZE of net/xdp/xsk.c
)

// queue is an AF_XDP socket on one receive and one send queue of the interface, with
// its rings and its chunks of UMEM.
type queue struct {
	id       int
	fd       int
	mem      *umem
	maps     [][]byte // the rings' memory
	zeroCopy bool
	busy     bool       // the kernel's driver runs when we call, not on interrupts
	broken   unix.Errno // why the latest kick sent nothing

	rx   consumer[unix.XDPDesc]
	tx   producer[unix.XDPDesc]
	fill producer[uint64] // chunks to receive to
	done consumer[uint64] // chunks that were sent

	free []uint64 // chunks to send from
	lent []uint64 // chunks with what Recv has returned
}

// binding says how sockets are bound.
type binding struct {
	netif    int
	ways     []uint16 // flags, the best first
	busyPoll time.Duration
}

// openQueue opens the socket of a queue. The first one registers mem; further ones
// name it, and are bound in the same way.
func openQueue(id int, mem *umem, first *queue, b *binding) (*queue, error) {
	q := &queue{id: id, fd: -1, mem: mem, busy: b.busyPoll > 0}
	err := q.open(first, b)
	if err != nil {
		q.close()
		return nil, fmt.Errorf("queue %d: %w", id, err)
	}
	return q, nil
}

func (q *queue) open(first *queue, b *binding) (err error) {
	if q.fd, err = unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
		return fmt.Errorf("AF_XDP socket: %w", os.NewSyscallError("socket", err))
	}
	if first == nil {
		if err := patiently(unix.ENOBUFS, func() error { return register(q.fd, q.mem) }); err != nil {
			return err
		}
	}
	if err := q.mapRings(); err != nil {
		return err
	}
	for _, addr := range q.mem.rxChunks(q.id) {
		q.fill.put(addr)
	}
	q.fill.publish()
	q.free = q.mem.txChunks(q.id)
	q.lent = make([]uint64, 0, q.mem.rx)
	if err := q.tune(b.busyPoll); err != nil {
		return err
	}
	if first != nil {
		q.zeroCopy = first.zeroCopy
		return q.bind(b.netif, unix.XDP_SHARED_UMEM, first.fd)
	}
	for _, way := range b.ways {
		q.zeroCopy = way&unix.XDP_ZEROCOPY != 0
		if err = q.bind(b.netif, way|unix.XDP_USE_NEED_WAKEUP, 0); err == nil {
			break
		}
	}
	return err
}

// mapRings makes the four rings and maps them. As there are as many entries as
// chunks, no chunk ever lacks one.
func (q *queue) mapRings() error {
	for _, r := range []struct {
		name string
		opt  int
		n    int
	}{
		{"FILL", unix.XDP_UMEM_FILL_RING, q.mem.rx},
		{"COMPLETION", unix.XDP_UMEM_COMPLETION_RING, q.mem.tx},
		{"RX", unix.XDP_RX_RING, q.mem.rx},
		{"TX", unix.XDP_TX_RING, q.mem.tx},
	} {
		if err := unix.SetsockoptInt(q.fd, unix.SOL_XDP, r.opt, r.n); err != nil {
			return fmt.Errorf("make %s ring of %d entries: %w", r.name, r.n, err)
		}
	}
	at, err := offsets(q.fd)
	if err == nil {
		q.rx.ring, err = mapRing[unix.XDPDesc](q, unix.XDP_PGOFF_RX_RING, &at.Rx, q.mem.rx)
	}
	if err == nil {
		q.tx.ring, err = mapRing[unix.XDPDesc](q, unix.XDP_PGOFF_TX_RING, &at.Tx, q.mem.tx)
	}
	if err == nil {
		q.fill.ring, err = mapRing[uint64](q, unix.XDP_UMEM_PGOFF_FILL_RING, &at.Fr, q.mem.rx)
	}
	if err == nil {
		q.done.ring, err = mapRing[uint64](q, unix.XDP_UMEM_PGOFF_COMPLETION_RING, &at.Cr, q.mem.tx)
	}
	return err
}

func mapRing[T any](q *queue, page int64, at *unix.XDPRingOffset, n int) (ring[T], error) {
	mem, err := unix.Mmap(q.fd, page, ringLen[T](at, n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return ring[T]{}, fmt.Errorf("map ring: %w", err)
	}
	q.maps = append(q.maps, mem)
	return newRing[T](mem, at, n), nil
}

// tune sets what makes the socket faster. Only busy polling was asked for.
func (q *queue) tune(busyPoll time.Duration) error {
	_ = unix.SetsockoptInt(q.fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, sendBuffer)
	_ = unix.SetsockoptInt(q.fd, unix.SOL_XDP, unix.XDP_MAX_TX_SKB_BUDGET, q.mem.tx) // frames sent in one call; Linux 6.18
	if busyPoll <= 0 {
		return nil
	}
	for _, o := range []struct {
		name       string
		opt, value int
	}{
		{"SO_PREFER_BUSY_POLL", unix.SO_PREFER_BUSY_POLL, 1},
		{"SO_BUSY_POLL", unix.SO_BUSY_POLL, int(max(busyPoll.Microseconds(), 1))},
		{"SO_BUSY_POLL_BUDGET", unix.SO_BUSY_POLL_BUDGET, 2 * rxBatch},
	} {
		if err := unix.SetsockoptInt(q.fd, unix.SOL_SOCKET, o.opt, o.value); err != nil {
			return fmt.Errorf("busy polling: set %s to %d: %w", o.name, o.value, err)
		}
	}
	return nil
}

func (q *queue) bind(netif int, flags uint16, shared int) error {
	at := &unix.SockaddrXDP{Flags: flags, Ifindex: uint32(netif), QueueID: uint32(q.id), SharedUmemFD: uint32(shared)}
	return os.NewSyscallError("bind", patiently(unix.EBUSY, func() error { return unix.Bind(q.fd, at) }))
}

// patiently calls f until it returns anything but that error, or for too long.
func patiently(until unix.Errno, f func() error) error {
	for end := time.Now().Add(releaseTime); ; time.Sleep(releaseRetry) {
		if err := f(); !errors.Is(err, until) || time.Now().After(end) {
			return err
		}
	}
}

// close ends the socket. UMEM stays.
func (q *queue) close() {
	if q.fd >= 0 {
		_ = unix.Close(q.fd)
	}
	for _, mem := range q.maps {
		_ = unix.Munmap(mem)
	}
}

// reclaim takes back the chunks that were sent.
func (q *queue) reclaim() {
	n := q.done.ready()
	for i := range n {
		q.free = append(q.free, q.done.at(i))
	}
	if n > 0 {
		q.done.release(n)
	}
}

// room reports whether so many chunks can be sent.
func (q *queue) room(chunks int) bool { return len(q.free) >= chunks && q.tx.room(chunks) >= chunks }

// kick shows the kernel what was put in the TX ring and has it sent, as far as the
// device takes it. How far the kernel is cannot be told from the ring: before Linux
// 6.18 it sends 32 frames in a call and says EAGAIN without moving the index.
func (q *queue) kick(s *link.Stats) {
	q.tx.publish()
	q.broken = 0
	for tries := 1 + q.tx.left()/kernelBatch; tries > 0 && q.tx.left() > 0 && (q.busy || q.tx.needWakeup()); {
		switch errno := call(unix.SYS_SENDTO, q.fd); errno {
		case 0:
			return
		case unix.EBUSY: // the device has dropped a frame
			sock.Lose(s, 1, errno.Error())
		case unix.EAGAIN, unix.ENOBUFS: // so many at a time, or the device takes no more
			tries--
		default: // the interface is down, or gone
			q.broken = errno
			return
		}
	}
}

// waiting reports whether frames wait in the TX ring for the next kick. A driver that
// copies nothing takes them by itself; while the interface is down there is no use.
func (q *queue) waiting() bool { return !q.zeroCopy && q.broken == 0 && q.tx.left() > 0 }

// giveBack makes the chunks that Recv has lent ready to be received to.
func (q *queue) giveBack() {
	if len(q.lent) > 0 {
		for _, addr := range q.lent {
			q.fill.put(addr)
		}
		q.fill.publish()
		q.lent = q.lent[:0]
	}
	if q.busy || q.fill.needWakeup() {
		_ = call(unix.SYS_RECVFROM, q.fd)
	}
}

// overflow returns how many frames the kernel dropped for want of chunks.
func (q *queue) overflow() uint64 {
	s, err := statistics(q.fd)
	if err != nil {
		return 0
	}
	return s.Rx_dropped + s.Rx_ring_full
}
