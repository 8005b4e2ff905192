//go:build linux

package procmem

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ErrNotMemory means that a file is not the memory of the expected process.
var ErrNotMemory = errors.New("not the memory of the process")

// Bind is NewProcess with a file, fd: /proc/self/mem, which the process has opened itself for
// reading and writing, and has sent. Holding the file is permission enough, so the caller needs
// no right over other processes. The file refers to the memory that the process had when it
// opened it. After the process executes another program (execve), perhaps one with more rights
// than its user, accesses fail with ErrGone and never reach the new program's memory.
//
// The caller still closes fd. Bind checks it against /proc, where the process must be visible;
// the check cannot block on a file system that does not answer. Of a process in another PID
// namespace, which has a procfs of its own, Bind cannot tell the memory from that of another
// process which the sender may access.
//
// Accesses ignore page protection: memory that the process itself can only read, or not access
// at all, is read and written all the same; a write to a private mapping makes a private copy of
// the page (proc_pid_mem(5)).
func Bind(pid, pidfd, fd int) (*Process, error) {
	if err := checkMemory(pid, fd); err != nil {
		return nil, err
	}
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	p := &Process{pid: pid, pidfd: pidfd, mem: os.NewFile(uintptr(own), "memory")}
	// If the process is alive now, checkMemory has compared with it, not with a later process of that PID.
	if err := p.check(); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// checkMemory checks that a file is /proc/PID/mem. The file's path would prove nothing, as users can mount files over
// others.
func checkMemory(pid, fd int) error { return checkFile(pid, fd, sameInode) }

func checkFile(pid, fd int, same func(given, want *unix.Statx_t) bool) error {
	var given, want unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_INO, &given); err != nil {
		return os.NewSyscallError("statx", err)
	}
	if err := unix.Statx(unix.AT_FDCWD, fmt.Sprintf("/proc/%d/mem", pid), 0, unix.STATX_INO, &want); err != nil {
		return fmt.Errorf("process %d is not visible in /proc: %w", pid, os.NewSyscallError("statx", err))
	}
	if !same(&given, &want) || !isMemory(fd) {
		return fmt.Errorf("a file that is not /proc/self/mem of process %d: %w", pid, ErrNotMemory)
	}
	return nil
}

// sameInode reports whether a file may be the one that is wanted. Inodes of procfs are numbered by a counter of 32
// bits, which wraps on a machine that runs for long, so another file of procfs may have the same number. A process in
// a PID namespace below, as in a container, has an instance of procfs with numbers of its own. In both cases it is
// enough that the file is some memory (isMemory).
func sameInode(given, want *unix.Statx_t) bool {
	same := given.Dev_major == want.Dev_major && given.Dev_minor == want.Dev_minor
	return !same || given.Ino == want.Ino
}

// isMemory reports whether a file is /proc/PID/mem of any process, open for reading and writing. Whoever has opened it
// may access that memory anyway, so the sender gains no rights. Other files of procfs must be refused, as some check
// the rights of the process that writes, not of the one that has opened them. Unlike those, mem accepts offsets from
// 1<<63 on. So do environ and pagemap, but a write to these fails, and they show no more than their opener may see.
func isMemory(fd int) bool {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil || fs.Type != unix.PROC_SUPER_MAGIC {
		return false
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil || flags&unix.O_ACCMODE != unix.O_RDWR {
		return false
	}
	const upper = math.MinInt64 // 1<<63 as an address
	at, err := unix.Seek(fd, upper, io.SeekStart)
	return err == nil && at == upper
}

// Close closes the file of Bind. No Memory of the process may be in use any more.
func (p *Process) Close() {
	if p.mem != nil {
		_ = p.mem.Close()
	}
}

// callBound moves what v has by the file of Bind, with a system call for each remote vector.
func (m *Memory) callBound(v *vectors, write bool) error {
	number := uintptr(unix.SYS_PREADV)
	if write {
		number = unix.SYS_PWRITEV
	}
	local := v.local[:v.nl]
	for i := range v.remote[:v.nr] {
		r := &v.remote[i]
		n, bytes := 0, 0
		for ; bytes < r.Len; n++ {
			bytes += int(local[n].Len)
		}
		moved, _, errno := unix.Syscall6(number, m.p.mem.Fd(), uintptr(unsafe.Pointer(&local[0])),
			uintptr(n), r.Base, 0, 0)
		if errno != 0 {
			moved = 0
		}
		if int(moved) != r.Len {
			return m.failedBound(local[:n], uint64(r.Base), write)
		}
		local = local[n:]
	}
	return nil
}

// failedBound repeats a call that did not move all, one vector after the other, and returns the error of
// the one that fails. The file returns EOF when the memory is gone.
func (m *Memory) failedBound(local []unix.Iovec, at uint64, write bool) error {
	transfer := m.p.mem.ReadAt
	if write {
		transfer = m.p.mem.WriteAt
	}
	for _, l := range local {
		b := unsafe.Slice(l.Base, l.Len)
		_, err := transfer(b, int64(at))
		switch {
		case err == nil:
			at += uint64(len(b))
			continue
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return fmt.Errorf("process %d, or the program that it ran: %w", m.p.pid, ErrGone)
		case errors.Is(err, syscall.EIO):
			err = ErrUnmapped
		}
		return &AccessError{PID: m.p.pid, Addr: at, Len: len(b), Write: write, Err: err}
	}
	return nil
}
