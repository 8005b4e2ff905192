//go:build linux

package socket

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestConnectCrowded: while the daemon's backlog is full a client waits, as long as its context allows, and gets in
// once the daemon has accepted others.
func TestConnectCrowded(t *testing.T) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), "socket")
	at := &unix.SockaddrUnix{Name: path}
	socket := func(flags int) int {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|flags, 0)
		must(err)
		t.Cleanup(func() { unix.Close(fd) })
		return fd
	}
	listener := socket(0)
	must(unix.Bind(listener, at))
	must(unix.Listen(listener, 1))
	waiting := 0
	for ; ; waiting++ {
		if err := unix.Connect(socket(unix.SOCK_NONBLOCK), at); err != nil {
			if !errors.Is(err, unix.EAGAIN) {
				t.Fatalf("a connect to a full backlog failed with %v, want EAGAIN", err)
			}
			break
		}
	}

	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := Connect(ctx, Client, path)
	if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("connect to a full backlog failed with %v, want the context's error", err)
	}

	connected := make(chan error, 1)
	go func() {
		c, err := Connect(t.Context(), Client, path)
		if err == nil {
			err = c.Close()
		}
		connected <- err
	}()
	for range waiting + 1 {
		fd, _, err := unix.Accept(listener)
		must(err)
		unix.Close(fd)
	}
	must(<-connected)
}
