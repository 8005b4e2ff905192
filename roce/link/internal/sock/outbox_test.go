package sock

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/roce/link"
)

// pair returns two connected datagram sockets; the first blocks after few
// messages.
func pair(t *testing.T) (tx, rx int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = unix.Close(fds[0]), unix.Close(fds[1]) })
	if err := unix.SetsockoptInt(fds[0], unix.SOL_SOCKET, unix.SO_SNDBUF, 1); err != nil { // the least there is
		t.Fatal(err)
	}
	return fds[0], fds[1]
}

// fill makes runs of that many frames of 16 bytes, numbered in the first byte.
func fill(o *Outbox, runs, frames int) {
	o.Reset()
	for r := range runs {
		for range frames {
			b := make([]byte, 16)
			m := o.Add(r, 1, len(b))
			b[0] = byte(m)
			o.SetBuf(m, 0, b)
		}
	}
}

// drain returns the numbers of the messages that wait.
func drain(rx int) (got []byte) {
	var b [16]byte
	for {
		if n, err := unix.Read(rx, b[:]); err != nil || n != len(b) {
			return got
		}
		got = append(got, b[0])
	}
}

// A socket that blocks before a run leaves it, and all after it, to the caller.
func TestFlushBlocked(t *testing.T) {
	tx, rx := pair(t)
	o := NewOutbox(200, 1, 0)
	var s link.Stats
	fill(o, 200, 1)
	taken := o.Flush(tx, 200, &s)
	if taken == 0 || taken == 200 {
		t.Fatalf("%d of 200 runs taken; the test wants a socket that blocks", taken)
	}
	if got := drain(rx); len(got) != taken || got[taken-1] != byte(taken-1) {
		t.Errorf("%d runs taken, messages %v arrived; want as many, in order", taken, got)
	}
	if s.TxFrames != uint64(taken) || s.TxRuns != uint64(taken) || s.TxBytes != uint64(16*taken) || s.TxErrors != 0 {
		t.Errorf("stats %+v, want %d frames", s, taken)
	}
}

// A run of which a part has left is taken; if the socket stays blocked, its rest
// is lost.
func TestFlushGivesUp(t *testing.T) {
	tx, rx := pair(t)
	o := NewOutbox(200, 1, 0)
	var s link.Stats
	fill(o, 2, 100)
	if taken := o.Flush(tx, 2, &s); taken != 1 {
		t.Errorf("%d runs taken, want 1", taken)
	}
	got := drain(rx)
	if int(s.TxFrames) != len(got) || s.TxFrames+s.TxErrors != 100 || s.TxRuns != 1 || s.LastError == "" {
		t.Errorf("%d frames arrived, stats %+v, want 100 frames together, of 1 run", len(got), s)
	}
}

// If room comes, a run is finished.
func TestFlushFinishes(t *testing.T) {
	tx, rx := pair(t)
	o := NewOutbox(200, 1, 0)
	o.finishWait = time.Minute // the reader may have to wait for a processor
	var s link.Stats
	fill(o, 1, 200)
	done := make(chan []byte)
	go func() {
		var got []byte
		fds := []unix.PollFd{{Fd: int32(rx), Events: unix.POLLIN}}
		for len(got) < 200 {
			if n, err := poll(fds, time.Minute); n == 0 || err != nil {
				break
			}
			got = append(got, drain(rx)...)
		}
		done <- got
	}()
	taken := o.Flush(tx, 1, &s)
	got := <-done
	if taken != 1 || len(got) != 200 || s.TxFrames != 200 || s.TxErrors != 0 {
		t.Errorf("%d runs taken, %d frames arrived, stats %+v; want 1, 200, and none lost", taken, len(got), s)
	}
}

// An error concerns one message; the others go.
func TestFlushError(t *testing.T) {
	tx, rx := pair(t)
	o := NewOutbox(3, 1, 0)
	var s link.Stats
	fill(o, 3, 1)
	o.SetBuf(1, 0, make([]byte, 1<<20)) // EMSGSIZE
	if taken := o.Flush(tx, 3, &s); taken != 3 {
		t.Errorf("%d runs taken, want 3", taken)
	}
	if got := drain(rx); string(got) != "\x00\x02" || s.TxFrames != 2 || s.TxErrors != 1 ||
		s.LastError != "message too long" {
		t.Errorf("messages %v arrived, stats %+v; want 0 and 2, and 1 too long", got, s)
	}
}
