package conformance

import (
	"fmt"
	"time"

	"github.com/goroce/goroce/ib"
)

// multiCases: many objects, many goroutines.
func multiCases() []Case {
	return []Case{
		{Name: "many/64-queue-pairs", Active: manyPairs, Passive: manyPairsPassive},
		{Name: "many/goroutines-with-a-queue-pair-each", Active: manyGoroutines, Passive: manyGoroutinesPassive},
		{Name: "many/goroutines-post-to-one-queue-pair", Active: manyPosters, Passive: manyPostersPassive},
		{Name: "many/goroutines-poll-one-queue", Active: manyPollers, Passive: scratchPassive},
		{Name: "many/objects-come-and-go-under-traffic", Active: churn, Passive: scratchPassive},
		{Name: "many/goroutines-make-and-close-everything", Alone: makeAndClose},
		{Name: "many/state-changes-at-once", Alone: changeAtOnce},
	}
}

const pairs = 64

// manyPairs writes with 64 queue pairs on two CQs, each to its own memory.
func manyPairs(e *End) {
	sq, rq := e.newQueue(pairs*2), e.newQueue(1)
	var conns []*conn
	for range pairs {
		conns = append(conns, e.connect(on(sq, rq)))
	}
	m := e.mem(pairs*100, 0)
	m.put(0, pattern(1, pairs*100))
	r := e.peerMem()
	for i, c := range conns {
		at := remote{Addr: r.Addr + uint64(100*i), RKey: r.RKey}
		c.post(opWrite.request(uint64(i), m.sgl(100*i, 100), at))
	}
	seen := map[uint64]bool{}
	for range pairs {
		wc := sq.next()
		e.must(wc.Err(), "completion")
		if seen[wc.ID] || wc.QPN != conns[wc.ID].qp.Num() {
			e.fatalf("completion %d of QP %#x", wc.ID, uint32(wc.QPN))
		}
		seen[wc.ID] = true
	}
	e.sync("done")
}

func manyPairsPassive(e *End) {
	q := e.newQueue(1)
	for range pairs {
		e.connect(on(q, q))
	}
	m := e.mem(pairs*100, allAccess)
	m.expose()
	e.sync("done")
	m.want(0, pattern(1, pairs*100))
	m.check()
}

const workers = 8

// manyGoroutines sends on several connections at the same time.
func manyGoroutines(e *End) {
	var conns []*conn
	for range workers {
		conns = append(conns, e.connect())
	}
	e.sync("posted")
	e.parallel(workers, func(i int) {
		m := e.mem(5000, 0)
		m.put(0, pattern(uint64(i), 5000))
		for j := range depth {
			conns[i].do(ib.SendWR{ID: uint64(j), Opcode: ib.WRSend, SGL: m.all()})
		}
	})
	e.sync("done")
}

func manyGoroutinesPassive(e *End) {
	var conns []*conn
	var regions []*region
	for range workers {
		c, m := e.connect(), e.mem(5000, ib.LocalWrite)
		for j := range depth {
			c.recv(uint64(j), m.all())
		}
		conns, regions = append(conns, c), append(regions, m)
	}
	e.sync("posted")
	e.parallel(workers, func(i int) {
		for j := range depth {
			conns[i].rq.received(uint64(j), 5000)
		}
		regions[i].want(0, pattern(uint64(i), 5000))
		regions[i].check()
	})
	e.sync("done")
}

// manyPosters posts to one queue pair from several goroutines: nothing is lost, and the requests of each goroutine stay
// in order.
func manyPosters(e *End) {
	c := e.connect(func(s *setup) { s.init.Cap.MaxSendWR = workers * depth })
	m := e.mem(workers*depth, 0)
	e.sync("posted")
	e.parallel(workers, func(i int) {
		for j := range depth {
			id := uint64(i*depth + j)
			c.post(ib.SendWR{ID: id, Opcode: ib.WRSend, SGL: m.sgl(0, int(id))})
		}
	})
	next := [workers]uint64{}
	for range workers * depth {
		wc := c.sq.next()
		e.must(wc.Err(), "completion")
		if w := wc.ID / depth; wc.ID%depth != next[w] {
			e.fatalf("request %d of poster %d completes where %d is due", wc.ID%depth, w, next[w])
		} else {
			next[w]++
		}
	}
	e.sync("done")
}

