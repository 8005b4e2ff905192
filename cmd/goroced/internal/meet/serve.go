package meet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// ErrBusy: the server is busy with another client.
var ErrBusy = errors.New("the server is busy")

var (
	errStay  = errors.New("its time is over")
	errGreet = errors.New("it did not say in time what it wants")
)

// Limits of a server that takes clients in turn.
const (
	maxClients = 16              // that have a connection at the same time, one of which has its turn
	turnWait   = 2 * time.Second // how long a client waits for the one before it to end
	retryEach  = time.Second     // after Accept has failed, as it does when all file descriptors are in use
)

// ServeOptions configure a server that takes clients in turn.
type ServeOptions struct {
	Port    int           // TCP port, 1 to 65535
	Greet   time.Duration // longest time until a client asks for its turn
	Network Network       // the machine's if nil
	Log     io.Writer     // a line for each client that failed

	Listening func() // called when it listens
	// Play is called for each client, in a goroutine of its own: it learns what the client wants, waits for its turn,
	// and plays.
	Play func(ctx context.Context, c *Client) error
}

// Client is a client of a server that takes clients in turn.
type Client struct {
	*Conn
	server *server
	cancel context.CancelCauseFunc
	greet  *time.Timer // until its turn
	stay   *time.Timer // during its turn
}

// server is a server that takes clients in turn.
type server struct {
	o    *ServeOptions
	turn chan struct{} // has room for one, who plays

	mu     sync.Mutex
	player net.Addr // who plays
	until  time.Time
}

// Serve listens and takes clients until ctx ends, which is no error. A client that fails ends nothing but its own turn.
func Serve(ctx context.Context, o ServeOptions) error {
	if o.Network == nil {
		o.Network = &machine{}
	}
	l, err := listen(ctx, o.Network, o.Port)
	if err != nil {
		return err
	}
	defer l.Close()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	s := &server{o: &o, turn: make(chan struct{}, 1)}
	room := make(chan struct{}, maxClients)
	var clients sync.WaitGroup
	defer clients.Wait()
	o.Listening()
	for {
		select {
		case room <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		conn, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				_ = conn.Close()
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("wait for a client: %w", err)
		case err != nil:
			s.say("wait for a client: %v", err)
			<-room
			select {
			case <-time.After(retryEach):
			case <-ctx.Done():
			}
			continue
		}
		clients.Go(func() {
			s.take(ctx, conn)
			<-room
		})
	}
}

// take serves one client.
func (s *server) take(ctx context.Context, conn net.Conn) {
	own, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c := &Client{Conn: newConn(own, conn), server: s, cancel: cancel}
	defer c.Close()
	c.greet = time.AfterFunc(s.o.Greet, func() { cancel(errGreet) })
	err := s.o.Play(own, c)
	c.leave()
	if own.Err() != nil {
		err = context.Cause(own)
	}
	if err != nil && ctx.Err() == nil {
		s.say("client %v: %v", conn.RemoteAddr(), err)
	}
}

func (s *server) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.o.Log, format+"\n", args...)
}

// Turn waits until the client before has ended, but not long, and ends this client when it has stayed for so long.
// Error: ErrBusy.
func (c *Client) Turn(ctx context.Context, stay time.Duration) error {
	s := c.server
	timeout := time.NewTimer(turnWait)
	defer timeout.Stop()
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timeout.C:
		s.mu.Lock()
		defer s.mu.Unlock()
		return fmt.Errorf("%w with client %v, for %v at most; try again then", ErrBusy, s.player,
			time.Until(s.until).Round(time.Second))
	}
	c.greet.Stop()
	c.stay = time.AfterFunc(stay, func() { c.cancel(fmt.Errorf("%w: it took %v", errStay, stay)) })
	s.mu.Lock()
	defer s.mu.Unlock()
	s.player, s.until = c.RemoteAddr(), time.Now().Add(stay)
	return nil
}

// leave ends the turn of a client that has it.
func (c *Client) leave() {
	c.greet.Stop()
	if c.stay == nil {
		return
	}
	c.stay.Stop()
	<-c.server.turn
}

// Limits of what a client may ask of a server that takes the options of its clients.
type Limits struct {
	Size   int           // bytes of a message
	NumQP  int           // queue pairs
	Memory int           // bytes of all buffers
	Time   time.Duration // of a run
}

// ErrLimit: a client asks for more than the server allows.
var ErrLimit = errors.New("above the limit of the server")

// Check refuses what is above the limits. d is the duration of a run, 0 if it is not known.
func (l *Limits) Check(size, numQP, memory int, d time.Duration) error {
	for _, c := range []struct {
		name, unit  string
		asked, most int
		flag        string
	}{
		{"-s", "bytes of a message", size, l.Size, "--max-size"},
		{"-q", "queue pairs", numQP, l.NumQP, "--max-qp"},
		{"-D", "seconds", int(d.Round(time.Second).Seconds()), int(l.Time.Seconds()), "--max-time"},
		{"-s times -q", "bytes of memory for all messages", memory, l.Memory, "--max-memory"},
	} {
		if c.asked > c.most {
			return fmt.Errorf("%w: %s asks for %d %s, at most %d are allowed (%s there)", ErrLimit, c.name, c.asked,
				c.unit, c.most, c.flag)
		}
	}
	return nil
}

// ServerTerms are the terms of a server that takes the options of its clients.
func ServerTerms(l *Limits) *Terms {
	return &Terms{Version: TermsVersion, Serve: true, Options: map[string]string{maxTimeFlag: l.Time.String()}}
}

const maxTimeFlag = "--max-time"

// MaxTime returns how long a server lets its clients play, 0 if it does not say.
func (t *Terms) MaxTime() time.Duration {
	d, err := time.ParseDuration(t.Options[maxTimeFlag])
	if err != nil {
		return 0
	}
	return d
}
