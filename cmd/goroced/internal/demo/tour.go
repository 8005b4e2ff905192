package demo

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/goroce/goroce/ib"
)

// tourBytes is the size of the tour's messages: three packets at the path MTU of 1024.
const tourBytes = 2500

// Exchange is one stop of the tour: an operation with its packets.
type Exchange struct {
	Title   string   `json:"title"`
	About   string   `json:"-"`
	Result  string   `json:"result"`
	Tries   int      `json:"tries"` // how often it was run; the packets are those of the last time
	Packets []Packet `json:"packets"`
	locals  []local
}

// local is an event of a host's program.
type local struct {
	at   ib.Instant
	host string
	text string
	what moment
	last ib.PSN // of the client's requests that were posted before
}

// moment is the kind of a local event.
type moment uint8

const (
	posted    moment = iota + 1 // noted before the request is posted
	completed                   // of all requests that were posted before
)

var moments = [...]string{posted: "post ", completed: "completion: "}

// noter takes a note of a local event.
type noter func(s *side, what moment, text string)

// stop is an operation of the tour. do executes it, calls note for local events, and returns a description of the
// result.
type stop struct {
	title, about string
	do           func(ctx context.Context, p *pair, note noter) (string, error)
}

var stops = []stop{
	{"SEND", "A message goes into whatever buffer the receiver has posted for it. " +
		"It is cut into packets of the path MTU; " +
		"the last one asks for an acknowledgement.", send},
	{"RDMA WRITE",
		"The client writes into the server's memory, at an address that the server gave away together with a key. " +
			"No program runs on the server; only the acknowledgement says that it arrived.", write},
	{"RDMA READ", "The client fetches from the server's memory, again without any program there. The response is the " +
		"acknowledgement.", read},
	{"Atomics",
		"COMPARE & SWAP and FETCH & ADD change 8 bytes of the server's memory in one piece and return what was there " +
			"before.", atomics},
}

// patientTries limits how often an exchange is repeated until it loses a packet.
const patientTries = 200

