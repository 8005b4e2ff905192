package client

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/daemon/abi"
	"github.com/goroce/goroce/tests/require"
)

// changeRing changes the rings in an answer.
func changeRing(change func(*abi.Ring)) func(*hostile, *answerTo) {
	return func(d *hostile, m *answerTo) {
		r, err := abi.Get[abi.Ring](m.body)
		if err != nil {
			d.t.Error(err)
		}
		change(&r)
		m.body = abi.Put(nil, &r)
	}
}

// TestHostileDaemon checks that a client refuses rings that are longer than its memory or not there, doorbells that
// do not exist, and states that it does not know.
func TestHostileDaemon(t *testing.T) {
	for _, c := range []struct {
		name   string
		op     abi.Op
		adjust func(*hostile, *answerTo)
	}{
		{"short rings", abi.OpCreateQP, changeRing(func(r *abi.Ring) { r.Size += 1 << 20 })},
		{"a receive ring outside of them", abi.OpCreateQP, changeRing(func(r *abi.Ring) { r.Recv += 64 })},
		{"a send ring too long", abi.OpCreateQP, changeRing(func(r *abi.Ring) { r.Send, r.Recv = 1<<63, 1<<63 })},
		{"no ring", abi.OpCreateCQ, changeRing(func(r *abi.Ring) { r.Size = 0 })},
		{"another shard", abi.OpCreateQP, changeRing(func(r *abi.Ring) { r.Shard = 1 })},
		{"another doorbell", abi.OpCreateQP, changeRing(func(r *abi.Ring) { r.Doorbell = 4096 })},
		{"no ring after Resize", abi.OpResizeCQ, changeRing(func(r *abi.Ring) { r.Size = 0 })},
		{"nothing", 0, nil},
	} {
		d := &hostile{script: &script{}}
		d.adjust = func(m *answerTo) {
			if m.header.Op == c.op {
				c.adjust(d, m)
			}
		}
		dev, end, err := d.dial(t)
		if err != nil {
			t.Fatal(err)
		}
		pd, err := dev.AllocPD()
		var cq ib.CQ
		if err == nil {
			cq, err = dev.CreateCQ(ib.CQInit{Entries: 4})
		}
		var qp ib.QP
		if err == nil {
			qp, err = pd.CreateQP(ib.QPInit{Type: ib.RC, SendCQ: cq, RecvCQ: cq, Cap: goodCap})
		}
		if err == nil {
			err = cq.Resize(8)
		}
		if c.op != 0 && !(errors.Is(err, ib.ErrInvalid) && errors.Is(err, ErrGone)) || c.op == 0 && err != nil {
			t.Errorf("%s: got %v, want ib.ErrInvalid and ErrGone if the daemon lies, else none", c.name, err)
		}
		if c.op != 0 { // both ends would not agree on what there is
			require.Until(t, c.name+": the connection ends", func() bool {
				_, err := dev.AllocPD()
				return errors.Is(err, ErrGone)
			})
		}
		if c.op == 0 {
			if err := qp.Modify(ib.QPAttr{State: ib.NumQPStates}, ib.AttrState); !errors.Is(err, ib.ErrInvalid) {
				t.Errorf("a state that there is not: %v, want %v", err, ib.ErrInvalid)
			}
		}
		_ = dev.Close()
		end()
	}
}

