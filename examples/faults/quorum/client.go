package quorum

import (
	"context"
	"encoding/gob"
	"errors"
	"time"

	"github.com/goroce/goroce/roce/rdmacm"
	"github.com/goroce/goroce/roce/rsocket"
)

const patience = 100 * time.Millisecond // with a replica, before it is connected to again

// Client reads and writes the store. It may be used by one goroutine.
type Client struct {
	id       uint8
	replicas []*replica
}

// NewClient returns a client of the replicas at these addresses. No two clients have the same id.
func NewClient(id uint8, cm *rdmacm.CM, addrs ...string) *Client {
	c := &Client{id: id}
	for _, addr := range addrs {
		r := &replica{cm: cm, addr: addr, streams: make(chan *stream, 1)}
		r.streams <- nil
		c.replicas = append(c.replicas, r)
	}
	return c
}

// Put stores a value.
func (c *Client) Put(ctx context.Context, key, value string) error {
	latest, err := c.ask(ctx, request{Key: key})
	if err == nil {
		_, err = c.ask(ctx, request{key, Entry{(latest.Version>>8+1)<<8 | uint64(c.id), value}})
	}
	return err
}

// Get returns the latest value.
func (c *Client) Get(ctx context.Context, key string) (string, error) {
	latest, err := c.ask(ctx, request{Key: key})
	if err == nil {
		_, err = c.ask(ctx, request{key, latest})
	}
	return latest.Value, err
}

// ask returns the newest answer of most replicas. The others may do what was asked later.
func (c *Client) ask(ctx context.Context, r request) (newest Entry, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan Entry, len(c.replicas))
	for _, replica := range c.replicas {
		go replica.ask(ctx, r, answers)
	}
	for range len(c.replicas)/2 + 1 {
		select {
		case e := <-answers:
			if e.Version > newest.Version {
				newest = e
			}
		case <-ctx.Done():
			return Entry{}, ctx.Err()
		}
	}
	return newest, nil
}

// Close closes the connections.
func (c *Client) Close() {
	for _, r := range c.replicas {
		if s := <-r.streams; s != nil {
			s.conn.Close()
		}
	}
}

// replica is a client's view of a replica.
type replica struct {
	cm      *rdmacm.CM
	addr    string
	streams chan *stream // holds the connection while nobody uses it; nil if there is none
}

type stream struct {
	conn *rsocket.Conn
	in   *gob.Decoder
	out  *gob.Encoder
}

// ask asks the replica until it has answered. Once ctx has ended it begins no more.
func (r *replica) ask(ctx context.Context, q request, answers chan<- Entry) {
	for {
		var s *stream
		select {
		case s = <-r.streams:
		case <-ctx.Done():
			return
		}
		e, s, err := r.try(ctx, s, q)
		r.streams <- s
		if err == nil {
			answers <- e
			return
		}
	}
}

// try asks the replica once, on s or a new connection, and returns the connection for the next request.
func (r *replica) try(ctx context.Context, s *stream, q request) (e Entry, _ *stream, err error) {
	if s == nil {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		conn, err := rsocket.Dial(ctx, r.cm, r.addr, rsocket.Options{})
		if err != nil {
			time.Sleep(time.Millisecond) // nobody listens yet
			return e, nil, err
		}
		s = &stream{conn, gob.NewDecoder(conn), gob.NewEncoder(conn)}
	}
	_ = s.conn.SetDeadline(time.Now().Add(patience))
	if err := errors.Join(s.out.Encode(q), s.in.Decode(&e)); err != nil {
		s.conn.Close()
		return e, nil, err
	}
	return e, s, nil
}
