package server

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/qp/ring"
	"github.com/goroce/goroce/roce/daemon/abi"
	"github.com/goroce/goroce/tests/require"
)

// modify moves a UD QP to a state.
func modify(t *testing.T, c *abi.Conn, qp abi.Handle, state ib.QPState, more ib.QPAttrMask) {
	t.Helper()
	attr := ib.QPAttr{State: state, Port: 1, SQDNotify: true}
	must(t, call(t, c, abi.OpModifyQP, abi.Put(nil, new(abi.QPAttrOf(qp, &attr, ib.AttrState|more)))))
}

// next waits for a message on a socket of events.
func next[T any](t *testing.T, socket int) T {
	t.Helper()
	poll := []unix.PollFd{{Fd: int32(socket), Events: unix.POLLIN}}
	n, err := unix.Poll(poll, 20_000)
	for err == unix.EINTR { // by a signal of Go's scheduler
		n, err = unix.Poll(poll, 20_000)
	}
	if n != 1 {
		t.Fatalf("got no event in 20 s: %v", err)
	}
	buf := make([]byte, 64)
	n, err = unix.Read(socket, buf)
	must(t, err)
	v, err := abi.Get[T](buf[:n])
	must(t, err)
	return v
}

// TestCloseCounts checks that the reply to close counts the events of the object: those that were read,
// and those that were not.
func TestCloseCounts(t *testing.T) {
	_, dial := byHand(t, func(*Server) {})
	c := dial()
	greet(t, c)
	_, fds, err := tell[abi.OpenReply](t, c, abi.OpOpen, abi.Open{})
	must(t, err)
	events := fds[0]
	memory, _ := newSharedMemory(t)
	must(t, c.Send(abi.Header{Op: abi.OpShareDoorbells, Seq: uint32(abi.OpShareDoorbells)}, nil, memory))
	must(t, answered(t, c, abi.OpShareDoorbells))
	pd := ask[abi.Object](t, c, abi.OpAllocPD, struct{}{}).Handle
	channel, fds, err := tell[abi.Object](t, c, abi.OpCreateChannel, struct{}{})
	must(t, err)
	completions := fds[0]
	memory, buf := newSharedMemory(t)
	cq := ask[abi.Ring](t, c, abi.OpCreateCQ, abi.CreateCQ{Entries: 8, Channel: channel.Handle}, memory)
	ready, err := ring.OpenCQ(buf)
	must(t, err)
	memory, buf = newSharedMemory(t)
	qp := ask[abi.Ring](t, c, abi.OpCreateQP, abi.CreateQP{PD: pd, SendCQ: cq.Handle, RecvCQ: cq.Handle,
		Type: uint32(ib.UD), MaxSendWR: 1, MaxRecvWR: 4, MaxRecvSGE: 1}, memory)
	receives, err := ring.OpenRecv(buf[qp.Send:])
	must(t, err)

	const rounds = 3
	for i := range rounds {
		modify(t, c, qp.Handle, ib.StateInit, ib.AttrPort|ib.AttrPKeyIndex|ib.AttrQKey)
		must(t, receives.Push(&ib.RecvWR{}))
		receives.Publish()
		modify(t, c, qp.Handle, ib.StateRTR, 0)
		modify(t, c, qp.Handle, ib.StateRTS, ib.AttrSQPSN)
		modify(t, c, qp.Handle, ib.StateSQD, ib.AttrSQDNotify)
		ready.Arm(false)
		modify(t, c, qp.Handle, ib.StateErr, 0) // flushes the receive
		if i < rounds-1 {                       // the last events stay unread
			if e := next[abi.Event](t, events); e.Object != qp.Handle || e.Type != uint32(ib.EventSQDrained) {
				t.Fatalf("event %+v, want %v of QP %d", e, ib.EventSQDrained, qp.Handle)
			}
			if e := next[abi.Completion](t, completions); e.CQ != cq.Handle {
				t.Fatalf("event of CQ %d, want %d", e.CQ, cq.Handle)
			}
		}
		var wcs [4]ib.WC
		require.Until(t, "the receive is flushed", func() bool { return ready.Poll(wcs[:]) == 1 })
		modify(t, c, qp.Handle, ib.StateReset, 0)
	}
	for _, want := range []struct {
		object              abi.Close
		completions, events uint32
	}{{abi.Close{Handle: qp.Handle, Kind: abi.KindQP}, 0, rounds},
		{abi.Close{Handle: cq.Handle, Kind: abi.KindCQ}, rounds, 0},
		{abi.Close{Handle: channel.Handle, Kind: abi.KindChannel}, 0, 0}} {
		got := ask[abi.CloseReply](t, c, abi.OpClose, want.object)
		if got != (abi.CloseReply{Completions: want.completions, Events: want.events}) {
			t.Errorf("close of %+v counts %+v, want %+v", want.object, got, want)
		}
	}
}
