package server

import (
	"context"
	"errors"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/daemon/abi"
	"github.com/goroce/goroce/roce/internal/device"
	"github.com/goroce/goroce/tests/require"
)

// failed is a failure of a QP.
func failed(num ib.QPN) device.QPFailure {
	return device.QPFailure{Num: num, Type: ib.RC, PeerQPN: 9,
		Failed: ib.Failure{At: 7, Cause: ib.Cause{Reason: ib.ReasonPeerAccess, Op: ib.WRWrite}}}
}

// TestNextFailure: who waits hears of the next failure that it wants, and of none from before.
func TestNextFailure(t *testing.T) {
	s, _ := newServer(t)
	c := newBareSession(t, s)
	c.QPFailed(failed(7))
	type result struct {
		told Told
		err  error
	}
	got := make(chan result, 1)
	wait := func(ctx context.Context) {
		told, err := s.NextFailure(ctx, func(i *FailureInfo) bool { return i.QPN == 7 })
		got <- result{told, err}
	}
	waits := func() bool {
		s.failures.mu.Lock()
		defer s.failures.mu.Unlock()
		return s.failures.news != nil
	}
	go wait(t.Context())
	require.Until(t, "somebody waits", waits)
	c.QPFailed(failed(5))
	require.Until(t, "somebody waits for another", waits)
	f := failed(7)
	f.Failed.At = 8
	c.QPFailed(f)
	if r := <-got; r.err != nil || r.told.QPN != 7 || r.told.Story.Failed.At != 8 {
		t.Errorf("got QP %#x at %d, %v; want 0x7 at 8", r.told.QPN, r.told.Story.Failed.At, r.err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go wait(ctx)
	cancel()
	if r := <-got; !errors.Is(r.err, context.Canceled) {
		t.Errorf("got %v, want %v", r.err, context.Canceled)
	}
	for i := range 3 * failuresMost {
		c.QPFailed(failed(ib.QPN(1000 + i)))
	}
	if list := s.Failures(); len(list) != failuresMost || list[0].QPN != 1000+2*failuresMost {
		t.Errorf("got %d failures, the first of QP %d, want %d, and %d", len(list), list[0].QPN, failuresMost,
			1000+2*failuresMost)
	}
}

// TestStories: the server tells of failures and, if there are none, of an open queue pair.
func TestStories(t *testing.T) {
	s, _ := newServer(t)
	c := newBareSession(t, s)
	s.mu.Lock()
	s.sessions[c.session] = struct{}{}
	s.mu.Unlock()
	pd := c.make(abi.OpAllocPD, nil)
	cq := c.make(abi.OpCreateCQ, abi.Put(nil, &abi.CreateCQ{Entries: 64}))
	c.makeQP(pd, cq, 16, 1, 0)
	qpn := s.QPs()[0].QPN
	if list := s.Stories("", qpn); len(list) != 1 || list[0].Failed != "" || list[0].QPN != qpn ||
		list[0].PID != c.who.Pid || list[0].PeerQPN != 5 {
		t.Errorf("got %+v of an open queue pair, want that of QP %d and process %d to QP 5", list, qpn, c.who.Pid)
	}
	c.QPFailed(failed(ib.QPN(qpn)))
	c.QPFailed(failed(77))
	for _, x := range []struct {
		device string
		qpn    uint32
		want   int
	}{{"", qpn, 1}, {c.unit.name, qpn, 1}, {"other", qpn, 0}, {"", 77, 1}, {"", 78, 0}} {
		list := s.Stories(x.device, x.qpn)
		if len(list) != x.want || x.want == 1 && (list[0].QPN != x.qpn || list[0].Failed == "") {
			t.Errorf("device %q, QP %#x: got %+v, want %d", x.device, x.qpn, list, x.want)
		}
	}
}
