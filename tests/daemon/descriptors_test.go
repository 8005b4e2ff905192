package daemon

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/roce/daemon/abi"
)

// strange opens a descriptor that a daemon must not accept as memory; -1 if this machine has
// no such descriptor.
type strange struct {
	name string
	make func() int
}

func opened(path string, flags int) func() int {
	return func() int {
		fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
		must(err)
		return fd
	}
}

// reopened opens a good memfd once more, with other flags.
func reopened(flags int) func() int {
	return func() int {
		fd := newMemfd(0, hostileMemory, unix.F_SEAL_SHRINK)
		defer unix.Close(fd)
		return opened(fmt.Sprintf("/proc/self/fd/%d", fd), flags)()
	}
}

func sealed(seals int) func() int {
	return func() int { return newMemfd(0, hostileMemory, seals) }
}

func made(fd int, err error) int {
	must(err)
	return fd
}

var stranges = []strange{
	{"a pipe", func() int {
		var p [2]int
		must(unix.Pipe2(p[:], unix.O_CLOEXEC))
		must(unix.Close(p[0]))
		return p[1]
	}},
	{"a socket", func() int { return made(unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)) }},
	{"half of a pair of sockets", func() int {
		p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		must(err)
		must(unix.Close(p[0]))
		return p[1]
	}},
	{"an eventfd", func() int { return made(unix.Eventfd(0, unix.EFD_CLOEXEC)) }},
	{"an epoll instance", func() int { return made(unix.EpollCreate1(unix.EPOLL_CLOEXEC)) }},
	{"a timer", func() int { return made(unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC)) }},
	{"a process", func() int { return made(unix.PidfdOpen(os.Getpid(), 0)) }},
	{"nothing", opened("/dev/null", unix.O_RDWR)},
	{"zeros", opened("/dev/zero", unix.O_RDWR)},
	{"a directory", opened("/", unix.O_RDONLY)},
	{"a place in a directory", opened("/dev/null", unix.O_PATH)},
	{"a file", func() int {
		f, err := os.CreateTemp("", "hostile")
		must(err)
		defer f.Close()
		must(os.Remove(f.Name()))
		must(f.Truncate(hostileMemory))
		return made(unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3))
	}},
	{"memory to read", reopened(unix.O_RDONLY)},
	{"the name of memory", reopened(unix.O_PATH)},
	{"memory that can shrink", sealed(0)},
	{"memory that can shrink and not grow", sealed(unix.F_SEAL_GROW | unix.F_SEAL_SEAL)},
	{"memory that cannot be written to", sealed(unix.F_SEAL_SHRINK | unix.F_SEAL_WRITE)},
	{"memory that cannot be written to later", sealed(unix.F_SEAL_SHRINK | unix.F_SEAL_FUTURE_WRITE)},
	{"memory that cannot be sealed any more", sealed(unix.F_SEAL_SHRINK | unix.F_SEAL_SEAL)},
	{"no memory", func() int { return newMemfd(0, 0, unix.F_SEAL_SHRINK) }},
	{"huge pages", func() int {
		fd, err := unix.MemfdCreate("hostile", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_HUGETLB)
		if err != nil {
			return -1
		}
		_ = unix.Ftruncate(fd, 2<<20)
		_, _ = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK)
		return fd
	}},
}

// descriptors sends the daemon descriptors of all kinds, and changes the files of those that it
// accepts.
func (a *attacker) descriptors(rounds int) {
	q := newQueues(a.Socket)
	defer func() { q.close() }()
	for range rounds {
		s := stranges[a.rng.IntN(len(stranges))]
		fd := s.make()
		if fd < 0 {
			continue
		}
		status, _, fds, err := a.offer(q, fd)
		must(err)
		if abi.CloseAll(fds); status == abi.OK {
			a.problem("the daemon takes %s for memory", s.name)
		}
		a.count("refused")
		// Send descriptors with a request that takes none.
		ask[abi.ClockReply](q.raw, abi.OpClock, struct{}{}, fd, fd, fd)
		must(unix.Close(fd))
		a.swap(q)
	}
	a.tooMany()
	a.tooLong()
}

// offer sends a request that takes memory, with a descriptor.
func (a *attacker) offer(q *queues, fd int) (abi.Status, []byte, []int, error) {
	switch a.rng.IntN(3) {
	case 0:
		return q.call(abi.OpCreateCQ, abi.Put(nil, &abi.CreateCQ{Entries: 4}), fd)
	case 1:
		return q.call(abi.OpCreateSRQ, abi.Put(nil, &abi.CreateSRQ{PD: q.pd, MaxWR: 4, MaxSGE: 1}), fd)
	}
	return q.call(abi.OpShareMemory, nil, fd)
}

func (a *attacker) problem(format string, args ...any) {
	a.Problems = append(a.Problems, fmt.Sprintf(format, args...))
}

// swap registers memory, and then tries to shrink it and to make holes in it, and makes its
// descriptor's number refer to another file. The registered memory must stay usable.
func (a *attacker) swap(q *queues) {
	buf, fd := q.share(hostileMemory)
	defer unix.Close(fd)
	file := q.shareMemory(fd)
	mr, _ := ask[abi.RegReply](q.raw, abi.OpRegMR, q.memory(file))
	a.count("taken")
	const hole = unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE
	for what, err := range map[string]error{
		"is truncated":               unix.Ftruncate(fd, 0),
		"gets a hole":                unix.Fallocate(fd, hole, 0, hostileMemory),
		"gets a hole by its mapping": unix.Madvise(buf, unix.MADV_REMOVE),
	} {
		if !errors.Is(err, unix.EPERM) {
			a.problem("memory that is registered %s: %v, want EPERM", what, err)
		}
	}
	other := stranges[a.rng.IntN(len(stranges))].make()
	if other < 0 {
		other = newMemfd(0, 0, 0)
	}
	must(unix.Dup3(other, fd, unix.O_CLOEXEC))
	must(unix.Close(other))
	a.use(q, mr.Key)
	ask[abi.CloseReply](q.raw, abi.OpClose, abi.Close{Handle: mr.Handle, Kind: abi.KindMR})
	ask[abi.CloseReply](q.raw, abi.OpClose, abi.Close{Handle: file, Kind: abi.KindSharedMemory})
}

// use posts requests that read the memory, and write to it.
func (a *attacker) use(q *queues, key abi.Handle) {
	q.key, key = key, q.key
	defer func() { q.key = key }()
	for range 4 {
		a.plausible(q, q.send[0])
		a.ring(q, 0)
	}
	a.again(q, 0)
	a.again(q, 1)
}

// tooMany sends more descriptors than a message may carry: the daemon closes the connection.
func (a *attacker) tooMany() {
	r, err := dialRaw(a.Socket)
	must(err)
	defer r.close()
	fds := make([]int, 200)
	for i := range fds {
		fds[i] = int(os.Stdin.Fd())
	}
	if _, _, _, err := r.call(abi.OpHello, make([]byte, 8), fds...); err == nil {
		a.problem("%d descriptors are answered", len(fds))
	}
}

// tooLong sends messages that are too short for a header, or too long: the daemon closes the connection.
func (a *attacker) tooLong() {
	for _, n := range []int{0, 1, 7, abi.MaxMessage + 1, 100 << 10} {
		r, err := dialRaw(a.Socket)
		must(err)
		if _, err := r.conn.Write(make([]byte, n)); err != nil {
			a.problem("%d bytes: %v", n, err)
		}
		if _, _, _, err := r.conn.Receive(); err == nil {
			a.problem("%d bytes are answered", n)
		}
		r.close()
	}
}
