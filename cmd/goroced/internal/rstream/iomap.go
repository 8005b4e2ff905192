package rstream

import (
	"errors"
	"io"
	"os"
	"time"

	"github.com/goroce/goroce/ib"
)

// errTurn: the peer has begun a test before the last one was over.
var errTurn = errors.New("a message of the peer came out of turn")

// iomap transfers by writing into the memory that the peer has mapped at offset 0. The stream only carries the messages
// of sync; listen waits for these, and for the end of the stream.
type iomap struct {
	*stream
	marker byte // last byte of the last transfer of the next phase

	syncs chan struct{} // messages that have arrived
	ended chan struct{} // closed when no more messages can arrive
	err   error         // the cause; valid after ended
}

func newIOMap(s *stream) *iomap {
	s.setDeadline = s.conn.SetWriteDeadline
	m := &iomap{stream: s, syncs: make(chan struct{}, 1), ended: make(chan struct{})}
	go m.listen()
	return m
}

// listen returns when the connection ends.
func (m *iomap) listen() {
	defer close(m.ended)
	message := make([]byte, syncLen)
	for {
		if _, m.err = io.ReadFull(m.conn, message); m.err != nil {
			return
		}
		select {
		case m.syncs <- struct{}{}:
		default:
			m.err = errTurn
			return
		}
	}
}

// begin maps the memory. The peer learns that before it gets the message of sync.
func (m *iomap) begin(t *test) error {
	m.marker = 0
	m.mem.bytes[t.size-1] = 0xFF // a value that no marker has soon
	_, err := m.conn.Map(m.mem.bytes[:t.size], ib.RemoteWrite, 0)
	return err
}

// sync does not count as a transfer.
func (m *iomap) sync(send bool) error {
	if send {
		return m.write(make([]byte, syncLen))
	}
	limit := time.NewTimer(m.o.Timeout)
	defer limit.Stop()
	select {
	case <-m.syncs:
		return nil
	case <-m.ended:
		return m.err
	case <-limit.C:
		return os.ErrDeadlineExceeded
	}
}

// send writes the transfers of one phase. Only the last one is formatted, and ends with the marker.
func (m *iomap) send(t *test) error {
	b := m.mem.bytes[:t.size]
	for i := range t.transfers {
		if i == t.transfers-1 {
			b[t.size-1] = m.marker
			m.marker++
			if m.o.Verify {
				m.data.fill(b[:t.size-1])
			}
		}
		if err := m.writeAll(b); err != nil {
			return err
		}
		m.moved++
	}
	return nil
}

// writeAll writes one transfer.
func (m *iomap) writeAll(b []byte) error {
	for off := 0; off < len(b); {
		if err := m.tick(); err != nil {
			return err
		}
		n, err := m.conn.WriteAt(b[off:min(len(b), off+maxChunk)], int64(off))
		if err != nil {
			return err
		}
		off += n
	}
	return nil
}

// receive waits for the last transfer of a phase.
func (m *iomap) receive(t *test) error {
	if err := m.arrive(t.size-1, m.marker); err != nil {
		return err
	}
	m.marker++
	m.moved += int64(t.transfers)
	if !m.o.Verify {
		return nil
	}
	return m.data.check(m.mem.bytes[:t.size-1])
}

// The memory is polled without a pause for spinTime, then with pauses of at least pollTime. The C tool never pauses.
// With few processors, polling keeps the device from doing the work that is waited for: with pauses, transfers of 64
// bytes between two processes on two processors take less than half of the time.
const (
	spinTime = 20 * time.Microsecond
	pollTime = 5 * time.Microsecond
)

// arrive waits until byte i is the marker. If the end of the stream is seen, everything written before is there, too.
func (m *iomap) arrive(i int, marker byte) error {
	start := time.Now()
	for m.mem.load(i) != marker {
		select {
		case <-m.ended:
			if m.mem.load(i) == marker {
				return nil
			}
			return m.err
		default:
		}
		if time.Since(start) < spinTime {
			m.o.yield.Do()
		} else {
			time.Sleep(pollTime)
		}
	}
	return nil
}

func (m *iomap) end(t *test) error { return m.conn.Unmap(m.mem.bytes[:t.size]) }

// finish waits for the end of the peer's stream, which comes when the peer has received everything.
func (m *iomap) finish() error {
	if err := m.conn.CloseWrite(); err != nil {
		return err
	}
	limit := time.NewTimer(m.o.Timeout)
	defer limit.Stop()
	select {
	case <-m.ended:
	case <-limit.C:
		return os.ErrDeadlineExceeded
	}
	if m.err != io.EOF {
		return m.err
	}
	return nil
}
