package server

import (
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/daemon/abi"
)

// pidfd refers to a client's process.
type pidfd struct {
	fd   int       // of file
	file *abi.File // nil if the kernel does not show the process
}

// watchProcess makes the session end with the client's process. The end of its connection does not tell: a child that
// the process has forked holds the socket too. A process of a PID namespace that the kernel does not show here is not
// watched; its session ends with the connection. Of such a process no memory but memfds can be registered
// (findProcess).
func (c *session) watchProcess() error {
	fd, err := peerPidfd(c.conn.UnixConn, int(c.who.Pid))
	if errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("%v: the process that has connected, %d, has ended: %w", abi.OpOpen, c.who.Pid, ib.ErrClosed)
	}
	if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOMEM) {
		return fmt.Errorf("%v: watch process %d: %w", abi.OpOpen, c.who.Pid, err)
	}
	if err != nil {
		return nil
	}
	if err := errors.Join(spare(fd), unix.SetNonblock(fd, true)); err != nil { // non-blocking for the poller
		_ = unix.Close(fd)
		return err
	}
	process := c.conn.NewFile(fd, "process")
	c.pidfd = pidfd{fd, process}
	// Until the pidfd is closed, by reap at the latest.
	go func() {
		ended := process.AwaitRead(func(fd uintptr) bool { return exited(int(fd)) })
		if ended == nil { // else the pidfd was closed
			c.srv.log.Debug("the process of a client has ended", "pid", c.who.Pid)
			c.hangUp()
		}
	}()
	return nil
}

// exited reports whether the process of a pidfd has ended: the pidfd is readable then.
func exited(fd int) bool { return abi.Poll(fd, unix.POLLIN) != 0 }

// ended reports whether the process has ended. Until then no other process has its number. checkSender asks it, since
// a message may have been sent by a later process of the same number.
func (p *pidfd) ended() bool { return p.file != nil && exited(p.fd) }

// close closes the pidfd, and so ends the watch.
func (p *pidfd) close() {
	if p.file != nil {
		_ = p.file.Close()
	}
}

// soPeerPidfd is SO_PEERPIDFD of asm-generic/socket.h (Linux 6.5).
const soPeerPidfd = 77

// peerPidfd returns a pidfd of the process that has connected, which cannot refer to another process
// later. Before Linux 6.5 it is opened by number. The error is ESRCH if the process has been reaped, but
// from Linux 6.16 on there is a pidfd of such a process, too.
func peerPidfd(conn *net.UnixConn, pid int) (fd int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return -1, err
	}
	controlErr := raw.Control(func(s uintptr) { fd, err = unix.GetsockoptInt(int(s), unix.SOL_SOCKET, soPeerPidfd) })
	if controlErr != nil {
		return -1, controlErr
	}
	switch {
	case errors.Is(err, unix.ENOPROTOOPT):
		fd, err = unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	case errors.Is(err, unix.EINVAL): // before Linux 6.16: the process has been reaped
		err = unix.ESRCH
	}
	return fd, err
}

// unwatchProcess undoes watchProcess. open calls it if it fails after that; the goroutine that watches ends.
func (c *session) unwatchProcess() {
	c.pidfd.close()
	c.pidfd = pidfd{}
}
