package server

import (
	"context"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/roce/daemon/abi"
	"github.com/goroce/goroce/tests/require"
)

// lingering returns a socket whose last close waits for its peer, until release is called.
func lingering(t *testing.T) (fd int, release func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	must(t, err)
	defer c.Close()
	peer, err := l.Accept()
	must(t, err)
	f, err := c.(*net.TCPConn).File()
	must(t, err)
	defer f.Close()
	fd, err = unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	must(t, err)
	for err == nil {
		err = unix.Sendto(fd, make([]byte, 64<<10), unix.MSG_DONTWAIT, nil)
	}
	must(t, unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: 3600}))
	return fd, func() { _ = peer.Close() }
}

// TestUnread drops a client whose unread next message holds a descriptor that takes an hour to
// close. The server must end, and the user hold nothing.
func TestUnread(t *testing.T) {
	s, listener := newServer(t)
	conn, err := net.DialUnix("unixpacket", nil, listener.Addr().(*net.UnixAddr))
	must(t, err)
	defer conn.Close()
	fd, release := lingering(t)
	defer release()
	_, err = conn.Write([]byte("no"))
	must(t, err)
	_, _, err = conn.WriteMsgUnix([]byte("more of it"), unix.UnixRights(fd), nil)
	must(t, err)
	must(t, unix.Close(fd))

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, listener) }()
	require.Until(t, "the client has come and gone", func() bool {
		return s.totals.clients.Load() == 1 &&
			s.Clients() == 0
	})
	cancel()
	select {
	case err := <-ended:
		must(t, err)
	case <-time.After(30 * time.Second):
		t.Fatal("the server does not end")
	}
	require.Until(t, "its user holds nothing", func() bool { return len(s.Usage()) == 0 })
}

// TestNudged checks that nudged makes closing a lingering descriptor return soon.
func TestNudged(t *testing.T) {
	fd, release := lingering(t)
	defer release()
	closed := make(chan struct{})
	newCloser().closeFiles([]int{fd}, func() { close(closed) })
	select {
	case <-closed:
	case <-time.After(30 * time.Second):
		t.Error("it waits for its peer")
	}
}

// TestCloserBounds checks that descriptors that never close block at most the threads of one
// user, and that messages with further descriptors are not received. Connections are closed all
// the same, and other users have closers of their own.
func TestCloserBounds(t *testing.T) {
	c, never, running := newCloser(), make(chan struct{}), make(chan struct{}, 100)
	for range 3 * mostWorkers {
		c.files.do(func() {
			running <- struct{}{}
			<-never
		})
	}
	for range mostWorkers {
		<-running
	}
	for range mostTaken {
		c.closeFiles([]int{-1}, func() {})
	}
	taken := make(chan struct{})
	c.take(func() { close(taken) })
	if n := c.waiting(); n != 1 {
		t.Errorf("%d wait for descriptors to close, want the one message", n)
	}
	closed := make(chan struct{})
	c.closeConn(func() { close(closed) })
	<-closed
	other := make(chan struct{})
	newCloser().closeFiles([]int{-1}, func() { close(other) })
	<-other
	select {
	case <-taken:
		t.Error("a message is taken whose descriptors cannot be closed")
	case <-running:
		t.Errorf("more than %d threads close", mostWorkers)
	default:
	}
	close(never)
	<-taken
}

// TestHelloFirst checks that no descriptors are received from a client before its hello.
func TestHelloFirst(t *testing.T) {
	s, listener := newServer(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, listener) }()
	defer func() {
		cancel()
		must(t, <-ended)
	}()
	hello := abi.Put(nil, &abi.Hello{Magic: abi.Magic, MinVersion: abi.Version, MaxVersion: abi.Version})
	for _, first := range []bool{true, false} {
		c, err := net.DialUnix("unixpacket", nil, listener.Addr().(*net.UnixAddr))
		must(t, err)
		conn := abi.NewConn(c)
		must(t, conn.SetDeadline(time.Now().Add(30*time.Second)))
		if first {
			must(t, conn.Send(abi.Header{Op: abi.OpHello}, hello))
			_, _, _, err = conn.Receive()
			must(t, err)
		}
		must(t, conn.Send(abi.Header{Op: abi.OpHello}, hello, int(os.Stdin.Fd())))
		if _, _, _, err := conn.Receive(); (err == nil) != first {
			t.Errorf("with hello said %v, descriptors are answered with %v, want an error only then", first, err)
		}
		must(t, conn.Close())
	}
}
