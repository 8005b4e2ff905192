package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/qp/ring"
	"github.com/goroce/goroce/roce/daemon/abi"
	"github.com/goroce/goroce/roce/daemon/client"
	"github.com/goroce/goroce/roce/internal/engine"
	"github.com/goroce/goroce/tests/require"
)

// pairClient is a client with two connected QPs, and memory for both.
type pairClient struct {
	t    *testing.T
	dev  *client.Device
	cq   ib.CQ
	qps  [2]ib.QP
	buf  []byte
	mr   ib.MR
	slow ib.MR // memory of the process, not a memfd
}

const pairBytes = 32 << 10

func newPairClient(t *testing.T, socket string) *pairClient {
	t.Helper()
	dev, err := client.Dial(t.Context(), client.Options{Socket: socket})
	must(t, err)
	c := &pairClient{t: t, dev: dev}
	pd, err := dev.AllocPD()
	must(t, err)
	c.buf, err = client.Alloc(2 * pairBytes)
	must(t, err)
	t.Cleanup(func() {
		dev.Close()
		must(t, client.Free(c.buf))
	})
	const rights = ib.LocalWrite | ib.RemoteWrite | ib.RemoteRead
	c.mr, err = pd.RegMR(ib.MRInit{Buf: c.buf, Access: rights})
	must(t, err)
	pages, err := unix.Mmap(-1, 0, pairBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	must(t, err)
	t.Cleanup(func() { _ = unix.Munmap(pages) })
	c.slow, err = pd.RegMR(ib.MRInit{Buf: pages, Access: rights})
	must(t, err)
	c.cq, err = dev.CreateCQ(ib.CQInit{Entries: 64})
	must(t, err)
	for i := range c.qps {
		c.qps[i], err = pd.CreateQP(ib.QPInit{Type: ib.RC, SendCQ: c.cq, RecvCQ: c.cq,
			Cap: ib.QPCap{MaxSendWR: 8, MaxRecvWR: 8, MaxSendSGE: 2, MaxRecvSGE: 1}})
		must(t, err)
	}
	for i, q := range c.qps {
		c.connect(q, c.qps[1-i].Num())
	}
	return c
}

func (c *pairClient) connect(q ib.QP, peer ib.QPN) {
	c.t.Helper()
	gids, err := c.dev.GIDs(1)
	must(c.t, err)
	attr := ib.QPAttr{PathMTU: ib.MTU1024, DestQPN: peer, MaxRdAtomic: 4, MaxDestRdAtomic: 4, Timeout: 18, RetryCnt: 7,
		RNRRetry:    7,
		MinRNRTimer: 12, AH: ib.AHAttr{DGID: gids[0].GID, Port: 1}, Port: 1, Access: ib.RemoteWrite | ib.RemoteRead}
	must(c.t, ib.ModifyTo(q, attr, ib.StateInit, ib.StateRTR, ib.StateRTS))
}

// write posts a WRITE of the first half of the memory to the second half. If mixed is set the
// last part of the data comes from the process's own memory.
func (c *pairClient) write(mixed bool) error {
	sgl := []ib.SGE{{Addr: c.mr.Addr(), Length: pairBytes, LKey: c.mr.LKey()}}
	if mixed {
		sgl = []ib.SGE{{Addr: c.slow.Addr(), Length: pairBytes / 2, LKey: c.slow.LKey()},
			{Addr: c.mr.Addr(), Length: pairBytes / 2, LKey: c.mr.LKey()}}
	}
	_, err := c.qps[0].PostSend([]ib.SendWR{{Opcode: ib.WRWrite, Flags: ib.SendSignaled, SGL: sgl,
		RemoteAddr: c.mr.Addr() + pairBytes, RKey: c.mr.RKey()}})
	return err
}

// completion waits for a completion.
func (c *pairClient) completion() (wc [1]ib.WC, err error) {
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); {
		if n, err := c.cq.Poll(wc[:]); n > 0 || err != nil {
			return wc, err
		}
	}
	return wc, context.DeadlineExceeded
}

// exchange transfers data and checks it.
func (c *pairClient) exchange(round int) {
	c.t.Helper()
	for i := range pairBytes {
		c.buf[i] = byte(i*7 + round)
	}
	must(c.t, c.write(false))
	wc, err := c.completion()
	must(c.t, errors.Join(err, wc[0].Err()))
	if !bytes.Equal(c.buf[:pairBytes], c.buf[pairBytes:]) {
		c.t.Fatalf("round %d: other bytes arrive than were sent", round)
	}
}

