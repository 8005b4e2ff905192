//go:build linux

// Package procmem is memory of another process (mr.Memory), read and written by
// process_vm_readv(2) and process_vm_writev(2): any memory of a client that cannot
// choose where its buffers lie.
//
// A call takes a microsecond and copies at some GB/s. It may also take for ever, where
// a page is under userfaultfd or of a file system that does not answer: it is for a
// roce.Worker, never for who holds a lock. The kernel asks for the right to ptrace the process,
// at each call, of whatever program the process runs by then. Bind is for those who are not
// to rely on a right of their own, as that could be more than the process's user has.
//
// Data that arrives is copied in order of addresses, but not with the care that direct
// memory gets: a program that polls the last bytes of a message for its arrival may see
// a number torn. One that waits for completions sees all.
//
// CompareSwap and FetchAdd read and write in two calls, under a lock of the Process:
// they are atomic among themselves, which is what ib.AtomicHCA promises, and not with
// what the process does itself.
package procmem

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/mr"
)

// Errors. All but ErrGone are told with the process and the addresses.
var (
	// ErrGone: the process has ended.
	ErrGone = errors.New("process has ended")
	// ErrUnmapped: the process has no such memory, or cannot write there itself.
	ErrUnmapped = errors.New("memory not mapped, or protected")
	// ErrPermission: we may not touch the memory of this process.
	ErrPermission = errors.New("no permission to access the process's memory")
)

// AccessError says which access failed, and why.
type AccessError struct {
	PID   int
	Addr  uint64
	Len   int
	Write bool
	Err   error // ErrUnmapped, ErrPermission or what the kernel said
}

func (e *AccessError) Error() string {
	verb := "read"
	if e.Write {
		verb = "write"
	}
	text := fmt.Sprintf("%s %d bytes at %#x of process %d: %v", verb, e.Len, e.Addr, e.PID, e.Err)
	if errors.Is(e.Err, ErrPermission) {
		text += "; " + remedy
	}
	return text
}

const remedy = "same user and kernel.yama.ptrace_scope=0 (or prctl PR_SET_PTRACER in that process), or " +
	"CAP_SYS_PTRACE, allow it"

func (e *AccessError) Unwrap() error { return e.Err }

// Process is a process whose memory is used.
type Process struct {
	pid     int
	pidfd   int
	mem     *os.File // /proc/PID/mem, by which Bind has bound the memory; or nil
	atomics sync.Mutex
}

// NewProcess names a process. pidfd is of the same one (SO_PEERPIDFD, or pidfd_open
// by its parent) and tells that it has not ended, when its number may be another's. It
// stays the caller's, who closes it when no Memory of the process is in use any more.
func NewProcess(pid, pidfd int) *Process { return &Process{pid: pid, pidfd: pidfd} }

// nowhere is an address that no process has memory at.
const nowhere = 1 << 62

// Probe reports whether the process's memory may be touched now: ErrPermission, ErrGone,
// or nil. It asks for a byte that is not there, so it waits for no page.
func (p *Process) Probe() error {
	m := Memory{p: p, addr: nowhere, length: 1}
	switch err := m.ReadAt(make([]byte, 1), 0); {
	case errors.Is(err, ErrUnmapped):
		return nil
	case errors.Is(err, ErrPermission):
		return fmt.Errorf("process %d: %w; %s", p.pid, ErrPermission, remedy)
	default:
		return err
	}
}

// alive returns ErrGone if the process has ended: its pidfd is readable then.
func (p *Process) alive() error {
	fds := [1]unix.PollFd{{Fd: int32(p.pidfd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds[:], 0)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return fmt.Errorf("poll pidfd %d of process %d: %w", p.pidfd, p.pid, err)
		case n > 0:
			return fmt.Errorf("process %d: %w", p.pid, ErrGone)
		default:
			return nil
		}
	}
}

// Memory is a piece of a process's memory.
type Memory struct {
	p      *Process
	addr   uint64
	length uint64
}

var (
	_ mr.Memory = (*Memory)(nil)
	_ mr.Vector = (*Memory)(nil)
)

// Memory returns the length bytes from addr on. Whether they are there shows when they
// are used. The error is ErrUnmapped where no process can have such addresses.
func (p *Process) Memory(addr, length uint64) (*Memory, error) {
	const most = 1 << 63 // what lies above is the kernel's
	if length > most || addr > most-length {
		return nil, fmt.Errorf("%d bytes at %#x of process %d: addresses end at %#x: %w", length, addr, p.pid,
			uint64(most), ErrUnmapped)
	}
	return &Memory{p: p, addr: addr, length: length}, nil
}

// Len returns the number of bytes.
func (m *Memory) Len() uint64 { return m.length }

// Direct returns nil: the memory is reached by calls only.
func (m *Memory) Direct() []byte { return nil }

// ReadAt fills b from offset off. After an error b holds anything.
func (m *Memory) ReadAt(b []byte, off uint64) error {
	return m.move([]mr.Piece{{Off: off, B: b}}, false)
}

