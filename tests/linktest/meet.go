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
	sent, got, before := 0, 0, from.Stats().TxErrors
	receive := func(wait time.Duration) {
		_ = to.Wait(wait, false)
		if n, _ := to.Recv(0, in); n > 0 {
			got += in[0].Frames()
		}
	}
	for end := time.Now().Add(patience); got == 0; {
		n, err := from.Send(0, ping)
		if err != nil {
			t.Fatal(err)
		}
		sent += n
		receive(10 * time.Millisecond)
		if time.Now().After(end) {
			t.Fatalf("the links do not meet: sender %+v, receiver %+v", from.Stats(), to.Stats())
		}
	}
	_ = from.Wait(0, false)
	_, _ = from.Recv(0, nil) // sends held runs
	// The rest is neither what the sender counts as lost, nor what the kernel drops while it looks for the neighbour.
	lost := func() int { return int(from.Stats().TxErrors - before) }
	for end := time.Now().Add(10 * time.Second); got+lost() < sent && time.Now().Before(end); {
		receive(time.Millisecond)
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
