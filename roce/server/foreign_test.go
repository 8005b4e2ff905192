package server

import (
	"context"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// lingering returns a socket whose last close waits for its peer, until release.
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

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for look := time.NewTicker(time.Millisecond); !holds(); {
		select {
		case <-look.C:
		case <-ctx.Done():
			t.Fatal("never: ", what)
		}
	}
}

// TestUnread: a client is dropped whose next message, which nobody reads, holds a
// descriptor that does not close. The server ends all the same; until the descriptor has
// closed the client counts as one of its user's.
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
	eventually(t, "the client has come and gone", func() bool { return s.totals.clients.Load() == 1 && s.Clients() == 0 })
	cancel()
	select {
	case err := <-ended:
		must(t, err)
	case <-time.After(30 * time.Second):
		t.Fatal("the server does not end")
	}
	if list := s.Usage(); len(list) != 1 || list[0].Amount["connections"] != 1 {
		t.Errorf("with a descriptor that does not close users hold %+v", list)
	}
	release()
	eventually(t, "its user holds nothing", func() bool { return len(s.Usage()) == 0 })
}
