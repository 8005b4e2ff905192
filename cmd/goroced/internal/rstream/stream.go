package rstream

import (
	"io"
	"time"

	"github.com/goroce/goroce/roce/rsocket"
)

// stream transfers bytes of the stream.
type stream struct {
	*player
	conn        *rsocket.Conn
	setDeadline func(time.Time) error // for everything that waits for the peer
	renew       time.Time             // when to extend the deadline next
}

// maxChunk limits the size of a write, so that the deadline applies to a wait for the peer and not to the whole
// transfer.
const maxChunk = 256 << 10

// tick extends the deadline. It is called for every part of a transfer, and does so only from time to time.
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

// sync counts as a transfer.
func (s *stream) sync(send bool) error { return s.transfer(send, syncLen) }

func (s *stream) send(t *test) error    { return s.turn(true, t) }
func (s *stream) receive(t *test) error { return s.turn(false, t) }

func (s *stream) turn(send bool, t *test) error {
	for range t.transfers {
		if err := s.transfer(send, t.size); err != nil {
			return err
		}
		s.moved++
	}
	return nil
}

func (s *stream) end(*test) error { return nil }

// finish waits for the end of the peer's stream, which comes when the peer has received everything.
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
