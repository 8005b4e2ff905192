package daemon

import (
	"bytes"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/roce/daemon/abi"
	"github.com/goroce/goroce/tests/require"
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
	if err := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER,
		&unix.Linger{Onoff: 1, Linger: 3600}); err != nil {
		t.Fatal(err)
	}
	return fd
}

// standStill sends SIGSTOP to the daemon, and waits until all of its threads are stopped.
func (d *daemon) standStill() {
	d.Helper()
	_ = d.cmd.Process.Signal(syscall.SIGSTOP)
	require.Until(d, "the daemon stands still", func() bool {
		list, _ := filepath.Glob(perProc(d.cmd.Process.Pid, "task/*/status"))
		return len(list) > 0 && !slices.ContainsFunc(list, func(path string) bool {
			status, err := os.ReadFile(path)
			return err != nil || !bytes.Contains(status, []byte("State:\tT"))
		})
	})
}

// threads returns how many threads the daemon has.
func (d *daemon) threads() int {
	d.Helper()
	list, err := os.ReadDir(perProc(d.cmd.Process.Pid, "task"))
	if err != nil {
		d.Fatal(err)
	}
	return len(list)
}

// moreThreads is how many threads more the daemon may have under any load: those of a user's
// closer, and some of Go's runtime.
const moreThreads = 20

// TestManyLingering sends lingering descriptors on many connections: before hello, with requests,
// more than a message may carry, and inside other sockets. Each could block a thread of the
// daemon for an hour. The daemon may use only moreThreads more, and all connections must end.
func TestManyLingering(t *testing.T) {
	a, b := startDaemon(t), startDaemon(t)
	others := startSteady(t, a, b)
	before, threads := a.settled(), a.threads()
	rounds := require.Rounds(8, 40)
	clock := abi.Header{Op: abi.OpClock}
	ways := []struct {
		name  string
		hello bool
		send  func(r *raw, fd int) error
	}{
		{"before hello", false, func(r *raw, fd int) error { return r.conn.Send(clock, nil, fd) }},
		{"behind another message", false, func(r *raw, fd int) error {
			return errors.Join(r.conn.Send(clock, nil),
				r.conn.Send(clock, nil, fd))
		}},
		{"with a request", true, func(r *raw, fd int) error { return r.conn.Send(clock, nil, fd) }},
		{"too many", true, func(r *raw, fd int) error {
			return r.conn.Send(clock, nil,
				slices.Repeat([]int{fd}, 200)...)
		}},
		{"in another socket", true, func(r *raw, fd int) error {
			p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer abi.CloseAll(p[:])
			return errors.Join(unix.Sendmsg(p[0], []byte("x"), unix.UnixRights(fd), nil, 0),
				r.conn.Send(clock, nil, p[1]))
		}},
	}
	r, err := dialRaw(a.socket)
	must(err)
	r.open()
	if err := unix.Sendmsg(r.fds[0], []byte("x"), unix.UnixRights(0), nil, unix.MSG_NOSIGNAL); !errors.Is(err,
		unix.EPIPE) {
		t.Errorf("the socket of events takes descriptors: %v, want %v", err, unix.EPIPE)
	}
	r.close()
	var list []*raw
	for i := range rounds * len(ways) {
		r, err := dialRaw(a.socket)
		must(err)
		if ways[i%len(ways)].hello {
			r.open()
		}
		list = append(list, r)
	}
	a.standStill() // so that it gets the descriptors only after we have closed ours
	for i, r := range list {
		fd := lingering(t)
		if err := ways[i%len(ways)].send(r, fd); err != nil {
			t.Errorf("%s: %v", ways[i%len(ways)].name, err)
		}
		unix.Close(fd)
	}
	_ = a.cmd.Process.Signal(syscall.SIGCONT)
	others.goesOn(100)
	for _, r := range list {
		r.close()
	}
	others.goesOn(100)
	if n := a.threads(); n > threads+moreThreads {
		t.Errorf("%d threads, want at most %d", n, threads+moreThreads)
	}
	a.returnsTo(before)
}

// TestLingering sends descriptors that take an hour to close. The daemon must close the
// client's objects all the same.
func TestLingering(t *testing.T) {
	a, b := startDaemon(t), startDaemon(t)
	others := startSteady(t, a, b)
	q := newQueues(a.socket)
	defer func() { q.close() }()
	objects := a.objectsOf(os.Getpid())
	fd := lingering(t)
	a.standStill() // so that it gets the descriptor only after we have closed ours
	if err := q.conn.Send(abi.Header{Op: abi.OpClock, Seq: 1}, nil, fd); err != nil {
		t.Fatal(err)
	}
	unix.Close(fd)
	_ = a.cmd.Process.Signal(syscall.SIGCONT)
	q.close()
	require.Until(t, "the client's objects are gone", func() bool { return a.objectsOf(os.Getpid()) < objects })
	others.goesOn(10)
}
