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

// Bind is NewProcess with a file that the process has opened itself and handed over,
// /proc/self/mem for reading and writing: that it could is its permission, and no right
// over other processes is needed. The memory is what the process had then. When it begins
// another program (execve), perhaps one with more rights than its user's, the memory is
// gone (ErrGone), and that of the new program is never touched.
//
// The file is the Process's, also if Bind fails: see Close. That it is what it should be is
// checked, against /proc, where the process must be visible.
//
// Protection is not looked at: memory that the process itself can only read, or not even
// that, is read and written all the same, a copy of its own if the mapping is private
// (proc_pid_mem(5)).
func Bind(pid, pidfd int, mem *os.File) (*Process, error) {
	p := &Process{pid: pid, pidfd: pidfd, mem: mem}
	err := p.checkFile()
	if err == nil {
		err = p.alive() // so it was the process, not one that has its number now
	}
	if err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// checkFile compares the file with the process's. Names prove nothing, as everybody can
// mount files under others; and a file system that does not answer is not asked.
func (p *Process) checkFile() error {
	var given, want unix.Statx_t
	raw, err := p.mem.SyscallConn()
	if err != nil {
		return err
	}
	if controlErr := raw.Control(func(fd uintptr) {
		err = unix.Statx(int(fd), "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_INO, &given)
	}); controlErr != nil || err != nil {
		return errors.Join(controlErr, os.NewSyscallError("statx", err))
	}
	if err := unix.Statx(unix.AT_FDCWD, fmt.Sprintf("/proc/%d/mem", p.pid), 0, unix.STATX_INO, &want); err != nil {
		return fmt.Errorf("process %d is not to be seen: %w", p.pid, os.NewSyscallError("statx", err))
	}
	if given.Ino != want.Ino || given.Dev_major != want.Dev_major || given.Dev_minor != want.Dev_minor {
		return fmt.Errorf("a file that is not /proc/self/mem of process %d: %w", p.pid, ErrNotMemory)
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
