package linktest

import (
	"testing"
	"time"

	"github.com/goroce/goroce/roce/link"
)

// Meet makes two links learn one another's MAC addresses. Frames that are sent before may be lost or delayed.
func Meet(t testing.TB, a, b link.Link) {
	t.Helper()
	for _, dir := range [][2]link.Link{{a, b}, {b, a}} {
		meet(t, dir[0], dir[1])
	}
}

// meet sends from one link to the other until something arrives. Then it receives the rest, and consumes the wake-up of
// the sender by its neighbour table.
func meet(t testing.TB, from, to link.Link) {
	t.Helper()
	var psn uint32
	ping := []link.Run{NewRun(from, to, &psn, 1, 64, 0)}
	in := make([]link.Run, 1)
	sent, got := 0, 0
	for end := time.Now().Add(10 * time.Second); got == 0; sent++ {
		if _, err := from.Send(0, ping); err != nil {
			t.Fatal(err)
		}
		_ = to.Wait(10*time.Millisecond, false)
		got, _ = to.Recv(0, in)
		if time.Now().After(end) {
			t.Fatalf("the links do not meet: sender %+v, receiver %+v", from.Stats(), to.Stats())
		}
	}
	_ = from.Wait(0, false)
	_, _ = from.Recv(0, nil) // sends held runs
	for end := time.Now().Add(50 * time.Millisecond); got < sent && time.Now().Before(end); {
		_ = to.Wait(time.Millisecond, false)
		n, _ := to.Recv(0, in)
		got += n
	}
	_ = from.Wait(0, false)
}

// Fresh returns a link whose statistics start now.
func Fresh(l link.Link) link.Link { return &fresh{l, l.Stats()} }

// fresh is a link whose statistics start at stats.
type fresh struct {
	link.Link
	before link.Stats
}

func (f *fresh) Stats() link.Stats {
	s := f.Link.Stats()
	s.TxRuns -= f.before.TxRuns
	s.TxFrames -= f.before.TxFrames
	s.TxBytes -= f.before.TxBytes
	s.TxErrors -= f.before.TxErrors
	s.RxRuns -= f.before.RxRuns
	s.RxFrames -= f.before.RxFrames
	s.RxBytes -= f.before.RxBytes
	return s
}

// StatsWhileWaiting tests that Stats does not wait for Wait.
func StatsWhileWaiting(t *testing.T, l link.Link) {
	waited := make(chan error)
	go func() {
		l.Wake() // so that the second Wait is most likely running
		_ = l.Wait(-1, false)
		waited <- nil
		waited <- l.Wait(-1, false)
	}()
	<-waited
	told := make(chan link.Stats)
	go func() { told <- l.Stats() }()
	select {
	case <-told:
		l.Wake()
	case <-time.After(patience):
		t.Error("Stats waits until Wait ends")
		l.Wake()
		<-told
	}
	if err := <-waited; err != nil {
		t.Error(err)
	}
}
