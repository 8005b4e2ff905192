package rdmacm_test

import (
	"maps"
	"sync"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/cm"
)

// counter is a device that counts the objects made on it that are not closed.
type counter struct {
	ib.Device
	mu   sync.Mutex
	live map[string]int
}

func newCounter(d ib.Device) *counter { return &counter{Device: d, live: map[string]int{}} }

// OpenCM opens a CM of the device. It is not counted; the tests would not end without closing it.
func (c *counter) OpenCM() (ib.CM, error) { return c.Device.(ib.CMDevice).OpenCM() }

// CMStats returns the device's counters.
func (c *counter) CMStats() cm.Stats { return c.Device.(interface{ CMStats() cm.Stats }).CMStats() }

// left returns the numbers of objects that are not closed.
func (c *counter) left() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.live)
}

// object is an object that is counted.
type object struct {
	c      *counter
	kind   string
	closed bool
}

func (c *counter) made(kind string) *object {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.live[kind]++
	return &object{c: c, kind: kind}
}

func (o *object) close(f func() error) error {
	err := f()
	o.c.mu.Lock()
	defer o.c.mu.Unlock()
	if err == nil && !o.closed {
		o.closed = true
		if o.c.live[o.kind]--; o.c.live[o.kind] == 0 {
			delete(o.c.live, o.kind)
		}
	}
	return err
}

// Counted objects of a CM. Each has the device's object, which the device's verbs need.
type (
	countedPD struct {
		ib.PD
		*object
	}
	countedCQ struct {
		ib.CQ
		*object
	}
	countedChannel struct {
		ib.Channel
		*object
	}
	countedMR struct {
		ib.MR
		*object
	}
	countedAH struct {
		ib.AH
		*object
	}
	countedQP struct {
		ib.QP
		*object
	}
)

func (p countedPD) Close() error      { return p.close(p.PD.Close) }
func (q countedCQ) Close() error      { return q.close(q.CQ.Close) }
func (h countedChannel) Close() error { return h.close(h.Channel.Close) }
func (m countedMR) Close() error      { return m.close(m.MR.Close) }
func (a countedAH) Close() error      { return a.close(a.AH.Close) }
func (q countedQP) Close() error      { return q.close(q.QP.Close) }

func (c *counter) AllocPD() (ib.PD, error) {
	pd, err := c.Device.AllocPD()
	if err != nil {
		return nil, err
	}
	return countedPD{pd, c.made("PD")}, nil
}

func (c *counter) CreateChannel() (ib.Channel, error) {
	ch, err := c.Device.CreateChannel()
	if err != nil {
		return nil, err
	}
	return countedChannel{ch, c.made("channel")}, nil
}

func (c *counter) CreateCQ(init ib.CQInit) (ib.CQ, error) {
	if ch, ok := init.Channel.(countedChannel); ok {
		init.Channel = ch.Channel
	}
	cq, err := c.Device.CreateCQ(init)
	if err != nil {
		return nil, err
	}
	return countedCQ{cq, c.made("CQ")}, nil
}

func (p countedPD) RegMR(init ib.MRInit) (ib.MR, error) {
	mr, err := p.PD.RegMR(init)
	if err != nil {
		return nil, err
	}
	return countedMR{mr, p.c.made("MR")}, nil
}

func (p countedPD) CreateAH(attr ib.AHAttr) (ib.AH, error) {
	ah, err := p.PD.CreateAH(attr)
	if err != nil {
		return nil, err
	}
	return countedAH{ah, p.c.made("AH")}, nil
}

func (p countedPD) CreateQP(init ib.QPInit) (ib.QP, error) {
	init.SendCQ, init.RecvCQ = init.SendCQ.(countedCQ).CQ, init.RecvCQ.(countedCQ).CQ
	qp, err := p.PD.CreateQP(init)
	if err != nil {
		return nil, err
	}
	return countedQP{qp, p.c.made("QP")}, nil
}
