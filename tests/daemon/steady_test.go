package daemon

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/tests/require"
)

// steady is two clients that exchange checked data all the time.
type steady struct {
	testing.TB
	ends   [2]*tenant
	rounds atomic.Uint64
	cancel context.CancelFunc
	done   chan error
}

// piece is the size of what they exchange.
const piece = 64 << 10

// startSteady starts two clients, one of each daemon, that exchange data until the test ends.
func startSteady(t testing.TB, a, b *daemon) *steady {
	t.Helper()
	s := &steady{TB: t, done: make(chan error, 1)}
	for i, d := range []*daemon{a, b} {
		n, err := newTenant(d.socket, shape{size: 2 * piece, qps: 1})
		if err != nil {
			t.Fatal(err)
		}
		s.ends[i] = n
	}
	for i, n := range s.ends {
		if err := n.connect(s.ends[1-i].card(), steadily); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	go func() { s.done <- s.exchange(ctx) }()
	t.Cleanup(s.stop)
	s.goesOn(3)
	return s
}

// exchange sends messages alternately from either end, and checks each, until ctx ends.
func (s *steady) exchange(ctx context.Context) error {
	for number := uint64(1); ctx.Err() == nil; number++ {
		if err := s.pass(s.ends[number%2], s.ends[1-number%2], number); err != nil {
			return fmt.Errorf("message %d: %w", number, err)
		}
		s.rounds.Store(number)
	}
	return nil
}

// pass WRITEs a message from the first half of one end's memory to the second half of the
// other end's.
func (s *steady) pass(from, to *tenant, number uint64) error {
	if _, err := to.qps[0].PostRecv([]ib.RecvWR{{ID: number}}); err != nil {
		return err
	}
	fill(from.buf[:piece], number)
	_, err := from.qps[0].PostSend([]ib.SendWR{{ID: number, Opcode: ib.WRWriteImm, Flags: ib.SendSignaled,
		Imm: uint32(number),
		SGL: from.sge(0, piece), RemoteAddr: to.mr.Addr() + piece, RKey: to.mr.RKey()}})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, n := range []*tenant{to, from} {
		var wc [1]ib.WC
		if _, err := n.next(ctx, wc[:]); err != nil {
			return err
		}
		if err := wc[0].Err(); err != nil || wc[0].ID != number || n == to && wc[0].Imm != uint32(number) {
			return fmt.Errorf("completion %+v: %w", wc[0], err)
		}
	}
	return check(to.buf[piece:], number)
}

// goesOn waits until that many more messages have arrived.
func (s *steady) goesOn(more uint64) {
	s.Helper()
	from := s.rounds.Load()
	require.Until(s, "others exchange data", func() bool {
		select {
		case err := <-s.done:
			s.done <- nil
			s.Fatalf("the two clients that exchange data beside the test: %v", err)
		default:
		}
		return s.rounds.Load() >= from+more
	})
}

// stop ends the exchange, and checks that there was no error.
func (s *steady) stop() {
	s.Helper()
	s.cancel()
	if err := <-s.done; err != nil {
		s.Errorf("the two clients that exchange data beside the test: %v", err)
	}
	s.Logf("%d messages of %d bytes were exchanged beside it", s.rounds.Load(), piece)
	for _, n := range s.ends {
		n.close()
	}
}
