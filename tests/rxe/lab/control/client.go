package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

const (
	// DefaultTimeout bounds a command whose context has no deadline.
	DefaultTimeout = 60 * time.Second

	// sendTimeout bounds the writing of one request to the stream.
	sendTimeout = 30 * time.Second
)

// ErrClosed is what commands return after Client.Close.
var ErrClosed = errors.New("control: client is closed")

// Port is the byte stream to a guest: one end of a socket pair, or a net.Conn.
type Port interface {
	io.ReadWriteCloser
	SetWriteDeadline(time.Time) error
}

// Client starts commands in one guest. Its methods may be called concurrently.
type Client struct {
	port      Port
	lost      func(error) error
	killGrace time.Duration

	writeMu sync.Mutex // serializes requests on port

	mu       sync.Mutex
	lastID   uint64
	commands map[uint64]*Process
	err      error // why the stream ended; nil while it is in use

	readyOnce sync.Once
	ready     chan struct{} // closed when the guest has reported
	done      chan struct{} // closed after err is set
}

// NewClient takes over port. killGrace is how long a guest may take to confirm
// a kill before it counts as hung and the stream is given up. When the stream
// ends in any way but by Close, lost is called once with the reason; what it
// returns is the error of all commands under way and to come.
func NewClient(port Port, killGrace time.Duration, lost func(error) error) *Client {
	c := &Client{
		port:      port,
		lost:      lost,
		killGrace: killGrace,
		commands:  make(map[uint64]*Process),
		ready:     make(chan struct{}),
		done:      make(chan struct{}),
	}
	go c.receive()
	return c
}

// WaitReady returns when the guest has reported, with nil; or with the reason
// why it never will.
func (c *Client) WaitReady(ctx context.Context) error {
	select {
	case <-c.ready:
		return nil
	case <-c.done:
		return c.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Start starts a command in the guest, with stdin as its whole standard input.
// The command is killed when ctx ends, or after DefaultTimeout where ctx has no
// deadline.
func (c *Client) Start(ctx context.Context, stdin []byte, args ...string) (*Process, error) {
	cancel := context.CancelFunc(func() {})
	if _, ok := ctx.Deadline(); !ok {
		ctx, cancel = context.WithTimeout(ctx, DefaultTimeout)
	}
	deadline, _ := ctx.Deadline()
	p, err := c.admit(args)
	if err == nil {
		err = c.send(request{ID: p.id, Args: args, Stdin: stdin, Timeout: time.Until(deadline)})
	}
	if err != nil {
		cancel()
		return nil, err
	}
	go func() {
		defer cancel()
		p.watch(ctx)
	}()
	return p, nil
}

// Close ends the stream and with it the commands under way.
func (c *Client) Close() error {
	c.fail(ErrClosed)
	return nil
}

// admit makes the entry to which the guest's replies will go.
func (c *Client) admit(args []string) (*Process, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return nil, c.err
	}
	c.lastID++
	p := &Process{client: c, id: c.lastID, args: args, done: make(chan struct{})}
	c.commands[p.id] = p
	return p, nil
}

// send writes one request; it never blocks for longer than sendTimeout.
func (c *Client) send(r request) error {
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	err := c.port.SetWriteDeadline(time.Now().Add(sendTimeout))
	if err == nil {
		err = json.NewEncoder(c.port).Encode(r)
	}
	if err != nil {
		return c.fail(fmt.Errorf("write request: %w", err))
	}
	return nil
}

// receive hands replies to their commands until the stream ends.
func (c *Client) receive() {
	decoder := json.NewDecoder(c.port)
	for {
		var r reply
		if err := decoder.Decode(&r); err != nil {
			c.fail(fmt.Errorf("read reply: %w", err))
			return
		}
		if r.ID == readyID {
			c.readyOnce.Do(func() { close(c.ready) })
			continue
		}
		c.mu.Lock()
		p := c.commands[r.ID]
		if r.Done {
			delete(c.commands, r.ID)
		}
		c.mu.Unlock()
		if p != nil {
			p.take(r)
		}
	}
}

// fail ends the stream and all commands the first time it is called. It returns the
// error of that first call.
func (c *Client) fail(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	_ = c.port.Close()
	c.err = err
	if !errors.Is(err, ErrClosed) {
		c.err = c.lost(err)
	}
	for id, p := range c.commands {
		delete(c.commands, id)
		p.finish(0, c.err)
	}
	close(c.done)
	return c.err
}
