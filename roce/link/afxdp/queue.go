package afxdp

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/internal/sock"
)

const (
	// releaseTime limits the wait for the resources of a closed socket: the kernel releases queue and locked memory
	// some time after the close, under the lock that all changes of interfaces take. releaseMost limits it if nobody
	// else can have them.
	releaseTime  = 2 * time.Second
	releaseMost  = time.Minute
	releaseRetry = time.Millisecond

	// sendBuffer is larger than all chunks of a queue, counted in socket buffers. What may be outstanding is limited by
	// the rings, not by the socket.
	sendBuffer = 64 << 20

	kernelBatch = 32 // TX_BATCH_SIZE of net/xdp/xsk.c
)

// queue is an AF_XDP socket for one receive and one send queue of the interface, with its rings and its chunks of the
// UMEM.
type queue struct {
	id       int
	fd       int
	mem      *umem
	maps     [][]byte // memory of the rings
	zeroCopy bool
	busy     bool       // the driver runs in our system calls, not on interrupts
	broken   unix.Errno // error of the last kick, 0 if it succeeded

	rx   consumer[unix.XDPDesc]
	tx   producer[unix.XDPDesc]
	fill producer[uint64] // chunks for received frames
	done consumer[uint64] // chunks whose frames have been sent

	free []uint64 // chunks to send from
	lent []uint64 // chunks of the frames that Recv has returned
}

// binding says how to bind sockets.
type binding struct {
	netif    int
	modes    []uint16 // flags to try, best first
	busyPoll time.Duration
}

// openQueue opens the socket of a queue. The first socket registers mem; the others share it, and are bound with the
// same flags.
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
		unknown := func() bool { return false } // the limit may be too low
		if err := retryWhile(unix.ENOBUFS, unknown, func() error { return register(q.fd, q.mem) }); err != nil {
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
	for _, way := range b.modes {
		q.zeroCopy = way&unix.XDP_ZEROCOPY != 0
		if err = q.bind(b.netif, way|unix.XDP_USE_NEED_WAKEUP, 0); err == nil {
			break
		}
	}
	return err
}

// mapRings creates the four rings and maps them. They have as many entries as there are chunks, so an entry for a chunk
// is always free.
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
	mem, err := unix.Mmap(q.fd, page, ringLen[T](at, n), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return ring[T]{}, fmt.Errorf("map ring: %w", err)
	}
	q.maps = append(q.maps, mem)
	return newRing[T](mem, at, n), nil
}

// tune sets options that make the socket faster. Only errors of busy polling are returned: it was asked for.
func (q *queue) tune(busyPoll time.Duration) error {
	_ = unix.SetsockoptInt(q.fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, sendBuffer)
	// frames sent in one call; Linux 6.18
	_ = unix.SetsockoptInt(q.fd, unix.SOL_XDP, unix.XDP_MAX_TX_SKB_BUDGET, q.mem.tx)
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
	released := func() bool { return alone(q.id + 1) }
	return os.NewSyscallError("bind", retryWhile(unix.EBUSY, released, func() error { return unix.Bind(q.fd, at) }))
}

// retryWhile calls f again as long as it returns the error busy: for releaseTime, or for releaseMost if released
// reports that only a socket that was closed can be the reason.
func retryWhile(busy unix.Errno, released func() bool, f func() error) error {
	for start := time.Now(); ; time.Sleep(releaseRetry) {
		err := f()
		waited := time.Since(start)
		if !errors.Is(err, busy) || waited > releaseMost || waited > releaseTime && !released() {
			return err
		}
	}
}

// alone reports whether this network namespace has no more than n AF_XDP sockets.
func alone(n int) bool {
	text, err := os.ReadFile("/proc/thread-self/net/protocols")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 2 && f[0] == "XDP" {
			sockets, err := strconv.Atoi(f[2])
			return err == nil && sockets <= n
		}
	}
	return false
}

// close closes the socket and unmaps the rings. The UMEM stays.
func (q *queue) close() {
	if q.fd >= 0 {
		_ = unix.Close(q.fd)
	}
	for _, mem := range q.maps {
		_ = unix.Munmap(mem)
	}
}

// reclaim makes the chunks of sent frames free.
func (q *queue) reclaim() {
	n := q.done.ready()
	for i := range n {
		q.free = append(q.free, q.done.at(i))
	}
	if n > 0 {
		q.done.release(n)
	}
}

// room reports whether a number of chunks can be sent.
func (q *queue) room(chunks int) bool { return len(q.free) >= chunks && q.tx.room(chunks) >= chunks }

// kick publishes the entries in the TX ring and makes the kernel send as much as the device takes. The ring does not
// tell how much that is: before Linux 6.18 the kernel sends 32 frames in a call and returns EAGAIN without moving the
// index.
func (q *queue) kick(s *link.Stats) {
	q.tx.publish()
	q.broken = 0
	for tries := 1 + q.tx.left()/kernelBatch; tries > 0 && q.tx.left() > 0 && (q.busy || q.tx.needWakeup()); {
		switch errno := call(unix.SYS_SENDTO, q.fd); errno {
		case 0:
			return
		case unix.EBUSY: // the device has dropped a frame
			sock.Lose(s, 1, errno.Error())
		case unix.EAGAIN, unix.ENOBUFS: // the limit of one call, or the device takes no more
			tries--
		default: // the interface is down or gone
			q.broken = errno
			return
		}
	}
}

// waiting reports whether frames in the TX ring need another kick. A zero-copy driver takes them by itself, and while
// the interface is down a kick is useless.
func (q *queue) waiting() bool { return !q.zeroCopy && q.broken == 0 && q.tx.left() > 0 }

// refill gives the kernel back the chunks of the frames that Recv has returned.
func (q *queue) refill() {
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

// overflow returns how many frames the kernel has dropped for lack of chunks.
func (q *queue) overflow() uint64 {
	s, err := statistics(q.fd)
	if err != nil {
		return 0
	}
	return s.Rx_dropped + s.Rx_ring_full
}