// TestHandleTwice checks that a client closes what it holds even if its daemon gives two objects one handle.
func TestHandleTwice(t *testing.T) {
	d := &hostile{script: &script{}, adjust: func(m *answerTo) {
		if m.header.Op == abi.OpCreateChannel || m.header.Op == abi.OpAllocPD {
			m.body = abi.Put(nil, &abi.Object{Handle: 7})
		}
	}}
	dev, end, err := d.dial(t)
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	defer dev.Close()
	var channels [2]ib.Channel
	for i := range channels {
		if channels[i], err = dev.CreateChannel(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := channels[0].Wait(t.Context()); !errors.Is(err, ib.ErrClosed) {
		t.Errorf("a channel whose handle another one has: %v, want %v", err, ib.ErrClosed)
	}
	pd, err := dev.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	if err := pd.Close(); err != nil {
		t.Fatal(err)
	}
	_ = dev.Close()
	if _, err := channels[1].Wait(t.Context()); !errors.Is(err, ib.ErrClosed) {
		t.Errorf("a channel whose handle a PD had: %v, want %v", err, ib.ErrClosed)
	}
}

// TestEventNamesItsID checks that an event of the connection manager comes with its ID whoever reads it: no other event
// is asked for, and no ID closed, between a reply that names a new ID and the moment from which the client knows it.
func TestEventNamesItsID(t *testing.T) {
	const handle = 100
	asked := make(chan int, 2)
	events := []abi.CMEvent{{Type: uint32(ib.CMConnectRequest), ID: handle, Left: 1},
		{Type: uint32(ib.CMDisconnected), ID: handle}}
	n := 0
	d := &hostile{script: &script{}, adjust: func(m *answerTo) {
		if m.header.Op == abi.OpCMEvent && n < len(events) {
			m.body = abi.Put(nil, &events[n])
			n++
			asked <- n
		}
	}}
	dev, end, err := d.dial(t)
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	defer dev.Close()
	cm, err := dev.OpenCM()
	if err != nil {
		t.Fatal(err)
	}
	done, cancel := context.WithCancel(t.Context())
	cancel() // NextEvent returns an event that is there all the same
	got := make(chan ib.CMEvent, len(events))
	next := func() {
		ev, err := cm.NextEvent(done)
		if err != nil {
			t.Error(err)
		}
		got <- ev
	}

	dev.mu.Lock() // the first reader cannot make its ID known
	go next()
	<-asked
	if len(dev.cmTurn) == 0 {
		t.Error("others may ask for events and close IDs while an ID is not known yet, want them to wait")
	}
	go next()
	dev.mu.Unlock()
	ids := map[ib.CMID]bool{}
	for range events {
		ids[(<-got).ID] = true
	}
	if len(ids) != 1 || ids[nil] {
		t.Errorf("the events name the IDs %v, want one ID in both", ids)
	}
}

// TestEventOfClosed checks that an asynchronous event of an object that the client has closed is not taken for one of
// the device.
func TestEventOfClosed(t *testing.T) {
	d := &hostile{script: &script{}}
	dev, end, err := d.dial(t)
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	defer dev.Close()
	d.mu.Lock()
	sock := d.socks[0]
	d.mu.Unlock()
	for _, e := range []abi.Event{{Type: uint32(ib.EventQPFatal), Object: 99}, {Type: uint32(ib.EventPortErr)}} {
		if err := unix.Sendto(sock, abi.Put(nil, &e), unix.MSG_NOSIGNAL, nil); err != nil {
			t.Fatal(err)
		}
	}
	if ev, err := dev.NextEvent(t.Context()); err != nil || ev.Type != ib.EventPortErr {
		t.Errorf("got %v, %v; want %v, the event of the device", ev.Type, err, ib.EventPortErr)
	}
}

// TestNoDescriptor: the kernel drops a descriptor for which the process has no room. The object that it belongs to is
// closed again, and the device goes on.
func TestNoDescriptor(t *testing.T) {
	var closed atomic.Int32
	d := &hostile{script: &script{}}
	d.adjust = func(m *answerTo) {
		switch m.header.Op {
		case abi.OpCreateChannel, abi.OpOpenCM:
			m.body = abi.Put(nil, &abi.Object{Handle: 70})
			abi.CloseAll(m.fds)
			m.fds = nil
		case abi.OpClose:
			closed.Add(1)
		}
	}
	dev, end, err := d.dial(t)
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	defer dev.Close()
	if _, err := dev.CreateChannel(); !errors.Is(err, unix.EMFILE) {
		t.Errorf("a channel: got %v, want %v", err, unix.EMFILE)
	}
	if _, err := dev.OpenCM(); !errors.Is(err, unix.EMFILE) {
		t.Errorf("a channel of the connection manager: got %v, want %v", err, unix.EMFILE)
	}
	if n := closed.Load(); n != 2 {
		t.Errorf("got %d requests to close, want 2", n)
	}
	if _, err := dev.AllocPD(); err != nil {
		t.Errorf("a verb afterwards: %v", err)
	}
}
