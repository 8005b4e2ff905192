package server

import (
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/daemon/abi"
	"github.com/goroce/goroce/roce/internal/device"
)

// TestManyUnreadEvents: of a client that reads nothing, the events of all objects wait for it, each of them once, and
// those of the device behind them. What is closed meanwhile takes its own back.
func TestManyUnreadEvents(t *testing.T) {
	const count = 6000
	s, _ := newServer(t)
	c := newBareSession(t, s)
	events := c.theirs
	h := c.makeChannel(abi.OpCreateChannel)
	completions := c.theirs
	cqs := make([]abi.Handle, count)
	for i := range cqs {
		cqs[i] = c.make(abi.OpCreateCQ, abi.Put(nil, &abi.CreateCQ{Entries: 1, Channel: h}))
		o := c.objects[cqs[i]]
		for range 2 {
			o.queue.Notify(nil)
			c.Event(ib.Event{Type: ib.EventCQErr, CQ: o.value.(*device.CQ)})
		}
	}
	c.tell(ib.EventPortErr)
	closed := cqs[count-1]
	reply, err := abi.Get[abi.CloseReply](c.ask(abi.OpClose, c.closing(closed)))
	must(t, err)
	if reply != (abi.CloseReply{}) {
		t.Errorf("close of a CQ whose events wait: got %+v, want none that was sent", reply)
	}
	seen := map[abi.Event]int{}
	for e := range count * 2 {
		got := next[abi.Event](t, int(events.Fd()))
		if seen[got]++; got == (abi.Event{Type: uint32(ib.EventPortErr)}) {
			break
		} else if e == count*2-1 {
			t.Fatal("no event of the device comes")
		}
	}
	for _, cq := range cqs[:count-1] {
		if n := seen[abi.Event{Type: uint32(ib.EventCQErr), Object: cq}]; n < 1 || n > 2 {
			t.Errorf("%d events of CQ %d, want one, or two of which the socket had one", n, cq)
		}
	}
	if n := seen[abi.Event{Type: uint32(ib.EventCQErr), Object: closed}]; n != 0 {
		t.Errorf("%d events of the CQ that was closed, want none", n)
	}
	rung := map[abi.Handle]bool{}
	for len(rung) < count-1 {
		rung[next[abi.Completion](t, int(completions.Fd())).CQ] = true
	}
	if rung[closed] {
		t.Error("got a completion event of the CQ that was closed, want none")
	}
}
