package demo

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/goroce/goroce/ib"
)

// The measurement of bandwidth keeps this number of messages of slotSize bytes in flight.
const (
	slots    = 16
	slotSize = 64 << 10
)

// Bandwidth is the result for RDMA WRITEs of 64 KiB.
type Bandwidth struct {
	Size           int     `json:"message_bytes"`
	InFlight       int     `json:"in_flight"`
	Messages       uint64  `json:"messages"`
	Seconds        float64 `json:"seconds"`
	BytesPerSecond float64 `json:"bytes_per_second"`
}

// Latency is the round-trip time of 8-byte SENDs.
type Latency struct {
	Size     int     `json:"message_bytes"`
	Messages uint64  `json:"messages"` // in both directions together
	MedianUS float64 `json:"round_trip_median_us"`
	P99US    float64 `json:"round_trip_p99_us"`
}

func measure(ctx context.Context, p *pair, rep *Report) error {
	if err := p.bandwidth(ctx, &rep.Write); err != nil {
		return fmt.Errorf("RDMA WRITE: %w", err)
	}
	if err := p.latency(ctx, &rep.PingPong); err != nil {
		return fmt.Errorf("ping-pong: %w", err)
	}
	return nil
}

// bandwidth writes the slots in turn. Each message begins with its number, so that at the end the server's memory shows
// which message has arrived last.
func (p *pair) bandwidth(ctx context.Context, b *Bandwidth) error {
	c, s := p.client, p.server
	fill(c.buf[:tourOffset], 'B')
	post := func(n uint64) error {
		off := int(n%slots) * slotSize
		binary.NativeEndian.PutUint64(c.buf[off:], n)
		return p.post(c, s.remote(ib.SendWR{ID: n, Opcode: ib.WRWrite, SGL: c.sge(off, slotSize)}, off))
	}
	start := time.Now()
	posted := uint64(0)
	for ; posted < slots; posted++ {
		if err := post(posted); err != nil {
			return err
		}
	}
	for done := uint64(0); done < posted; done++ {
		wc, err := c.wait(ctx)
		if err != nil {
			return err
		}
		if wc.ID != done {
			return fmt.Errorf("%w: message %d completed when it was the turn of %d", ErrData, wc.ID, done)
		}
		if time.Since(start) < p.opts.Measure {
			if err := post(posted); err != nil {
				return err
			}
			posted++
		}
	}
	took := time.Since(start).Seconds()
	*b = Bandwidth{Size: slotSize, InFlight: slots, Messages: posted, Seconds: took,
		BytesPerSecond: float64(posted*slotSize) / took}
	return compare(s.buf[:tourOffset], c.buf[:tourOffset])
}

// latency sends numbers to the server and back.
func (p *pair) latency(ctx context.Context, l *Latency) error {
	const size, most = 8, 100_000
	samples := make([]time.Duration, 0, most)
	end := time.Now().Add(p.opts.Measure / 3)
	for n := uint64(0); n < most && (n == 0 || time.Now().Before(end)); n++ {
		start := time.Now()
		for _, hop := range [][2]*side{{p.client, p.server}, {p.server, p.client}} {
			if err := p.sendNumber(ctx, hop[0], hop[1], n); err != nil {
				return err
			}
		}
		samples = append(samples, time.Since(start))
	}
	slices.Sort(samples)
	us := func(i int) float64 { return float64(samples[i].Nanoseconds()) / 1e3 }
	*l = Latency{Size: size, Messages: uint64(2 * len(samples)), MedianUS: us(len(samples) / 2),
		P99US: us(len(samples) * 99 / 100)}
	return nil
}

// sendNumber sends n from one host to the other and waits until it has arrived. The next call polls the sender's
// completion.
func (p *pair) sendNumber(ctx context.Context, from, to *side, n uint64) error {
	if err := to.postRecv(tourOffset, 8); err != nil {
		return err
	}
	number := binary.NativeEndian.AppendUint64(nil, n)
	if err := p.post(from, ib.SendWR{Opcode: ib.WRSend, Flags: ib.SendInline, Inline: number}); err != nil {
		return err
	}
	for {
		wc, err := to.wait(ctx)
		if err != nil {
			return err
		}
		if wc.Opcode == ib.WCRecv {
			return compare(to.buf[tourOffset:][:8], number)
		}
	}
}
