package pingpong

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/goroce/goroce/cmd/goroced/internal/pathmtu"
	"github.com/goroce/goroce/cmd/goroced/internal/waiting"
	"github.com/goroce/goroce/ib"
)

// ErrSilent: the peer has sent nothing for Options.Timeout.
var ErrSilent = errors.New("the peer fell silent")

// game is the state of the ping-pong. Each queue pair plays on its own; they stop when all together have sent and
// received enough.
type game struct {
	*endpoint
	remote         []address
	sent, received int
	pending        []uint64 // IDs of the requests that must complete before a queue pair's next SEND
	page           int
}

// play sends and receives Options.Iters messages. The client starts.
func (e *endpoint) play(ctx context.Context, remote []address) error {
	g := &game{endpoint: e, remote: remote, pending: make([]uint64, len(e.qps)), page: os.Getpagesize()}
	for i := range g.qps {
		g.pending[i] = recvID
		if e.o.Host == "" {
			continue
		}
		if err := g.serve(i); err != nil {
			return err
		}
	}
	var wcs [16]ib.WC
	for !g.over() {
		n, err := g.wait(ctx, wcs[:])
		if err != nil {
			return fmt.Errorf("%w; %d of %d messages were sent and %d received", err, g.sent, e.o.Iters, g.received)
		}
		for i := range wcs[:n] {
			if err := g.take(&wcs[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (g *game) over() bool { return g.sent >= g.o.Iters && g.received >= g.o.Iters }

// serve sends the message of a queue pair.
func (g *game) serve(i int) error {
	g.pending[i] = recvID | sendID
	return g.post(i)
}

// take handles one completion. When a queue pair's last SEND is complete and the peer's message has arrived, it sends
// again.
func (g *game) take(wc *ib.WC) error {
	if g.over() {
		return nil // receives flushed after a failed last SEND, and those beyond Options.Iters
	}
	if err := wc.Err(); err != nil {
		if g.peerHasLeft(wc) {
			g.sent++
			fmt.Fprintln(g.o.Log,
				"the last acknowledgement was lost, and the peer has left since: as far as this end can see, all "+
					"went well")
			return nil
		}
		return g.explain(err)
	}
	i := slices.IndexFunc(g.qps, func(qp ib.QP) bool { return qp.Num() == wc.QPN })
	if i < 0 {
		return fmt.Errorf("a completion is of QP %#x, which is none of ours", uint32(wc.QPN))
	}
	kind := wc.ID & kindIDs
	switch kind {
	case sendID:
		g.sent++
	case recvID:
		g.received++
		if err := g.look(i, wc); err != nil {
			return err
		}
	}
	g.pending[i] &^= kind
	if g.sent < g.o.Iters && g.pending[i] == 0 {
		return g.serve(i)
	}
	return nil
}

// peerHasLeft reports whether a failed completion is the very last SEND of a queue pair, after the peer's last message.
// The C tool exits as soon as it has received that SEND and the ACK of its own, so if the ACK of ours is lost, nobody
// repeats it. At the client, the peer's last message even proves that the SEND has arrived, because it answers it. (Two
// goroce ends wait for one another.)
func (g *game) peerHasLeft(wc *ib.WC) bool {
	return wc.Status == ib.WCRetryExcErr && g.received >= g.o.Iters && g.sent >= g.o.Iters-g.o.NumQP
}

// look checks a message and frees its memory for the next one.
func (g *game) look(i int, wc *ib.WC) error {
	if got := int(wc.ByteLen) - g.headroom; got != g.o.Size {
		return fmt.Errorf("message %d: %w: %d bytes arrived, should be %d; both ends need the same -s", g.received,
			ErrData, got, g.o.Size)
	}
	slot := int(wc.ID >> slotBit)
	if g.o.Check {
		if err := g.check(slot, &g.remote[i], wc); err != nil {
			return fmt.Errorf("message %d: %w", g.received, err)
		}
	}
	g.free = append(g.free, slot)
	if g.o.RxDepth-len(g.free) <= g.o.NumQP {
		return g.refill()
	}
	return nil
}

// check compares all bytes that a receive has filled.
func (g *game) check(slot int, remote *address, wc *ib.WC) error {
	grh, message := g.mem.area(slot)
	if g.datagrams {
		from, err := ib.AHFromWC(g.gids, wc, grh)
		if err != nil {
			return err
		}
		if from.DGID != remote.gid || wc.SrcQP != remote.qpn {
			return fmt.Errorf("%w: the datagram is of QP %#x at %v, not of the peer's QP %#x at %v; has another "+
				"program been sending here?",
				ErrData, uint32(wc.SrcQP), from.DGID.Addr(), uint32(remote.qpn), remote.gid.Addr())
		}
	}
	if err := checkPattern(message, g.fill, g.page); err != nil {
		return err
	}
	wipe(grh)
	wipe(message)
	return nil
}

// spinTime is how long an end polls before it sleeps. The C tool never sleeps; with few processors that keeps the peer
// and the devices from doing what it waits for.
const spinTime = 200 * time.Microsecond

// wait waits for at least one completion.
func (g *game) wait(ctx context.Context, wcs []ib.WC) (int, error) {
	start := time.Now()
	for {
		n, err := g.cq.Poll(wcs)
		if n > 0 || err != nil {
			return n, err
		}
		if !g.o.Events && time.Since(start) < spinTime {
			g.o.yield.Do()
			continue
		}
		return g.sleep(ctx, wcs)
	}
}

// sleep waits for at least one completion, up to Options.Timeout.
func (g *game) sleep(ctx context.Context, wcs []ib.WC) (int, error) {
	n, err := waiting.Completions(ctx, g.cq, wcs, g.o.Timeout, g.o.Log, "a message of %v, %v at most",
		g.remote[0].gid.Addr(), g.o.Timeout)
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return 0, g.silent()
	}
	return n, err
}

func (g *game) silent() error {
	err := fmt.Errorf("%w: nothing from %s for %v", ErrSilent, g.remote[0].gid.Addr(), g.o.Timeout)
	if g.silence == "" {
		return err
	}
	return fmt.Errorf("%w (%s; if nothing ever arrives look for a firewall on UDP port 4791, and both ends need the "+
		"same service, %s)",
		err, g.silence, g.agree)
}

// explain adds the most likely cause to the error of a failed completion.
func (g *game) explain(err error) error {
	peer := g.remote[0].gid.Addr()
	var wc *ib.WCError
	if !errors.As(err, &wc) {
		return err
	}
	switch wc.Status {
	case ib.WCRetryExcErr:
		return fmt.Errorf("%s does not answer on UDP port 4791: %w; look for a firewall, a router on the way "+
			"(packets have hop limit 1, like the C tool's), a wrong GID (-g) or another service there (--service)%s",
			peer, err, pathmtu.Hint(g.o.MTU))
	case ib.WCLocLenErr, ib.WCRemInvReqErr:
		return fmt.Errorf("%s: %w; both ends need the same %s", peer, err, g.agree)
	}
	return fmt.Errorf("%s: %w", peer, err)
}
