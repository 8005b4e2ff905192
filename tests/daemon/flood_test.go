package daemon

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/tests/require"
)

// Layout of the memory of a flood and its target. They send WRITEs to the first half of the
// peer's memory, READs from it, and SENDs to the second half.
const (
	floodMemory = 256 << 10
	floodWrite  = 16 << 10
	floodSend   = 1 << 10
)

// flood is a child that sends as fast as it can until it is killed.
func flood(c *parent) {
	n, err := newTenant(c.Socket, shape{size: floodMemory, process: c.Process, srq: c.SRQ, qps: c.QPs})
	must(err)
	c.tell(n.card())
	var peer card
	c.hear(&peer)
	must(n.connect(peer, c.timing()))
	for _, q := range n.qps {
		for range depth / c.QPs {
			must(n.receive(q))
		}
	}
	c.tell("connected")
	rng := rand.New(rand.NewPCG(c.Seed, 1))
	for i := range n.qps {
		for range c.Window {
			must(n.floodOne(rng, i, peer))
		}
	}
	wcs := make([]ib.WC, 64)
	for {
		got, err := n.next(context.Background(), wcs)
		must(err)
		for _, wc := range wcs[:got] {
			switch {
			case wc.Err() != nil: // the peer's QP has failed
			case wc.ID == receipt:
				must(n.receive(n.qps[n.index(wc.QPN)]))
			default:
				must(n.floodOne(rng, n.index(wc.QPN), peer))
			}
		}
	}
}

// receipt is the ID of receives; others are those of sends.
const receipt = 1 << 40

func (n *tenant) receive(q ib.QP) error {
	list := []ib.RecvWR{{ID: receipt, SGL: n.sge(floodMemory/2, floodSend)}}
	var err error
	if n.srq != nil {
		_, err = n.srq.PostRecv(list)
	} else {
		_, err = q.PostRecv(list)
	}
	return err
}

func (n *tenant) index(num ib.QPN) int {
	return slices.IndexFunc(n.qps, func(q ib.QP) bool { return q.Num() == num })
}

// floodOne posts a random request on a QP.
func (n *tenant) floodOne(rng *rand.Rand, i int, peer card) error {
	wr := ib.SendWR{ID: 1, Flags: ib.SendSignaled, SGL: n.sge(0, floodWrite), RemoteAddr: peer.Addr, RKey: peer.Key}
	switch rng.IntN(4) {
	case 0:
		wr.Opcode = ib.WRSend
		wr.SGL = n.sge(0, floodSend)
	case 1:
		wr.Opcode = ib.WRRead
	default:
		wr.Opcode = ib.WRWrite
	}
	_, err := n.qps[i].PostSend([]ib.SendWR{wr})
	return err
}

// target is the peer of a flood, in this process. It sends, too.
type target struct {
	testing.TB
	*tenant
	job
	received atomic.Uint64
	ended    chan error // gets nil when the requesters of all QPs have run out of retries
}

// aim creates a target with new QPs of n for a flood, and exchanges cards with the flood.
func aim(t testing.TB, n *tenant, c *child, j job) *target {
	t.Helper()
	var peer card
	c.hear(&peer)
	n.qps = nil
	err := n.addQPs(len(peer.QPNs))
	if err == nil {
		err = n.connect(peer, j.timing())
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range n.qps {
		for range depth {
			if err := n.receive(q); err != nil {
				t.Fatal(err)
			}
		}
	}
	g := &target{TB: t, tenant: n, job: j, ended: make(chan error, 1)}
	c.tell(n.card())
	var connected string
	c.hear(&connected)
	go func() { g.ended <- g.run(rand.New(rand.NewPCG(j.Seed, 2)), peer) }()
	return g
}

// run sends until the requesters of all QPs have run out of retries.
func (g *target) run(rng *rand.Rand, peer card) error {
	for i := range g.qps {
		for range g.Window / 2 {
			if err := g.floodOne(rng, i, peer); err != nil {
				return err
			}
		}
	}
	wcs := make([]ib.WC, 64)
	for gaveUp := 0; gaveUp < len(g.qps); {
		got, err := g.next(context.Background(), wcs)
		if err != nil {
			return err
		}
		for _, wc := range wcs[:got] {
			// A process's memory is freed before the QPs that use it are closed.
			switch {
			case wc.Status == ib.WCRetryExcErr, g.Process &&
				(wc.Status == ib.WCRemAccessErr || wc.Status == ib.WCRemOpErr):
				gaveUp++
			case wc.Status == ib.WCWRFlushErr:
			case wc.Err() != nil:
				return fmt.Errorf("a peer of a client that is gone: %w", wc.Err())
			case wc.ID == receipt:
				g.received.Add(1)
				err = g.receive(g.qps[g.index(wc.QPN)])
			default:
				err = g.floodOne(rng, g.index(wc.QPN), peer)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// hears waits until that many more messages have arrived.
func (g *target) hears(more uint64) {
	g.Helper()
	from := g.received.Load()
	require.Until(g, "messages of the child", func() bool { return g.received.Load() >= from+more })
}

// ends waits until all requesters have run out of retries, checks that there was no other error,
// and closes the QPs.
func (g *target) ends() {
	g.Helper()
	if err := <-g.ended; err != nil {
		g.Error(err)
	}
	for _, q := range g.qps {
		if err := q.Close(); err != nil {
			g.Error(err)
		}
	}
	g.drain()
}

// drain polls the completions that closed QPs have left.
func (n *tenant) drain() {
	wcs := make([]ib.WC, 64)
	for {
		if got, err := n.cq.Poll(wcs); err != nil || got == 0 {
			return
		}
	}
}

// reachable reports whether a daemon may read the memory of this user's processes.
func reachable() bool {
	scope, err := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope")
	return os.Geteuid() == 0 || err != nil || strings.TrimSpace(string(scope)) == "0"
}
