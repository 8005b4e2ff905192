//go:build linux

package procmem

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/mr"
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
// the check cannot block on a file system that does not answer.
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
	if err := p.alive(); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// checkMemory compares a file with /proc/PID/mem by inode. The file's path would prove nothing,
// as users can mount files over others.
func checkMemory(pid, fd int) error {
	var given, want unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_INO, &given); err != nil {
		return os.NewSyscallError("statx", err)
	}
	if err := unix.Statx(unix.AT_FDCWD, fmt.Sprintf("/proc/%d/mem", pid), 0, unix.STATX_INO, &want); err != nil {
		return fmt.Errorf("process %d is not to be seen: %w", pid, os.NewSyscallError("statx", err))
	}
	if given.Ino != want.Ino || given.Dev_major != want.Dev_major || given.Dev_minor != want.Dev_minor {
		return fmt.Errorf("a file that is not /proc/self/mem of process %d: %w", pid, ErrNotMemory)
	}
	return nil
}

// Close closes the file of Bind. No Memory of the process may be in use any more.
func (p *Process) Close() {
	if p.mem != nil {
		_ = p.mem.Close()
	}
}

// moveBound reads or writes pieces by the file of Bind, which returns EOF when the memory is gone.
func (m *Memory) moveBound(pieces []mr.Piece, write bool) error {
	transfer := m.p.mem.ReadAt
	if write {
		transfer = m.p.mem.WriteAt
	}
	for i := range pieces {
		b, off := pieces[i].B, pieces[i].Off
		if off > m.length || uint64(len(b)) > m.length-off {
			return mr.FaultBounds
		}
		_, err := transfer(b, int64(m.addr+off))
		switch {
		case err == nil:
			continue
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return fmt.Errorf("process %d, or the program that it ran: %w", m.p.pid, ErrGone)
		case errors.Is(err, syscall.EIO):
			err = ErrUnmapped
		}
		return &AccessError{PID: m.p.pid, Addr: m.addr + off, Len: len(b), Write: write, Err: err}
	}
	return nil
}
