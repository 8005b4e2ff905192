package conformance

import (
	"context"
	"fmt"
	"time"

	"github.com/goroce/goroce/ib"
)

// lifetimeCases: objects in use cannot be closed, and the error names their user; closed objects refuse calls; objects
// of another device are refused.
func lifetimeCases() []Case {
	list := append(busyPDs(), busyOthers()...)
	list = append(list,
		Case{Name: "busy/still-works", Active: busyStillWorks,
			Passive: func(e *End) { opWrite.take(e.connect(), 100) }},
		Case{Name: "close/queue-pair-with-work-under-way", Alone: closeUnderWork})
	return append(append(list, closedCases()...), foreignCases()...)
}

func busyPDs() []Case {
	return []Case{
		{Name: "busy/pd/mr", Alone: func(e *End) {
			pd := e.newPD()
			m := e.memIn(pd, 64, 0)
			e.released("PD", pd.Close, "region|MR", m.mr.Close)
		}},
		{Name: "busy/pd/qp", Alone: func(e *End) {
			pd := e.newPD()
			c := e.newConn(func(s *setup) { s.pd = pd })
			e.released("PD", pd.Close, "QP|queue pair", c.qp.Close)
		}},
		{Name: "busy/pd/srq", Alone: func(e *End) {
			pd := e.newPD()
			s := e.newSharedQueue(pd)
			e.released("PD", pd.Close, "SRQ|shared receive queue", s.srq.Close)
		}},
		{Name: "busy/pd/ah", Alone: func(e *End) {
			pd := e.newPD()
			ah := e.newAH(pd, nil)
			e.released("PD", pd.Close, "AH|address handle", ah.Close)
		}},
		{Name: "busy/pd/mw", Needs: both(ib.CapMemWindow), Alone: func(e *End) {
			pd := e.newPD()
			w := e.newMW(pd, ib.MWType1)
			e.released("PD", pd.Close, "MW|window", w.Close)
		}},
		{Name: "busy/pd/says-all", Alone: func(e *End) {
			pd := e.newPD()
			e.memIn(pd, 64, 0)
			e.newAH(pd, nil)
			e.busy("PD", pd.Close, "region|MR")
			e.busy("PD", pd.Close, "AH|address handle")
		}},
	}
}

func busyOthers() []Case {
	return []Case{
		{Name: "busy/cq/send-queue", Alone: func(e *End) {
			c := e.newConn()
			e.released("CQ", c.sq.cq.Close, "QP|queue pair", c.qp.Close)
		}},
		{Name: "busy/cq/receive-queue", Alone: func(e *End) {
			c := e.newConn()
			e.released("CQ", c.rq.cq.Close, "QP|queue pair", c.qp.Close)
		}},
		{Name: "busy/cq/xrc-srq", Needs: both(ib.CapXRC), Alone: func(e *End) {
			s, q := e.newXRCQueue(e.pd(), e.newXRCD())
			e.released("CQ", q.cq.Close, "SRQ|shared receive queue", s.srq.Close)
		}},
		{Name: "busy/srq/qp", Alone: func(e *End) {
			s := e.newSharedQueue(e.pd())
			c := e.newConn(s.from)
			e.released("SRQ", s.srq.Close, "QP|queue pair", c.qp.Close)
		}},
		{Name: "busy/xrcd/srq", Needs: both(ib.CapXRC), Alone: func(e *End) {
			d := e.newXRCD()
			s, _ := e.newXRCQueue(e.pd(), d)
			e.released("XRC domain", d.Close, "SRQ|shared receive queue", s.srq.Close)
		}},
		{Name: "busy/xrcd/qp", Needs: both(ib.CapXRC), Alone: func(e *End) {
			d := e.newXRCD()
			c := e.newConn(xrcTarget(d, nil))
			e.released("XRC domain", d.Close, "QP|queue pair", c.qp.Close)
		}},
		{Name: "busy/channel/cq", Alone: func(e *End) {
			q := e.newQueue(1)
			e.released("channel", q.ch.Close, "CQ|completion queue", q.cq.Close)
		}},
	}
}

// released checks that an object cannot be closed while another uses it, and can afterwards.
func (e *End) released(what string, close func() error, by string, user func() error) {
	e.busy(what, close, by)
	e.must(user(), "close what uses the %s", what)
	e.must(close(), "close the %s that is free", what)
}

// busyStillWorks: a Close that fails has no effect.
func busyStillWorks(e *End) {
	c := e.connect()
	e.busy("PD", e.pd().Close, "QP|queue pair")
	e.busy("CQ", c.sq.cq.Close, "QP|queue pair")
	e.busy("channel", c.sq.ch.Close, "CQ|completion queue")
	opWrite.transfer(c, 100)
}

