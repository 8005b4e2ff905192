package rstream

import (
	"io"
	"time"

	"github.com/goroce/goroce/roce/rsocket"
)

// stream moves transfers as bytes of the stream.
type stream struct {
	*player
	conn        *rsocket.Conn
	setDeadline func(time.Time) error // of all that waits for the peer
	renew       time.Time             // when the deadline is to be moved
}

// maxChunk bounds what is written at a time, so that the deadline bounds a wait for
// the peer and not the whole transfer.
const maxChunk = 256 << 10

// tick moves the deadline. As it is called for every piece of a transfer it does
// so now and then only.
func (s *stream) tick() error {
	now := time.Now()
	if now.Before(s.renew) {
		return nil
	}
	s.renew = now.Add(s.o.Timeout / 2)
	return s.setDeadline(now.Add(s.o.Timeout))
}

func (s *stream) write(b []byte) error {
	for len(b) > 0 {
		if err := s.tick(); err != nil {
			return err
		}
		n, err := s.conn.Write(b[:min(len(b), maxChunk)])
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

func (s *stream) read(b []byte) error {
	for len(b) > 0 {
		if err := s.tick(); err != nil {
			return err
		}
		n, err := s.conn.Read(b)
		b = b[n:]
		if err != nil && len(b) > 0 {
			return err
		}
	}
	return nil
}

// transfer sends or receives one transfer.
func (s *stream) transfer(send bool, size int) error {
	b := s.mem.bytes[:size]
	if send {
		if s.o.Verify {
			s.data.fill(b)
		}
		return s.write(b)
	}
	if err := s.read(b); err != nil || !s.o.Verify {
		return err
	}
	return s.data.check(b)
}

func (s *stream) begin(*test) error { return nil }

// sync is a transfer too: its bytes count.
func (s *stream) sync(send bool) error { return s.transfer(send, syncLen) }

func (s *stream) send(t *test) error    { return s.turn(true, t) }
func (s *stream) receive(t *test) error { return s.turn(false, t) }

func (s *stream) turn(send bool, t *test) error {
	for range t.transfers {
		if err := s.transfer(send, t.size); err != nil {
			return err
		}
	}
	return nil
}

func (s *stream) end(*test) error { return nil }

// finish waits for the peer's end of stream, which comes when it has got all.
func (s *stream) finish() error {
	if err := s.conn.CloseWrite(); err != nil {
		return err
	}
	s.renew = time.Time{}
	if err := s.tick(); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, s.conn)
	return err
}
