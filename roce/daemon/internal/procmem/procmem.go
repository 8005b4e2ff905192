//go:build linux

// Package procmem accesses memory of another process (mr.Memory) by process_vm_readv(2) and
// process_vm_writev(2). It serves clients that cannot choose where their buffers lie.
//
// A call takes a microsecond and copies at some GB/s. It may also block for ever, if a page is
// under userfaultfd or belongs to a file system that does not answer, so it must be made by a
// roce.Worker, and never with a lock held. At each call the kernel checks the caller's permission
// to ptrace the process, with whatever program it runs by then. Use Bind where the caller's own
// permission must not count, since it may exceed that of the process's user.
//
// Received data is copied in order of addresses, the end of each packet by itself and last, as with
// direct memory: programs poll the last bytes of a message for its arrival.
//
// CompareSwap and FetchAdd read and write in two calls, under a lock of the Process. They are
// atomic with each other, as ib.AtomicHCA promises, but not with accesses by the process itself.
package procmem

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/mr"
)

// Errors. Accesses return ErrUnmapped and ErrPermission in an *AccessError.
var (
	// ErrGone means that the process has ended or, after Bind, has executed another program.
	ErrGone = errors.New("process has ended")
	// ErrUnmapped means that the process has no such memory, or cannot write there itself.
	ErrUnmapped = errors.New("memory not mapped, or protected")
	// ErrPermission means that the caller may not access the memory of this process.
	ErrPermission = errors.New("no permission to access the process's memory")
)

// AccessError says which access failed, and why.
type AccessError struct {
	PID   int
	Addr  uint64
	Len   int
	Write bool
	Err   error // ErrUnmapped, ErrPermission or the kernel's errno
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

// Process is a process whose memory is accessed.
type Process struct {
	pid     int
	pidfd   int
	mem     *os.File // /proc/PID/mem, from Bind; nil after NewProcess
	atomics sync.Mutex
	seen    atomic.Int64 // when check last found it alive, on clock; 0: never
}

// NewProcess returns the process with that PID. pidfd refers to the same process (SO_PEERPIDFD,
// or pidfd_open by its parent), and shows whether it has ended, as the PID may be reused then.
// The caller closes pidfd when no Memory of the process is in use any more.
func NewProcess(pid, pidfd int) *Process { return &Process{pid: pid, pidfd: pidfd} }

// nowhere is an address at which no process has memory.
const nowhere = 1 << 62

// Probe reports whether the process's memory may be accessed now: ErrPermission, ErrGone,
// or nil. It reads at an address without memory, so it cannot block on a page.
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

// lease is how long alive relies on an earlier check. The kernel assigns PIDs in rotation, so a PID is reused only
// after tens of thousands of forks, each of which takes microseconds.
const lease = 500 * time.Microsecond

// clock is cheaper than time.Now, which reads two clocks.
func clock() int64 { return int64(time.Since(started)) }

var started = time.Now().Add(-time.Second) // clock is never 0

// alive returns nil if the PID belongs to the process, which may have ended meanwhile, and ErrGone if it may belong to
// another.
func (p *Process) alive() error {
	now := clock()
	if seen := p.seen.Load(); seen != 0 && now-seen < int64(lease) {
		return nil
	}
	err := p.check()
	if err == nil {
		p.seen.Store(now)
	}
	return err
}

// check returns ErrGone if the process has ended: its pidfd is readable then.
func (p *Process) check() error {
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
	_ mr.Memory       = (*Memory)(nil)
	_ mr.Vector       = (*Memory)(nil)
	_ mr.VectorReader = (*Memory)(nil)
)

// Memory returns the length bytes from addr on. Whether they are mapped is known only when they
// are accessed. The error is ErrUnmapped if no process can have such addresses.
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

// Direct returns nil: the memory is accessed by system calls only.
func (m *Memory) Direct() []byte { return nil }

// ReadAt fills b from offset off. After an error the contents of b are undefined.
func (m *Memory) ReadAt(b []byte, off uint64) error {
	return m.move([]mr.Piece{{Off: off, B: b}}, false)
}

// WriteAt stores b at offset off. After an error part of it may be stored.
func (m *Memory) WriteAt(b []byte, off uint64) error {
	return m.move([]mr.Piece{{Off: off, B: b}}, true)
}

// WriteVector stores pieces (mr.Vector).
func (m *Memory) WriteVector(pieces []mr.Piece) error { return m.move(pieces, true) }

// ReadVector fills pieces (mr.VectorReader).
func (m *Memory) ReadVector(pieces []mr.Piece) error { return m.move(pieces, false) }

// CompareSwap stores swap at off if the value there is compare, and returns the old value.
func (m *Memory) CompareSwap(off, compare, swap uint64) (old uint64, err error) {
	return m.update(off, func(old uint64) (uint64, bool) { return swap, old == compare })
}

// FetchAdd adds to the number at off and returns the old value.
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

// Stalls returns how often the calling thread has slept, or has taken a page fault, so far. If the number grows during
// a move, the move had to wait for a page or for a lock.
func Stalls() uint64 {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_THREAD, &u) != nil {
		return 0
	}
	return uint64(u.Nvcsw + u.Minflt + u.Majflt)
}

// move reads or writes pieces. It checks before the call that the PID still belongs to the process, so as not to write
// to another one that has reused it, and again after the call, which may take long: if the PID belongs to the process
// then, it did during the whole call.
func (m *Memory) move(pieces []mr.Piece, write bool) error {
	if m.p.mem != nil {
		return m.moveAll(pieces, write, m.callBound)
	}
	if err := m.p.alive(); err != nil {
		return err
	}
	if err := m.moveAll(pieces, write, m.call); err != nil {
		return err
	}
	return m.p.alive()
}

// moveAll moves pieces by as few calls as possible.
func (m *Memory) moveAll(pieces []mr.Piece, write bool, call func(v *vectors, write bool) error) error {
	v := vectorPool.Get().(*vectors)
	defer vectorPool.Put(v)
	defer v.empty()
	for i := range pieces {
		p := &pieces[i]
		if p.Off > m.length || uint64(len(p.B)) > m.length-p.Off {
			return mr.FaultBounds
		}
		at, each := m.addr+p.Off, p.Each
		if each == 0 {
			each = len(p.B)
		}
		for b := p.B; len(b) > 0; {
			n := min(each, len(b))
			if !v.room() {
				if err := call(v, write); err != nil {
					return err
				}
				v.empty()
			}
			v.add(at, b[:n], write)
			b, at = b[n:], at+uint64(n)
		}
	}
	if v.nl == 0 {
		return nil
	}
	return call(v, write)
}

// call moves what v has with one system call.
func (m *Memory) call(v *vectors, write bool) error {
	transfer := unix.ProcessVMReadv
	if write {
		transfer = unix.ProcessVMWritev
	}
	n, err := transfer(m.p.pid, v.local[:v.nl], v.remote[:v.nr], 0)
	if err == nil && n == v.total {
		return nil
	}
	return m.failed(v.remote[:v.nr], max(n, 0), write, err)
}

// failed returns the error for a call that moved only n bytes.
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