// closeUnderWork repeatedly closes queue pairs with outstanding requests.
func closeUnderWork(e *End) {
	for range 20 {
		c, write := e.self()
		for i := range depth {
			write(uint64(i))
		}
		e.must(c.qp.Close(), "close a QP with work under way")
	}
}

// closedCase closes an object and calls its verbs.
type closedCase struct {
	name string
	// open creates the object and returns its Close and its verbs.
	open func(e *End) (close func() error, verbs map[string]func() error)
}

func closedCases() []Case {
	var list []Case
	for _, c := range closedObjects {
		list = append(list, Case{Name: "closed/" + c.name, Alone: func(e *End) {
			close, verbs := c.open(e)
			e.must(close(), "close")
			e.must(close(), "close again")
			for name, verb := range verbs {
				e.is(verb(), fmt.Sprintf("%s of a closed %s", name, c.name), ib.ErrClosed)
			}
			e.must(close(), "close a third time")
		}})
	}
	return list
}

func second[T any](_ T, err error) error { return err }

var closedObjects = []closedCase{
	{"PD", func(e *End) (func() error, map[string]func() error) {
		pd := e.newPD()
		cq := e.newQueue(1).cq
		return pd.Close, map[string]func() error{
			"RegMR":    func() error { return second(pd.RegMR(ib.MRInit{Buf: e.bytes(8)})) },
			"CreateAH": func() error { return second(pd.CreateAH(e.toPeer())) },
			"CreateSRQ": func() error {
				return second(pd.CreateSRQ(ib.SRQInit{SRQAttr: ib.SRQAttr{MaxWR: 1, MaxSGE: 1}}))
			},
			"CreateQP": func() error { return second(pd.CreateQP(ib.QPInit{Type: ib.RC, SendCQ: cq, RecvCQ: cq})) },
		}
	}},
	{"CQ", func(e *End) (func() error, map[string]func() error) {
		cq := e.newQueue(1).cq
		return cq.Close, map[string]func() error{
			"Poll":     func() error { return second(cq.Poll(make([]ib.WC, 1))) },
			"Arm":      func() error { return cq.Arm(false) },
			"Resize":   func() error { return cq.Resize(10) },
			"CreateQP": func() error { return second(e.pd().CreateQP(ib.QPInit{Type: ib.RC, SendCQ: cq, RecvCQ: cq})) },
		}
	}},
	{"channel", func(e *End) (func() error, map[string]func() error) {
		ch := e.newChannel()
		return ch.Close, map[string]func() error{
			"Wait": func() error {
				ctx, cancel := context.WithTimeout(e.ctx, time.Second)
				defer cancel()
				return second(ch.Wait(ctx))
			},
			"CreateCQ": func() error { return second(e.dev.CreateCQ(ib.CQInit{Entries: 1, Channel: ch})) },
		}
	}},
	{"QP", func(e *End) (func() error, map[string]func() error) {
		c := e.lonely()
		return c.qp.Close, map[string]func() error{
			"Modify":   func() error { return c.qp.Modify(ib.QPAttr{State: ib.StateErr}, ib.AttrState) },
			"Query":    func() error { return second(c.qp.Query()) },
			"PostSend": func() error { return second(c.qp.PostSend([]ib.SendWR{{Opcode: ib.WRSend}})) },
			"PostRecv": func() error { return second(c.qp.PostRecv([]ib.RecvWR{{}})) },
		}
	}},
	{"SRQ", func(e *End) (func() error, map[string]func() error) {
		s, cq := e.newSharedQueue(e.pd()).srq, e.newQueue(1).cq
		return s.Close, map[string]func() error{
			"Modify":   func() error { return s.Modify(ib.SRQAttr{Limit: 1}, ib.SRQLimit) },
			"Query":    func() error { return second(s.Query()) },
			"PostRecv": func() error { return second(s.PostRecv([]ib.RecvWR{{}})) },
			"CreateQP": func() error {
				return second(e.pd().CreateQP(ib.QPInit{Type: ib.RC, SendCQ: cq, RecvCQ: cq, SRQ: s}))
			},
		}
	}},
	{"AH", func(e *End) (func() error, map[string]func() error) {
		ah := e.newAH(e.pd(), nil)
		return ah.Close, map[string]func() error{
			"Query":  func() error { return second(ah.Query()) },
			"Modify": func() error { return ah.Modify(e.toPeer()) },
		}
	}},
	{"MR", func(e *End) (func() error, map[string]func() error) {
		m := e.mem(64, allAccess)
		return m.mr.Close, map[string]func() error{}
	}},
}
