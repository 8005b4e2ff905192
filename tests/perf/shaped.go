package perf

import (
	"encoding/binary"
	"time"

	"github.com/goroce/goroce/ib"
)

// The shaped loop sends messages in the packets of classic WRITEs: FIRST, which is longer by a RETH, MIDDLE and LAST,
// or an ONLY. The first byte of a frame is the length of its headers.

const (
	// shapedWindow is the number of payload bytes that the shaped loop keeps in flight.
	shapedWindow = 1 << 20
	// ackMessages is the largest number of messages that one acknowledgement covers.
	ackMessages = 16
	// patience is how long the sender waits for an acknowledgement before it assumes that everything in flight is lost.
	patience = 5 * time.Millisecond
)

// pathMTU returns the path MTU for an IP MTU.
func pathMTU(mtu int) int { return int(ib.MTUFor(mtu)) }

// packets returns how many packets a message has.
func packets(size, mtu int) int { return max((size+mtu-1)/mtu, 1) }

// shape returns the payload sizes of a message's packets, run by run. The frames of a run have one size, except that
// one may be shorter. Messages of one packet share a run.
func shape(size, mtu int) [][]int {
	if size <= mtu {
		run := make([]int, min(runSegments, runBytes/(size+firstHeader+crcLen)))
		for i := range run {
			run[i] = size
		}
		return [][]int{run}
	}
	var runs [][]int
	first, bytes := 0, 0 // sizes of the first frame and of the whole run
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
	acks     []byte // received acknowledgements
	inFlight int
	acked    uint64 // payload bytes, from the last acknowledgement
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
	return m.result(), nil
}

// run sends a run that begins at byte at of a message, and returns the start of the next one.
func (s *shapedSender) run(payloads []int, at int) (int, error) {
	bytes, segment, at := s.fill(payloads, at)
	return at, s.send(s.buf[:bytes], segment)
}

// fill builds a run. It returns its length, the size of its segments, and the start of the next run.
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

// wait reads acknowledgements until the window has room for a run.
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

// ackedAt is the offset of the number of received bytes, 8 bytes, in an acknowledgement.
const ackedAt = 4

// shapedReceiver copies the payload out and acknowledges it.
type shapedReceiver struct {
	*socket
	memory          []byte // of one message
	at              int    // offset of the next payload
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
	result := m.result()
	result.Messages /= float64(j.Size)
	return result.of(j.Size, packets(j.Size, pathMTU(j.MTU))), nil
}

// take copies the payload of a run.
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
		r.at += copy(r.memory[r.at:], payload) // after a loss it may not fit
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
