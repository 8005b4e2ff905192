package main

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/cm"
	"github.com/goroce/goroce/roce/rdmacm"
	"github.com/goroce/goroce/wire"
)

// churn opens and closes connections without sending on them. Without --hold the client
// closes each once it is established; with it the server closes all once all are established.
type churn struct {
	common
	Count  int    `short:"n" default:"200" help:"Connections."`
	AtOnce bool   `help:"Client: all at once; otherwise one after the other."`
	Hold   bool   `help:"The server disconnects, when all connections are up."`
	Port   int    `short:"p" default:"7471" help:"Port."`
	Host   string `arg:"" optional:"" help:"The server."`
}

func (c *churn) Run() error {
	return c.with(func(s *station) error {
		goroutines := runtime.NumGoroutine()
		run := c.serve
		if c.Host != "" {
			run = c.dial
		}
		begin := time.Now()
		err := run(s)
		fmt.Printf("%d connections in %v\n", c.Count, time.Since(begin).Round(time.Millisecond))
		report(s.dev.(interface{ CMStats() cm.Stats }).CMStats())
		if err != nil {
			return err
		}
		return s.awaitGoroutines(goroutines)
	})
}

// config returns a configuration with minimal queues, as nothing is sent.
func (c *churn) config(s *station, cq ib.CQ) rdmacm.Config {
	return rdmacm.Config{PD: s.pd, SendCQ: cq, Cap: ib.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}}
}

func (c *churn) dial(s *station) error {
	cq, err := s.dev.CreateCQ(ib.CQInit{Entries: 1})
	if err != nil {
		return err
	}
	one := func(i int) error {
		conn, err := s.cm.Dial(s, at(c.Host, c.Port), c.config(s, cq))
		if err != nil {
			return fmt.Errorf("connection %d: %w", i, err)
		}
		if c.Hold {
			err = c.awaitEnd(s, conn)
		} else {
			err = conn.Disconnect(s)
		}
		return errors.Join(err, conn.Close())
	}
	if c.AtOnce {
		return errors.Join(each(c.Count, one), cq.Close())
	}
	for i := range c.Count {
		if err := one(i); err != nil {
			return err
		}
	}
	return cq.Close()
}

func (c *churn) serve(s *station) error {
	cq, err := s.dev.CreateCQ(ib.CQInit{Entries: 1})
	if err != nil {
		return err
	}
	l, err := s.listen(c.Port, ib.RC)
	if err != nil {
		return err
	}
	accept := s.acceptor(l)
	conns := make([]*rdmacm.Conn, c.Count)
	err = each(c.Count, func(i int) (err error) {
		if conns[i], err = accept(c.config(s, cq)); err != nil || c.Hold {
			return err
		}
		return errors.Join(c.awaitEnd(s, conns[i]), conns[i].Close())
	})
	if err != nil {
		return err
	}
	if c.Hold {
		err = each(c.Count, func(i int) error { return errors.Join(conns[i].Disconnect(s), conns[i].Close()) })
	}
	return errors.Join(err, l.Close(), cq.Close())
}

// awaitEnd waits until the peer disconnects.
func (c *churn) awaitEnd(s *station, conn *rdmacm.Conn) error {
	select {
	case <-conn.Done():
		return wantDisconnected(conn)
	case <-s.Done():
		return fmt.Errorf("wait for %v to disconnect: %w", conn.RemoteAddr(), s.Err())
	}
}

// awaitGoroutines waits until no more goroutines than that are left.
func (s *station) awaitGoroutines(most int) error {
	for runtime.NumGoroutine() > most {
		if s.Err() != nil {
			return fmt.Errorf("left over: %d goroutines", runtime.NumGoroutine()-most)
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

// report prints the counters that show a bad network.
func report(st cm.Stats) {
	for a := wire.AttrREQ; a <= wire.AttrDREP; a++ {
		if r, s := st.Received.Of(a), st.Sent.Of(a); r+s > 0 {
			fmt.Printf("%v: %d received, %d sent\n", a, r, s)
		}
	}
	fmt.Printf("%d sent again, %d duplicates, %d for an unknown ID, %d stale, %d refused\n", st.Resent, st.Duplicates,
		st.UnknownID, st.Stale, st.Refused)
}
