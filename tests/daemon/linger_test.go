package daemon

import (
	"net"
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/roce/abi"
)

// lingering returns a socket whose last close waits for its peer, which reads nothing.
func lingering(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	f, err := c.(*net.TCPConn).File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	defer c.Close()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	for err = nil; err == nil; {
		err = unix.Sendto(fd, make([]byte, 64<<10), unix.MSG_DONTWAIT, nil)
	}
	if err := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: 3600}); err != nil {
		t.Fatal(err)
	}
	return fd
}

// TestLingering sends descriptors that take an hour to close. The daemon forgets the
// client all the same.
func TestLingering(t *testing.T) {
	a, b := startDaemon(t), startDaemon(t)
	others := startSteady(t, a, b)
	q := newQueues(a.socket)
	defer func() { q.close() }()
	objects := a.objectsOf(os.Getpid())
	fd := lingering(t)
	// A daemon that stands still has not got it yet: the last to close it is not we.
	_ = a.cmd.Process.Signal(syscall.SIGSTOP)
	if err := q.conn.Send(abi.Header{Op: abi.OpClock, Seq: 1}, nil, fd); err != nil {
		t.Fatal(err)
	}
	unix.Close(fd)
	_ = a.cmd.Process.Signal(syscall.SIGCONT)
	q.close()
	eventually(t, "the client's objects are gone", func() bool { return a.objectsOf(os.Getpid()) < objects })
	others.goesOn(10)
}
