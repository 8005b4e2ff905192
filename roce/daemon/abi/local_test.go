package abi

import (
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// must fails the test if there is an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// dialLocal returns both ends of a connection within this process, whose rings are counted.
func dialLocal(t *testing.T) (client, server *Conn, rings *atomic.Int64) {
	t.Helper()
	rings = new(atomic.Int64)
	l := NewLocal(func(wake func()) {
		rings.Add(1)
		wake()
	})
	client, err := l.Dial(t.Context())
	must(t, err)
	server, err = l.Accept()
	must(t, err)
	must(t, server.TellSenders())
	t.Cleanup(func() {
		must(t, l.Close())
		_, _ = client.Close(), server.Close()
	})
	return client, server, rings
}

// later does f after a second of virtual time, for somebody who waits. It returns a function that checks that it was
// this that ended the wait.
func later(t *testing.T, f func()) (waited func(what string)) {
	start := time.Now()
	time.AfterFunc(time.Second, f)
	return func(what string) {
		t.Helper()
		if took := time.Since(start); took != time.Second {
			t.Errorf("%s: the wait took %v of virtual time, want 1s", what, took)
		}
	}
}

// TestLocalMessage: virtual time passes while an end of a local connection waits for a message, which comes with its
// sender and its descriptors.
func TestLocalMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server, rings := dialLocal(t)
		fd, err := unix.MemfdCreate("memory", unix.MFD_CLOEXEC)
		must(t, err)
		defer unix.Close(fd)
		waited := later(t, func() { must(t, client.Send(Header{Op: OpShareMemory, Seq: 7}, []byte("body"), fd)) })
		sender, rights, err := server.Await()
		must(t, err)
		waited("Await")
		if sender == nil || int(sender.Pid) != os.Getpid() || int(sender.Uid) != os.Getuid() || !rights {
			t.Errorf("sender %+v, descriptors %v; want this process, and descriptors", sender, rights)
		}
		h, body, fds, err := server.Receive()
		must(t, err)
		defer CloseAll(fds)
		var sent, got unix.Stat_t
		if len(fds) != 1 || unix.Fstat(fd, &sent) != nil || unix.Fstat(fds[0], &got) != nil || sent.Ino != got.Ino {
			t.Errorf("descriptors %v, want one of the memfd that was sent", fds)
		}
		if h != (Header{Op: OpShareMemory, Seq: 7}) || string(body) != "body" {
			t.Errorf("got %+v with %q, want what was sent", h, body)
		}
		if rings.Load() == 0 {
			t.Error("who waits for no descriptor was not woken")
		}
	})
}

// TestLocalEnds: the close of the other end, of the own end, and a deadline end a wait.
func TestLocalEnds(t *testing.T) {
	for _, c := range []struct {
		what string
		end  func(client, server *Conn) error
		want error
	}{
		{"the client closes", func(client, _ *Conn) error { return client.Close() }, io.EOF},
		{"this end closes", func(_, server *Conn) error { return server.Close() }, net.ErrClosed},
		{"deadline", func(_, server *Conn) error { return server.SetDeadline(time.Unix(1, 0)) },
			os.ErrDeadlineExceeded},
	} {
		synctest.Test(t, func(t *testing.T) {
			client, server, _ := dialLocal(t)
			waited := later(t, func() { must(t, c.end(client, server)) })
			if _, _, _, err := server.Receive(); !errors.Is(err, c.want) {
				t.Errorf("%s: got %v, want %v", c.what, err, c.want)
			}
			waited(c.what)
		})
	}
}

// TestLocalFull: who sends more than the socket takes waits until the other end reads.
func TestLocalFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server, _ := dialLocal(t)
		var sent, received int
		waited := later(t, func() {
			for range 1000 {
				_, _, _, err := server.Receive()
				must(t, err)
				received++
			}
		})
		for range 1000 {
			must(t, client.Send(Header{Op: OpHello}, make([]byte, 1000)))
			sent++
		}
		waited("Send")
		synctest.Wait()
		if sent != 1000 || received != 1000 {
			t.Errorf("%d messages were sent, %d received; want 1000", sent, received)
		}
	})
}

// TestLocalFile: who waits for a descriptor that has come with a message is woken by what is written at the other end,
// and by its close.
func TestLocalFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server, _ := dialLocal(t)
		ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		must(t, err)
		ours := server.NewFile(ends[0], "events")
		must(t, server.Send(Header{Op: OpOpen}, nil, ends[1]))
		must(t, unix.Close(ends[1]))
		_, _, fds, err := client.Receive()
		must(t, err)
		theirs := client.NewFile(fds[0], "events")

		waited := later(t, func() {
			_, err := ours.Write([]byte("event"))
			must(t, err)
		})
		buf := make([]byte, 10)
		if n, err := theirs.Read(buf); err != nil || string(buf[:n]) != "event" {
			t.Errorf("read %q, %v; want the event", buf[:n], err)
		}
		waited("Read")

		waited = later(t, func() { must(t, theirs.Close()) })
		must(t, ours.AwaitRead(func(fd uintptr) bool { return Poll(int(fd), 0)&unix.POLLHUP != 0 }))
		waited("AwaitRead")
		must(t, ours.Close())
		if err := ours.AwaitRead(func(uintptr) bool { return false }); err == nil {
			t.Error("a File that is closed can be waited for")
		}
	})
}

// TestLocalClosed: a Local that is closed has no connections any more.
func TestLocalClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLocal(func(wake func()) { wake() })
		c, err := l.Dial(t.Context())
		must(t, err)
		defer c.Close()
		must(t, l.Close())
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("accept: got %v, want %v", err, net.ErrClosed)
		}
		if _, _, _, err := c.Receive(); !errors.Is(err, io.EOF) {
			t.Errorf("a connection that was not accepted: got %v, want %v", err, io.EOF)
		}
		for range 2 * localBacklog {
			if _, err := l.Dial(t.Context()); !errors.Is(err, unix.ECONNREFUSED) {
				t.Errorf("dial: got %v, want %v", err, unix.ECONNREFUSED)
			}
		}
	})
}