// WriteAt stores b at offset off. After an error some of it may be there.
func (m *Memory) WriteAt(b []byte, off uint64) error {
	return m.move([]mr.Piece{{Off: off, B: b}}, true)
}

// WriteVector stores pieces (mr.Vector).
func (m *Memory) WriteVector(pieces []mr.Piece) error { return m.move(pieces, true) }

// CompareSwap stores swap at off if compare is there, and returns what was.
func (m *Memory) CompareSwap(off, compare, swap uint64) (old uint64, err error) {
	return m.update(off, func(old uint64) (uint64, bool) { return swap, old == compare })
}

// FetchAdd adds to the number at off and returns what it was.
func (m *Memory) FetchAdd(off, add uint64) (old uint64, err error) {
	return m.update(off, func(old uint64) (uint64, bool) { return old + add, true })
}

func (m *Memory) update(off uint64, f func(old uint64) (next uint64, store bool)) (uint64, error) {
	m.p.atomics.Lock()
	defer m.p.atomics.Unlock()
	word := make([]byte, 8)
	if err := m.ReadAt(word, off); err != nil {
		return 0, err
	}
	old := binary.NativeEndian.Uint64(word)
	next, store := f(old)
	if !store {
		return old, nil
	}
	binary.NativeEndian.PutUint64(word, next)
	return old, m.WriteAt(word, off)
}

// Effort returns what the calling thread has spent so far: time of a processor, and how
// often it has slept. A move in which it sleeps had to wait, for a page or for a lock.
func Effort() (cpu time.Duration, sleeps uint64) {
	var u unix.Rusage // its times are as old as the latest tick
	var t unix.Timespec
	if unix.Getrusage(unix.RUSAGE_THREAD, &u) != nil || unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) != nil {
		return 0, 0
	}
	return time.Duration(t.Nano()), uint64(u.Nvcsw)
}

// callPieces is how many pieces one call moves at most.
const callPieces = 64

// move reads or writes pieces. The process is looked at before, lest another one that
// has taken over its number be written to, and behind, since one that was there then
// was there all the time. (Between the two looks a number is given to another process
// only if its parent has reaped the old one too.)
func (m *Memory) move(pieces []mr.Piece, write bool) error {
	if m.p.mem != nil {
		return m.moveBound(pieces, write)
	}
	if err := m.p.alive(); err != nil {
		return err
	}
	for len(pieces) > 0 {
		n := min(len(pieces), callPieces)
		if err := m.call(pieces[:n], write); err != nil {
			return err
		}
		pieces = pieces[n:]
	}
	return m.p.alive()
}

// vectors are the arguments of a call.
type vectors struct {
	local  [callPieces]unix.Iovec
	remote [callPieces]unix.RemoteIovec
}

var vectorPool = sync.Pool{New: func() any { return new(vectors) }}

// call moves a few pieces with one system call. Pieces that follow one another there
// are one for the kernel.
func (m *Memory) call(pieces []mr.Piece, write bool) error {
	v := vectorPool.Get().(*vectors)
	defer vectorPool.Put(v)
	defer clear(v.local[:]) // it would keep buffers
	local, remote := &v.local, &v.remote
	nl, nr, total := 0, 0, 0
	for i := range pieces {
		p := &pieces[i]
		n := len(p.B)
		if p.Off > m.length || uint64(n) > m.length-p.Off {
			return mr.FaultBounds
		}
		if n == 0 {
			continue
		}
		local[nl].Base = &p.B[0]
		local[nl].SetLen(n)
		nl++
		at := uintptr(m.addr + p.Off)
		if nr > 0 && remote[nr-1].Base+uintptr(remote[nr-1].Len) == at {
			remote[nr-1].Len += n
		} else {
			remote[nr] = unix.RemoteIovec{Base: at, Len: n}
			nr++
		}
		total += n
	}
	if total == 0 {
		return nil
	}
	transfer := unix.ProcessVMReadv
	if write {
		transfer = unix.ProcessVMWritev
	}
	n, err := transfer(m.p.pid, local[:nl], remote[:nr], 0)
	if err == nil && n == total {
		return nil
	}
	return m.failed(remote[:nr], max(n, 0), write, err)
}

// failed explains a call that moved n bytes only.
func (m *Memory) failed(remote []unix.RemoteIovec, n int, write bool, err error) error {
	for len(remote) > 1 && n >= remote[0].Len {
		n -= remote[0].Len
		remote = remote[1:]
	}
	e := &AccessError{PID: m.p.pid, Addr: uint64(remote[0].Base) + uint64(n), Len: remote[0].Len - n, Write: write,
		Err: err}
	switch err {
	case unix.ESRCH:
		return fmt.Errorf("process %d: %w", m.p.pid, ErrGone)
	case nil, unix.EFAULT:
		e.Err = ErrUnmapped
	case unix.EPERM:
		e.Err = ErrPermission
	}
	return e
}
