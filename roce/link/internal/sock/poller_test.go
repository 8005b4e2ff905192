package sock

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/roce/link"
)

// waits reports whether Wait returns only at the end of the time that it is given.
func waits(t *testing.T, p *Poller, d time.Duration, writable bool) bool {
	t.Helper()
	start := time.Now()
	if err := p.Wait(d, writable); err != nil {
		t.Fatal(err)
	}
	return time.Since(start) > d*3/4
}

// How long Wait is given: where it must wait, and where it must end at once, on a busy machine, too.
const (
	shortly = 20 * time.Millisecond
	forLong = 20 * time.Second
)

// A socket that is added later is waited for in both ways, until it is removed.
func TestSockets(t *testing.T) {
	p, err := NewPoller(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	peer, later := pair(t)
	p.AddSocket(later)
	if waits(t, p, forLong, false) {
		t.Error("AddSocket is no Wake")
	}
	if waits(t, p, forLong, true) {
		t.Error("a socket that can be written to does not end Wait for that")
	}
	if !waits(t, p, shortly, false) {
		t.Error("a socket that can be written to ends Wait for what arrives")
	}
	_, _ = unix.Write(peer, make([]byte, 16))
	if waits(t, p, forLong, false) {
		t.Error("a socket that can be read does not end Wait")
	}
	p.Remove(later)
	if waits(t, p, forLong, false) {
		t.Error("Remove is no Wake")
	}
	if !waits(t, p, shortly, true) {
		t.Error("a socket that was removed ends Wait")
	}
}

// What is added later ends Wait when it can be read, never because it could be
// written to; what was removed does not any more.
func TestReceivers(t *testing.T) {
	tx, _ := pair(t)
	var s link.Stats
	o := NewOutbox(200, 1, 0)
	fill(o, 200, 1)
	if o.Flush(tx, 200, &s) == 200 {
		t.Fatal("the test wants a socket that blocks")
	}
	p, err := NewPoller([]int{tx})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	peer, receiver := pair(t)
	other, kept := pair(t)
	for _, fd := range []int{receiver, kept} {
		p.Add(fd)
		if waits(t, p, forLong, false) {
			t.Error("Add is no Wake")
		}
	}
	if !waits(t, p, shortly, true) {
		t.Error("a receiver that can be written to ends Wait")
	}
	_, _ = unix.Write(peer, make([]byte, 16))
	if waits(t, p, forLong, false) {
		t.Error("a receiver that can be read does not end Wait")
	}
	p.Remove(receiver)
	if waits(t, p, forLong, false) {
		t.Error("Remove is no Wake")
	}
	if !waits(t, p, shortly, false) {
		t.Error("a socket that was removed ends Wait")
	}
	_, _ = unix.Write(other, make([]byte, 16))
	if waits(t, p, forLong, false) {
		t.Error("the receiver that is left does not end Wait")
	}
}

// TestRemoveFrees: the address of a socket is free when that is removed and closed, also
// while somebody waits for it.
func TestRemoveFrees(t *testing.T) {
	p, err := NewPoller(nil)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() {
		for {
			if err := p.Wait(-1, false); err != nil {
				ended <- err
				return
			}
		}
	}()
	at := &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}} // any port, at first
	for i := range 2000 {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Bind(fd, at); err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
		if name, err := unix.Getsockname(fd); err == nil {
			at.Port = name.(*unix.SockaddrInet4).Port
		}
		p.AddSocket(fd)
		p.Remove(fd)
		if err := unix.Close(fd); err != nil {
			t.Fatal(err)
		}
	}
	p.Shut()
	if err := <-ended; err != link.ErrClosed {
		t.Errorf("%v, want %v", err, link.ErrClosed)
	}
	p.Close()
}
