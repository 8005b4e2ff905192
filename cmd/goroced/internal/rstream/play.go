package rstream

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/goroce/goroce/cmd/goroced/internal/pathmtu"
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/rsocket"
)

// ErrSilent: the peer has neither sent nor received anything for Options.Timeout.
var ErrSilent = errors.New("the peer fell silent")

// syncLen is the length of the messages that begin a test.
const syncLen = 16

// mover executes the transfers of a connection.
type mover interface {
	begin(t *test) error // called before the first message of a test
	sync(send bool) error
	send(t *test) error // the transfers of one iteration in one direction
	receive(t *test) error
	end(t *test) error
	finish() error // called after all tests: waits until the peer is done, too
}

// play runs the tests of a connection.
func (p *player) play(conn *rsocket.Conn, tests []test) error {
	var m mover
	s := &stream{player: p, conn: conn, setDeadline: conn.SetDeadline}
	if m = s; p.o.IOMap {
		m = newIOMap(s)
	}
	for i := range tests {
		if err := p.test(m, &tests[i]); err != nil {
			return fmt.Errorf("test %s: %w", tests[i].name, p.explain(conn, err))
		}
	}
	if err := m.finish(); err != nil {
		return p.explain(conn, err)
	}
	err := conn.Close()
	<-conn.Done()
	return err
}

// test runs one test. The client sends first.
func (p *player) test(m mover, t *test) error {
	client := p.l == nil
	turns := []func(*test) error{m.receive, m.send}
	if client {
		turns = []func(*test) error{m.send, m.receive}
	}
	if err := m.begin(t); err != nil {
		return err
	}
	for _, send := range []bool{client, !client} {
		if err := m.sync(send); err != nil {
			return err
		}
	}
	p.running, p.start, p.moved = t, time.Now(), 0
	for range t.iterations {
		for _, turn := range turns {
			if err := turn(t); err != nil {
				return err
			}
		}
	}
	printRow(p.o.Out, t, p.moved, time.Since(p.start))
	p.running = nil
	return m.end(t)
}

// printPart prints the row of a test that was interrupted: bytes, time and rates are those of the transfers made.
func (p *player) printPart() {
	if p.running == nil || p.moved == 0 {
		return
	}
	printRow(p.o.Out, p.running, p.moved, time.Since(p.start))
	fmt.Fprintf(p.o.Log, "interrupted: the last row is of %d of %d transfers\n", p.moved, p.running.total())
}

// explain adds the most likely cause to an error of the connection.
func (p *player) explain(conn *rsocket.Conn, err error) error {
	hint := pathmtu.Hint(conn.PathMTU())
	var wc *ib.WCError
	switch {
	case errors.As(err, &wc) && wc.Status == ib.WCRetryExcErr:
		return fmt.Errorf("%v answers no longer: %w; is the program there still running?%s", conn.RemoteAddr(), err,
			hint)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("%w for %v: %w; both ends need the same tests%s", ErrSilent, p.o.Timeout, err, hint)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, ib.ErrClosed): // not by a device that was closed here
		return fmt.Errorf("the peer has ended: %w; both ends need the same tests%s", err, hint)
	}
	return err
}