// tour makes all stops. If packets are dropped, the first exchange is repeated until it has lost one.
func tour(ctx context.Context, p *pair, rep *Report) error {
	for i, s := range stops {
		e := &Exchange{Title: s.title, About: s.about}
		rep.Tour = append(rep.Tour, e)
		for e.Tries < 1 || i == 0 && p.opts.Drop > 0 && !e.lossy() && e.Tries < patientTries {
			if err := e.run(ctx, p, s); err != nil {
				return fmt.Errorf("%s: %w", s.title, err)
			}
		}
	}
	if p.opts.Pcap == nil {
		return nil
	}
	// A few longer messages for the capture.
	for i := range slots / 2 {
		wr := p.server.remote(ib.SendWR{Opcode: ib.WRWrite, SGL: p.client.sge(i*slotSize, slotSize)}, i*slotSize)
		if err := p.post(p.client, wr); err != nil {
			return err
		}
	}
	for range slots / 2 {
		if _, err := p.client.wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// run makes one stop and collects its packets.
func (e *Exchange) run(ctx context.Context, p *pair, s stop) (err error) {
	e.locals = nil
	e.Tries++
	if _, err := p.take(); err != nil { // packets that arrived after the last exchange
		return err
	}
	e.Result, err = s.do(ctx, p, func(s *side, what moment, text string) {
		e.locals = append(e.locals, local{p.rec.now(), s.name, moments[what] + text, what, p.client.last})
	})
	if err != nil {
		return err
	}
	if e.Packets, err = p.take(); err != nil {
		return err
	}
	var inOrder []Packet
	for _, r := range e.rows() {
		if r.packet != nil {
			inOrder = append(inOrder, *r.packet)
		}
	}
	e.Packets = inOrder
	return nil
}

// take returns the packets since the last call.
func (p *pair) take() ([]Packet, error) {
	if p.blind != nil {
		return nil, nil
	}
	return p.rec.take(p.client.last)
}

// lossy reports whether a packet was lost.
func (e *Exchange) lossy() bool {
	for _, p := range e.Packets {
		if p.Lost {
			return true
		}
	}
	return false
}

func send(ctx context.Context, p *pair, note noter) (string, error) {
	c, s := p.client, p.server
	fill(c.buf[tourOffset:], 'S')
	clear(s.buf[tourOffset:])
	if err := s.postRecv(tourOffset, 4096); err != nil {
		return "", err
	}
	note(s, posted, "RECV, room for 4096 B")
	note(c, posted, fmt.Sprintf("SEND %d B", tourBytes))
	if err := p.post(c, ib.SendWR{Opcode: ib.WRSend, SGL: c.sge(tourOffset, tourBytes)}); err != nil {
		return "", err
	}
	wc, err := s.wait(ctx)
	if err != nil {
		return "", err
	}
	note(s, completed, fmt.Sprintf("RECV, %d B", wc.ByteLen))
	if _, err := c.wait(ctx); err != nil {
		return "", err
	}
	note(c, completed, "SEND")
	if wc.ByteLen != tourBytes {
		return "", fmt.Errorf("%w: %d bytes arrived, %d were sent", ErrData, wc.ByteLen, tourBytes)
	}
	return fmt.Sprintf("%d bytes arrived, every one right", tourBytes), c.compare(s)
}

func write(ctx context.Context, p *pair, note noter) (string, error) {
	c, s := p.client, p.server
	fill(c.buf[tourOffset:], 'W')
	clear(s.buf[tourOffset:])
	note(c, posted, fmt.Sprintf("RDMA WRITE %d B", tourBytes))
	wr := s.remote(ib.SendWR{Opcode: ib.WRWrite, SGL: c.sge(tourOffset, tourBytes)}, tourOffset)
	if err := p.post(c, wr); err != nil {
		return "", err
	}
	if _, err := c.wait(ctx); err != nil {
		return "", err
	}
	note(c, completed, "RDMA WRITE")
	return fmt.Sprintf("%d bytes stand in the server's memory, every one right", tourBytes), c.compare(s)
}

func read(ctx context.Context, p *pair, note noter) (string, error) {
	c, s := p.client, p.server
	fill(s.buf[tourOffset:], 'R')
	clear(c.buf[tourOffset:])
	note(c, posted, fmt.Sprintf("RDMA READ %d B", tourBytes))
	wr := s.remote(ib.SendWR{Opcode: ib.WRRead, SGL: c.sge(tourOffset, tourBytes)}, tourOffset)
	if err := p.post(c, wr); err != nil {
		return "", err
	}
	if _, err := c.wait(ctx); err != nil {
		return "", err
	}
	note(c, completed, "RDMA READ")
	return fmt.Sprintf("%d bytes fetched, every one right", tourBytes), s.compare(c)
}

// atomics changes 41 to 42 with a CAS, and adds 58.
func atomics(ctx context.Context, p *pair, note noter) (string, error) {
	c, s := p.client, p.server
	word := s.buf[tourOffset:][:8]
	binary.NativeEndian.PutUint64(word, 41)
	s.meetDevice()
	for _, op := range []struct {
		wr   ib.SendWR
		text string
		was  uint64
	}{
		{ib.SendWR{Opcode: ib.WRCompareSwap, Compare: 41, Swap: 42}, "COMPARE & SWAP: if 41 then 42", 41},
		{ib.SendWR{Opcode: ib.WRFetchAdd, Swap: 58}, "FETCH & ADD: 58 more", 42},
	} {
		note(c, posted, op.text)
		op.wr.SGL = c.sge(tourOffset, 8)
		if err := p.post(c, s.remote(op.wr, tourOffset)); err != nil {
			return "", err
		}
		wc, err := c.wait(ctx)
		if err != nil {
			return "", err
		}
		was := binary.NativeEndian.Uint64(c.buf[tourOffset:])
		note(c, completed, fmt.Sprintf("%v, it was %d", wc.Opcode, was))
		if was != op.was {
			return "", fmt.Errorf("%v: %w: it returned %d, should have been %d", wc.Opcode, ErrData, was, op.was)
		}
	}
	s.meetDevice()
	if is := binary.NativeEndian.Uint64(word); is != 100 {
		return "", fmt.Errorf("FETCH & ADD: %w: the memory holds %d, should be 100", ErrData, is)
	}
	return "41 became 42, and 42 became 100; both old values came back right", nil
}

// meetDevice orders the program's accesses to its memory with those of the device. The completion at the other host
// does so already, but the race detector cannot see that, because a packet is no synchronization to it.
func (s *side) meetDevice() { _, _ = s.qp.Query() }

// fill writes a pattern that differs from itself at every offset.
func fill(b []byte, seed byte) {
	for i := range b {
		b[i] = seed + byte(i*7) + byte(i>>8)
	}
}

// compare checks that s has the bytes that the tour has sent from from.
func (from *side) compare(s *side) error {
	return compare(s.buf[tourOffset:][:tourBytes], from.buf[tourOffset:][:tourBytes])
}

// compare returns an error that names the first byte that differs.
func compare(got, want []byte) error {
	for i := range want {
		if got[i] != want[i] {
			return fmt.Errorf("%w: byte %d is %#02x, sent was %#02x", ErrData, i, got[i], want[i])
		}
	}
	return nil
}
