package perf

import (
	"context"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/goroce/goroce/cmd/goroced/internal/meet"
	"github.com/goroce/goroce/cmd/goroced/internal/waiting"
)

// tcpMeeting is a TCP connection. While messages go over RoCE, a goroutine waits for the next byte.
type tcpMeeting struct {
	*meet.Conn
	textAddresses
	client bool
	seen   atomic.Int32 // presence
	idle   chan struct{}
}

// meetTCP connects to the server, or waits for the client. The connection is closed when ctx ends.
func meetTCP(ctx context.Context, o *Options) (*tcpMeeting, error) {
	if !o.server() {
		defer waiting.For(o.Log, o.Host, "%s, %v at most", o.awaited(), o.Timeout)()
	}
	conn, err := meet.Connect(ctx, meet.Options{Host: o.Host, Port: o.Port, Timeout: o.Timeout, Command: o.command,
		Network: o.network, Listening: o.announce})
	if err != nil {
		return nil, err
	}
	return newTCPMeeting(conn, o), nil
}

func newTCPMeeting(conn *meet.Conn, o *Options) *tcpMeeting {
	m := &tcpMeeting{Conn: conn, client: !o.server()}
	m.watch()
	return m
}

// watch waits for the next byte in the background.
func (m *tcpMeeting) watch() {
	m.seen.Store(int32(here))
	m.idle = make(chan struct{})
	go func() {
		defer close(m.idle)
		next := ahead
		if m.Await() != nil {
			next = gone
		}
		m.seen.Store(int32(next))
	}()
}

func (m *tcpMeeting) peer() presence { return presence(m.seen.Load()) }

func (m *tcpMeeting) swap(mine, theirs []byte, limit time.Duration) error {
	m.Limit(limit)
	steps := []func() error{func() error { return m.Send(mine) }, func() error { return m.receive(theirs) }}
	if !m.client {
		steps[0], steps[1] = steps[1], steps[0]
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	m.Limit(0)
	m.watch()
	return nil
}

// receive reads a message, after the goroutine has stopped reading.
func (m *tcpMeeting) receive(msg []byte) error {
	<-m.idle
	return m.Receive(msg)
}

func (m *tcpMeeting) leave(limit time.Duration) {
	m.Limit(limit)
	<-m.idle
}

func (m *tcpMeeting) localAddr() netip.Addr { return m.LocalIP() }
