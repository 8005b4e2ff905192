package pingpong

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/goroce/goroce/ib"
)

// ErrSilent: the peer sent nothing for as long as Options.Timeout.
var ErrSilent = errors.New("the peer fell silent")

// game is the state of the play.
type game struct {
	*endpoint
	remote         *address
	sent, received int
	pending        uint64 // IDs of what has to complete before the next SEND
	page           int
}

// play sends and receives Options.Iters messages. The client begins.
func (e *endpoint) play(ctx context.Context, remote *address) error {
	g := &game{endpoint: e, remote: remote, pending: recvID, page: os.Getpagesize()}
	if e.o.Host != "" {
		if err := g.serve(); err != nil {
			return err
		}
	}
	var wcs [2]ib.WC
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

// serve sends the message.
func (g *game) serve() error {
	g.pending = recvID | sendID
	return g.post()
}

// take deals with one completion. When the last SEND is acknowledged and the
// peer's message is there it is our turn again.
func (g *game) take(wc *ib.WC) error {
	if g.over() {
		return nil // receives that a failed last SEND has flushed
	}
	if err := wc.Err(); err != nil {
		if g.peerHasLeft(wc) {
			g.sent++
			fmt.Fprintln(g.o.Log, "the last acknowledgement was lost, and the peer has left since: as far as this end can see, all went well")
			return nil
		}
		return g.explain(err)
	}
	switch wc.ID {
	case sendID:
		g.sent++
	case recvID:
		g.received++
		if err := g.look(wc); err != nil {
			return err
		}
	}
	g.pending &^= wc.ID
	if g.sent < g.o.Iters && g.pending == 0 {
		return g.serve()
	}
	return nil
}

// peerHasLeft reports whether a failed completion is that of our very last SEND,
// after the peer's last message. The C tool ends as soon as it has that SEND and
// the ACK of its own, so when its ACK is lost there is nobody to repeat it. For
// the client the peer's last message even proves that the SEND arrived: it is the
// answer. (Two goroce ends wait for one another.)
func (g *game) peerHasLeft(wc *ib.WC) bool {
	return wc.Status == ib.WCRetryExcErr && g.received == g.o.Iters && g.sent == g.o.Iters-1
}

// look checks a message and makes room for the next.
func (g *game) look(wc *ib.WC) error {
	if int(wc.ByteLen) != g.o.Size {
		return fmt.Errorf("message %d: %w: %d bytes arrived, should be %d; both ends need the same -s", g.received, ErrData, wc.ByteLen, g.o.Size)
	}
	if g.o.Check {
		if err := checkPattern(g.recvBuf, g.page); err != nil {
			return fmt.Errorf("message %d: %w", g.received, err)
		}
		wipe(g.recvBuf)
	}
	if g.posted--; g.posted <= 1 {
		return g.refill()
	}
	return nil
}

// spinTime is how long an end that polls does so before it sleeps after all. The
// C tool never sleeps; where processors are few that keeps the peer, the devices
// and everybody else from doing what it waits for.
const spinTime = 200 * time.Microsecond

// wait returns at least one completion.
func (g *game) wait(ctx context.Context, wcs []ib.WC) (int, error) {
	start := time.Now()
	for {
		n, err := g.cq.Poll(wcs)
		if n > 0 || err != nil {
			return n, err
		}
		if !g.o.Events && time.Since(start) < spinTime {
			runtime.Gosched()
			continue
		}
		if err := g.sleep(ctx); err != nil {
			return 0, err
		}
	}
}

// sleep waits for an event and asks for the next. It may be that of a completion
// which was polled before. The caller polls again, as completions that came before
// Arm make no event.
func (g *game) sleep(ctx context.Context) error {
	wait, cancel := context.WithTimeout(ctx, g.o.Timeout)
	defer cancel()
	_, err := g.channel.Wait(wait)
	switch {
	case err == nil:
		return g.cq.Arm(false)
	case ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded):
		return g.silent()
	}
	return err
}

func (g *game) silent() error {
	return fmt.Errorf("%w: nothing from %s for %v", ErrSilent, g.remote.gid.Addr(), g.o.Timeout)
}

// explain adds to a failed completion what it most likely means.
func (g *game) explain(err error) error {
	peer := g.remote.gid.Addr()
	var wc *ib.WCError
	if !errors.As(err, &wc) {
		return err
	}
	switch wc.Status {
	case ib.WCRetryExcErr:
		return fmt.Errorf("%s does not answer on UDP port 4791: %w; look for a firewall, a router on the way "+
			"(packets have hop limit 1, like the C tool's) or a wrong GID (-g)", peer, err)
	case ib.WCLocLenErr, ib.WCRemInvReqErr:
		return fmt.Errorf("%s: %w; both ends need the same size (-s) and path MTU (-m)", peer, err)
	}
	return fmt.Errorf("%s: %w", peer, err)
}
