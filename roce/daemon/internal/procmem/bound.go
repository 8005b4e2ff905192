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

// ErrNotMemory: a file is not the memory of the process that it should be of.
var ErrNotMemory = errors.New("not the memory of the process")

// Bind is NewProcess with a file, fd, that the process has opened itself and handed over,
// /proc/self/mem for reading and writing: that it could is its permission, and no right
// over other processes is needed. The memory is what the process had then. When it begins
// another program (execve), perhaps one with more rights than its user's, the memory is
// gone (ErrGone), and that of the new program is never touched.
//
// fd stays the caller's. That it is what it should be is checked, against /proc, where the
// process must be visible; a file system that does not answer is not asked.
//
// Protection is not looked at: memory that the process itself can only read, or not even
// that, is read and written all the same, a copy of its own if the mapping is private
// (proc_pid_mem(5)).
func Bind(pid, pidfd, fd int) (*Process, error) {
	if err := checkMemory(pid, fd); err != nil {
		return nil, err
	}
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	p := &Process{pid: pid, pidfd: pidfd, mem: os.NewFile(uintptr(own), "memory")}
	// If it is there now, it was the process, not one that has its number.
	if err := p.alive(); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// checkMemory compares a file with the process's. Names prove nothing, as everybody can
// mount files under others.
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

// Close closes the file of Bind. No Memory of the process is in use any more.
func (p *Process) Close() {
	if p.mem != nil {
		_ = p.mem.Close()
	}
}

// moveBound moves by /proc/PID/mem, which is at its end when the memory is gone.
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
