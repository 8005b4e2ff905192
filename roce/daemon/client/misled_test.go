package client

import (
	"errors"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/daemon/abi"
)

// TestHostileDaemon checks that a client refuses rings that are longer than its memory or not there, doorbells that
// do not exist, and states that it does not know.
func TestHostileDaemon(t *testing.T) {
	ringOf := func(m *answerTo, change func(*abi.Ring)) {
		r, err := abi.Get[abi.Ring](m.body)
		if err != nil {
			t.Error(err)
		}
		change(&r)
		m.body = abi.Put(nil, &r)
	}
	for _, c := range []struct {
		name   string
		op     abi.Op
		adjust func(*hostile, *answerTo)
	}{
		{"short rings", abi.OpCreateQP, func(_ *hostile, m *answerTo) {
			ringOf(m, func(r *abi.Ring) { r.Size += 1 << 20 })
		}},
		{"a receive ring outside of them", abi.OpCreateQP, func(_ *hostile, m *answerTo) {
			ringOf(m, func(r *abi.Ring) { r.Recv += 64 })
		}},
		{"a send ring longer than all", abi.OpCreateQP, func(_ *hostile, m *answerTo) {
			ringOf(m, func(r *abi.Ring) { r.Send, r.Recv = 1<<63, 1<<63 })
		}},
		{"no ring", abi.OpCreateCQ, func(_ *hostile, m *answerTo) {
			ringOf(m, func(r *abi.Ring) { r.Size = 0 })
		}},
		{"another shard", abi.OpCreateQP, func(_ *hostile, m *answerTo) {
			ringOf(m, func(r *abi.Ring) { r.Shard = 1 })
		}},
		{"another doorbell", abi.OpCreateQP, func(_ *hostile, m *answerTo) {
			ringOf(m, func(r *abi.Ring) { r.Doorbell = 4096 })
		}},
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
		if c.op != 0 && !errors.Is(err, ib.ErrInvalid) || c.op == 0 && err != nil {
			t.Errorf("%s: error %v", c.name, err)
		}
		if c.op == 0 {
			if err := qp.Modify(ib.QPAttr{State: ib.NumQPStates}, ib.AttrState); !errors.Is(err, ib.ErrInvalid) {
				t.Errorf("a state that there is not: %v", err)
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
		t.Errorf("a channel whose handle another one has: %v", err)
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
		t.Errorf("a channel whose handle a PD had: %v", err)
	}
}
