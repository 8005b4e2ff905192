package perf

import (
	"encoding/binary"
	"time"

	"github.com/goroce/goroce/ib"
)

// The shaped loop sends messages as classic WRITEs: FIRST, MIDDLE and LAST, of
// which FIRST is longer by a RETH, or an ONLY. The first byte of a frame is the
// length of its headers.

const (
	// shapedWindow is what the shaped loop keeps in flight, in bytes of payload.
	shapedWindow = 1 << 20
	// ackMessages is how many messages an acknowledgement may stand for.
	ackMessages = 16
	// patience is how long the sender waits for an acknowledgement before it
	// takes what is in flight for lost.
	patience = 5 * time.Millisecond
)

// pathMTU is the path MTU of a wire with that IP MTU.
func pathMTU(mtu int) int { return int(ib.MTUFor(mtu)) }

// packets is how many packets carry a message.
func packets(size, mtu int) int { return max((size+mtu-1)/mtu, 1) }

// shape returns the payloads of the packets of a message, run by run: those of a
// run make frames of one size, and at most one shorter. Messages of one packet
// share a run.
func shape(size, mtu int) [][]int {
	if size <= mtu {
		run := make([]int, min(runSegments, runBytes/(size+firstHeader+crcLen)))
		for i := range run {
			run[i] = size
		}
		return [][]int{run}
	}
	var runs [][]int
	first, bytes := 0, 0 // sizes of the run's first frame and of all of it
	open := false
	for header := firstHeader; size > 0; header = middleHeader {
		payload := min(size, mtu)
		frame := header + payload + crcLen
		if !open || bytes+frame > runBytes {
			runs, first, bytes = append(runs, nil), frame, 0
		}
		last := len(runs) - 1
		runs[last] = append(runs[last], payload)
		bytes += frame
		open = frame == first && len(runs[last]) < runSegments
		size -= payload
	}
	return runs
}

// shapedSender keeps a window of messages in flight.
type shapedSender struct {
	*socket
	p        *peer
	payload  []byte // of one message
	buf      []byte // of a run
	acks     []byte // received ones
	inFlight int
	acked    uint64 // payload bytes, as the receiver last said
}

func shapedSend(j *Job, p *peer) (Result, error) {
	sock, err := newSocket(j)
	if err != nil {
		return Result{}, err
	}
	defer sock.close()
	s := &shapedSender{socket: sock, p: p, payload: make([]byte, j.Size),
		buf: make([]byte, 1<<16), acks: make([]byte, 1<<16)}
	runs := shape(j.Size, pathMTU(j.MTU))
	m, err := p.start(j)
	if err != nil {
		return Result{}, err
	}
	for !p.ended.Load() {
		at := 0
		for _, run := range runs {
			if at, err = s.run(run, at); err == nil {
				err = s.wait()
			}
			if err != nil {
				return Result{}, err
			}
		}
		m.add(0)
	}
	p.finish()
	return m.result()
}

// run sends a run that begins at that byte of a message, and returns where the
// next one does.
func (s *shapedSender) run(payloads []int, at int) (int, error) {
	bytes, segment, at := s.fill(payloads, at)
	return at, s.send(s.buf[:bytes], segment)
}

// fill makes the run, and returns its length, the size of its segments, and where
// the next one begins.
func (s *shapedSender) fill(payloads []int, at int) (bytes, segment, next int) {
	for _, n := range payloads {
		header := middleHeader
		if at == 0 || at == len(s.payload) {
			header, at = firstHeader, 0
		}
		frame := s.buf[bytes : bytes+header+n+crcLen]
		frame[0] = byte(header)
		at += copy(frame[header:header+n], s.payload[at:])
		putCRC(frame)
		s.inFlight += n
		bytes += len(frame)
		segment = max(segment, len(frame))
	}
	return bytes, segment, at
}

// wait takes acknowledgements until there is room in the window for a run.
func (s *shapedSender) wait() error {
	for began := time.Now(); s.inFlight > shapedWindow/2; {
		n, _, err := s.recv(s.acks)
		switch {
		case err != nil:
			return err
		case n >= ackLen:
			latest := s.acks[n-ackLen : n] // GRO may have merged several
			if err := checkCRC(latest); err != nil {
				return err
			}
			acked := binary.LittleEndian.Uint64(latest[ackedAt:])
			s.inFlight = max(s.inFlight-int(acked-s.acked), 0)
			s.acked = acked
		case s.inFlight+runBytes <= shapedWindow || s.p.ended.Load():
			return nil
		case time.Since(began) > patience:
			s.inFlight = 0
		}
	}
	return nil
}

// ackedAt is where an acknowledgement tells the bytes received, in 8 bytes.
const ackedAt = 4

// shapedReceiver copies payload out and acknowledges it.
type shapedReceiver struct {
	*socket
	memory          []byte // of one message
	at              int    // where the next payload goes
	received, acked uint64 // payload bytes
	ack             [ackLen]byte
}

func shapedReceive(j *Job, p *peer) (Result, error) {
	sock, err := newSocket(j)
	if err != nil {
		return Result{}, err
	}
	defer sock.close()
	r := &shapedReceiver{socket: sock, memory: make([]byte, j.Size)}
	buf := make([]byte, 1<<16)
	every := uint64(min(ackMessages*j.Size, shapedWindow/4))
	m, err := p.start(j)
	if err != nil {
		return Result{}, err
	}
	for !m.done && !p.ended.Load() {
		n, segment, err := r.recv(buf)
		before := r.received
		if err == nil {
			err = r.take(buf[:n], segment)
		}
		if waiting := r.received - r.acked; err == nil && (waiting >= every || n == 0 && waiting > 0) {
			err = r.acknowledge()
		}
		if err != nil {
			return Result{}, err
		}
		m.add(int(r.received - before))
	}
	p.finish()
	result, err := m.result()
	result.Messages /= float64(j.Size)
	return result.of(j.Size, packets(j.Size, pathMTU(j.MTU))), err
}

// take places the payload of a run.
func (r *shapedReceiver) take(run []byte, segment int) error {
	for at := 0; at < len(run); at += segment {
		frame := run[at:min(at+segment, len(run))]
		if err := checkCRC(frame); err != nil {
			return err
		}
		header := int(frame[0])
		payload := frame[header : len(frame)-crcLen]
		if header == firstHeader {
			r.at = 0
		}
		r.at += copy(r.memory[r.at:], payload) // after a loss, wherever it fits
		r.received += uint64(len(payload))
	}
	return nil
}

func (r *shapedReceiver) acknowledge() error {
	binary.LittleEndian.PutUint64(r.ack[ackedAt:], r.received)
	putCRC(r.ack[:])
	r.acked = r.received
	return r.send(r.ack[:], ackLen)
}