func manyPostersPassive(e *End) {
	c := e.connect(func(s *setup) { s.init.Cap.MaxRecvWR = workers * depth })
	m := e.mem(workers*depth, ib.LocalWrite)
	e.parallel(workers, func(i int) {
		for j := range depth {
			c.recv(uint64(i*depth+j), m.all())
		}
	})
	e.sync("posted")
	seen := map[uint32]bool{}
	for range workers * depth {
		wc := c.rq.next()
		e.must(wc.Err(), "receive")
		seen[wc.ByteLen] = true
	}
	if len(seen) != workers*depth {
		e.fatalf("%d of %d messages came", len(seen), workers*depth)
	}
	e.sync("done")
}

// manyPollers polls one CQ from several goroutines: each completion is returned once.
func manyPollers(e *End) {
	const n = 4 * depth
	c := e.connect(func(s *setup) { s.init.Cap.MaxSendWR = n })
	m := e.mem(8, 0)
	r := e.peerMem()
	for i := range n {
		c.post(opWrite.request(uint64(i), m.all(), r))
	}
	polled := make(chan ib.WC, n)
	e.parallel(4, func(int) {
		for range n / 4 {
			for {
				wc, ok := c.sq.poll()
				if ok {
					polled <- wc
					break
				}
				e.linger(100 * time.Microsecond)
			}
		}
	})
	seen := map[uint64]bool{}
	for range n {
		wc := <-polled
		e.must(wc.Err(), "completion")
		seen[wc.ID] = true
	}
	if len(seen) != n {
		e.fatalf("%d completions for %d requests", len(seen), n)
	}
	e.sync("done")
}

// churn creates and closes objects while a connection is busy.
func churn(e *End) {
	c := e.connect()
	m := e.mem(64, 0)
	r := e.peerMem()
	e.parallel(2, func(i int) {
		for j := range 40 {
			if i == 0 {
				c.do(opWrite.request(uint64(j), m.all(), r))
				continue
			}
			e.round(fmt.Sprint(j))
		}
	})
	e.sync("done")
}

// round creates an object of most kinds and closes it.
func (e *End) round(what string) {
	pd := e.newPD()
	buf := e.bytes(64)
	mr, err := pd.RegMR(ib.MRInit{Buf: buf, Access: allAccess})
	e.must(err, "register MR %s", what)
	ch := e.newChannel()
	cq := e.newCQ(ib.CQInit{Entries: 4, Channel: ch})
	qp := e.newQP(pd, ib.QPInit{Type: ib.RC, SendCQ: cq, RecvCQ: cq,
		Cap: ib.QPCap{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1}})
	ah := e.newAH(pd, nil)
	e.is(pd.Close(), "closing a PD in use", ib.ErrBusy)
	for _, close := range []func() error{ah.Close, qp.Close, cq.Close, ch.Close, mr.Close, pd.Close} {
		e.must(close(), "close, round %s", what)
	}
}

func makeAndClose(e *End) {
	e.parallel(workers, func(i int) {
		for j := range 10 {
			e.round(fmt.Sprintf("%d of %d", j, i))
		}
	})
}

// changeAtOnce modifies and queries one queue pair from several goroutines, after which it can still be moved to ERR.
func changeAtOnce(e *End) {
	c := e.lonely()
	e.parallel(4, func(i int) {
		for range 20 {
			if i%2 == 0 {
				c.query()
				continue
			}
			_ = c.qp.Modify(ib.QPAttr{State: ib.StateRTS, MinRNRTimer: uint8(i)}, ib.AttrState|ib.AttrMinRNRTimer)
		}
	})
	c.wantState(ib.StateRTS)
	c.err()
	c.wantState(ib.StateErr)
}
