package perf

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"time"
)

// controlPort is the TCP port at which the far end waits for the near one. Programs in C that other tests start listen
// from 18600 on, at any address.
const controlPort = 17760

// peer is the connection to the other end. It carries nothing while a row is measured.
type peer struct {
	conn  net.Conn
	enc   *json.Encoder
	dec   *json.Decoder
	ended atomic.Bool // the other end is done
	done  chan struct{}
}

// meet connects the two ends.
func meet(ctx context.Context, j *Job) (*peer, error) {
	connect := dial
	if j.Far {
		connect = accept
	}
	conn, err := connect(ctx, j)
	if err != nil {
		return nil, fmt.Errorf("meet the other end: %w", err)
	}
	return newPeer(ctx, conn), nil
}

func newPeer(ctx context.Context, conn net.Conn) *peer {
	context.AfterFunc(ctx, func() { _ = conn.Close() })
	return &peer{conn: conn, enc: json.NewEncoder(conn), dec: json.NewDecoder(conn), done: make(chan struct{})}
}

// meetAll connects an end with as many others as the job has QPs.
func meetAll(ctx context.Context, j *Job) (peers []*peer, err error) {
	l, err := listen(j)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	for range j.QPs {
		conn, err := l.Accept()
		if err != nil {
			return peers, fmt.Errorf("meet the other ends: %w", err)
		}
		peers = append(peers, newPeer(ctx, conn))
	}
	return peers, nil
}

func listen(j *Job) (*net.TCPListener, error) {
	return net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(j.Self, controlPort)))
}

func accept(ctx context.Context, j *Job) (net.Conn, error) {
	l, err := listen(j)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	return l.Accept()
}

// dial tries until the other end listens.
func dial(ctx context.Context, j *Job) (net.Conn, error) {
	var d net.Dialer
	for {
		conn, err := d.DialContext(ctx, "tcp", netip.AddrPortFrom(j.Peer, controlPort).String())
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return conn, err
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// swap sends mine to the other end and returns what it sent.
func swap[T any](p *peer, mine T) (theirs T, err error) {
	if err = p.enc.Encode(mine); err == nil {
		err = p.dec.Decode(&theirs)
	}
	if err != nil {
		err = fmt.Errorf("talk to the other end: %w", err)
	}
	return theirs, err
}

// start returns a meter when both ends have called it; the measured interval is the same at both. From then on p.ended
// tells whether the other end is done.
func (p *peer) start(j *Job) (*meter, error) {
	if _, err := swap(p, struct{}{}); err != nil {
		return nil, err
	}
	go func() {
		_, _ = io.Copy(io.Discard, io.MultiReader(p.dec.Buffered(), p.conn))
		p.ended.Store(true)
		close(p.done)
	}()
	return newMeter(j), nil
}

// standBy is the half of an end that has nothing to do but to take part in starting the clock.
func standBy(j *Job, p *peer) (Result, error) {
	m, err := p.start(j)
	if err != nil {
		return Result{}, err
	}
	m.sleep()
	p.finish()
	return m.result(), nil
}

// finish tells the other end that this one is done, and waits until both are, because what an end holds must last as
// long as the other end uses it.
func (p *peer) finish() {
	if half, ok := p.conn.(*net.TCPConn); ok {
		_ = half.CloseWrite()
	}
	<-p.done
	_ = p.conn.Close()
}
