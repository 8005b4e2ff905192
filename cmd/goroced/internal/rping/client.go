package rping

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/goroce/goroce/cmd/goroced/internal/waiting"
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/rdmacm"
)

// client is the connection of a client, with the memory of its pings.
type client struct {
	*endpoint
	start, sink     []byte // the text to send, and where it returns
	startMR, sinkMR ib.MR
}

// ping runs a client.
func ping(ctx context.Context, cm *rdmacm.CM, o *Options) (err error) {
	c, err := newClient(cm.Device(), o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if err := c.connect(ctx, cm); err != nil {
		return err
	}
	began := time.Now()
	for n := 0; o.Count == 0 || n < o.Count; n++ {
		err := c.ping(ctx, n)
		if ctx.Err() != nil {
			c.sum(began)
			return ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("ping %d: %w", n, err)
		}
	}
	c.sum(began)
	return c.disconnect(ctx)
}

// sum says how many pings there were, and how long each has taken.
func (c *client) sum(began time.Time) {
	if d := time.Since(began); c.passed > 0 {
		fmt.Fprintf(c.o.Log, "%d pings in %v, %v each\n", c.passed, d.Round(time.Millisecond),
			(d / time.Duration(c.passed)).Round(time.Microsecond))
	}
}

func newClient(dev ib.Device, o *Options) (*client, error) {
	e, err := newEndpoint(dev, o)
	if err != nil {
		return nil, err
	}
	c := &client{endpoint: e, start: e.memory(o.Size), sink: e.memory(o.Size)}
	if c.startMR, err = e.register(c.start, ib.RemoteRead); err == nil {
		c.sinkMR, err = e.register(c.sink, ib.LocalWrite|ib.RemoteWrite)
	}
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return c, nil
}

func (c *client) connect(ctx context.Context, cm *rdmacm.CM) error {
	wait, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	config := c.config(ib.RemoteRead | ib.RemoteWrite)
	if c.o.Source.IsValid() {
		config.Local = netip.AddrPortFrom(c.o.Source, 0)
	}
	stop := waiting.For(c.o.Log, c.o.Addr, "%s to answer the request (REQ, UDP port 4791), %v at most", c.o.hostPort(),
		c.o.Timeout)
	conn, err := cm.Dial(wait, c.o.hostPort(), config)
	stop()
	switch {
	case ctx.Err() != nil:
		return waiting.Ended(ctx, ctx.Err(), "%s to answer the request", c.o.hostPort())
	case err != nil:
		return c.o.explainDial(err)
	}
	c.Own(conn)
	c.o.debugf("connected: %v to %v", conn.LocalAddr(), conn.RemoteAddr())
	return nil
}

// ping runs ping n: the server READs the text and WRITEs it back.
func (c *client) ping(ctx context.Context, n int) error {
	fillText(c.start, n)
	c.longest = len(c.start)
	wipe(c.sink)
	for _, mr := range []ib.MR{c.startMR, c.sinkMR} {
		p := place{mr.Addr(), mr.RKey(), uint32(c.o.Size)}
		if err := c.send(p); err != nil {
			return err
		}
		c.o.debugf("sent %v", p)
		if _, err := c.receive(ctx); err != nil {
			return err
		}
		c.o.debugf("received go-ahead")
	}
	if c.o.Validate {
		if err := checkText(c.sink, c.start); err != nil {
			return err
		}
	}
	c.passed++
	if c.o.Verbose {
		c.o.printText("ping data", text(c.sink))
	}
	return nil
}

// disconnect ends the connection. All pings have succeeded, so if the server is gone that is only logged.
func (c *client) disconnect(ctx context.Context) error {
	wait, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	err := c.conn.Disconnect(wait)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		fmt.Fprintf(c.o.Log, "disconnect: %v\n", err)
	}
	fmt.Fprintln(c.o.Log, "client DISCONNECT EVENT...")
	return nil
}