// TestMemoryFault checks that a fault of the daemon's access to a client's shared memory drops
// that client, is counted, and does not affect other clients.
func TestMemoryFault(t *testing.T) {
	faultsEnd = false
	defer func() { faultsEnd = true }()
	rings := func(k abi.Kind) func(*session) [][]byte {
		return func(c *session) (list [][]byte) {
			for _, o := range c.objects {
				if o.kind == k {
					list = append(list, o.rings.buf)
				}
			}
			return list
		}
	}
	memory := func(c *session) (list [][]byte) {
		for _, f := range c.files.list {
			for _, e := range f.extents {
				list = append(list, e.pages)
			}
		}
		return list
	}
	write := func(c *pairClient) { _ = c.write(false) }
	for what, x := range map[string]struct {
		gone func(*session) [][]byte // returns the memory to make inaccessible
		then func(*pairClient)       // makes the daemon access it
	}{
		"rings of QPs, when a request is posted": {rings(abi.KindQP), write},
		"rings of QPs, when they are closed":     {rings(abi.KindQP), func(c *pairClient) { c.dev.Close() }},
		"rings of QPs, when they go to ERR": {rings(abi.KindQP), func(c *pairClient) {
			_ = c.qps[0].Modify(ib.QPAttr{State: ib.StateErr}, ib.AttrState)
		}},
		"a CQ, when a request completes": {rings(abi.KindCQ), write},
		"doorbells":                      {func(c *session) [][]byte { return [][]byte{c.shared.buf} }, write},
		"a region, read and written":     {memory, write},
		"a region, read by a worker":     {memory, func(c *pairClient) { _ = c.write(true) }},
	} {
		for shards := 1; shards <= 2; shards++ {
			t.Run(fmt.Sprintf("%s/shards %d", what, shards),
				func(t *testing.T) { memoryFault(t, shards, x.gone, x.then) })
		}
	}
}

func memoryFault(t *testing.T, shards int, gone func(*session) [][]byte, then func(*pairClient)) {
	usual := handlers[abi.OpClock]
	defer func() { handlers[abi.OpClock] = usual }()
	s, listener := newShardedServer(t, shards)
	s.SetProcesses(true, true)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	handlers[abi.OpClock] = func(c *session, body []byte, fds []int) (reply, error) {
		for _, b := range gone(c) {
			must(t, guard(b))
		}
		return usual(c, body, fds)
	}
	go func() { ended <- s.Serve(ctx, listener) }()
	other, victim := newPairClient(t, listener.Addr().String()), newPairClient(t, listener.Addr().String())
	other.exchange(0)
	victim.exchange(0)
	// A shard that looks at the doorbells at once drops the client before the reply.
	if _, err := victim.dev.Clock(); !errors.Is(err, client.ErrGone) {
		must(t, err)
	}
	then(victim)
	for round := 1; s.Totals().Faults == 0 || s.Clients() > 1; round++ {
		other.exchange(round)
		if round == 1e6 {
			t.Fatalf("%d faults, %d clients; want some", s.Totals().Faults, s.Clients())
		}
	}
	for round := range 20 {
		other.exchange(round)
	}
	must(t, other.dev.Close())
	require.Until(t, "the users hold nothing", func() bool { return len(s.Usage()) == 0 })
	cancel()
	must(t, <-ended)
}

// TestDoorbellsFault checks that inaccessible doorbells of one client lose no ring of another,
// whether the shard handles that one before or after.
func TestDoorbellsFault(t *testing.T) {
	old := debug.SetPanicOnFault(true)
	defer debug.SetPanicOnFault(old)
	bells, err := newDoorbells()
	must(t, err)
	defer unix.Close(bells.epoll)
	size := int(roundUp(uint64(ring.DoorbellsSize(perShard)), uint64(os.Getpagesize())))
	pages, err := unix.Mmap(-1, 0, 3*size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS)
	must(t, err)
	defer unix.Munmap(pages)
	var list [3]*clientDoorbells
	dropped := false
	for i := range list {
		buf := pages[i*size:][:size]
		b, err := newClientDoorbells(buf)
		must(t, err)
		defer unix.Close(b.wake)
		b.fault = func() { dropped = i == 1 }
		b.set(0, new(engine.QP))
		app, err := ring.OpenDoorbells(buf)
		must(t, err)
		must(t, bells.add(b)) // its eventfd is already written
		app.Ring(0)
		list[i] = b
	}
	must(t, guard(pages[size:][:size]))
	heard := map[*engine.QP]bool{}
	now := ib.Instant(time.Second)
	take := func() (faulted bool) {
		defer func() { faulted = recover() != nil && bells.Faulted() }()
		bells.Take(now, func(q *engine.QP) { heard[q] = true })
		return false
	}
	if !take() || !dropped {
		t.Error("the fault goes unnoticed")
	}
	if !bells.Sleep() {
		t.Error("the shard may sleep although there are clients that have rung")
	}
	bells.Awake(now)
	now += askAfter
	if take() {
		t.Error("doorbells that are not there are looked at again")
	}
	if !heard[list[0].qps[0].Load().qps[0].Load()] || !heard[list[2].qps[0].Load().qps[0].Load()] {
		t.Errorf("rings of others are lost: heard %d, want 2", len(heard))
	}
}
