package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/daemon/client"
	"github.com/goroce/goroce/tests/require"
)

// narrow are limits of a user, all of which the greedy user reaches. Memory windows have no limit
// of their own: they fill the heap.
var narrow = []string{
	"limits.user.connections=30", "limits.user.qps=130", "limits.user.mrs=200", "limits.user.mws=0",
	"limits.connection.mws=0",
	"limits.user.cqs=200", "limits.user.cq_entries=65536", "limits.user.pds=100", "limits.user.srqs=100",
	"limits.user.ahs=200",
	"limits.user.xrcds=100", "limits.user.channels=80", "limits.user.pinned=64MiB", "limits.user.heap=32MiB",
	"limits.user.cm_ids=200", "limits.user.cm_half_open=20",
	"socket_mode=0666",
}

// nobody is the user ID of the greedy child.
const nobody = 65534

// greed is a child, running as another user, that allocates all it can get, and goes on
// requesting more.
type greed struct {
	job
	list []*tenant
	report
}

// greedy is the role of that child.
func greedy(c *parent) {
	must(syscall.Setgid(nobody))
	must(syscall.Setuid(nobody))
	g := &greed{job: c.job, report: report{Counts: map[string]int{}}}
	g.connect()
	k, err := knock(g.list[0], 30)
	must(err)
	g.Counts["half-open"] = k.asked
	for _, w := range wants {
		g.fill(w)
	}
	c.tell(g.report)
	for _, n := range g.list {
		go g.press(n)
	}
	go g.burn()
	go func() {
		for { // ask for more connections
			_ = k.step() // fails while all IDs are in use
		}
	}()
	go func() {
		for { // open connections, which are refused
			if d, err := client.Dial(context.Background(), client.Options{Socket: g.Socket}); err == nil {
				must(d.Close())
			}
		}
	}()
	for { // until it is killed
		var question string
		c.hear(&question)
		c.tell("here")
	}
}

// connect opens connections, each with a few objects.
func (g *greed) connect() {
	for {
		n, err := newTenant(g.Socket, shape{size: piece, qps: 2})
		if err != nil {
			g.refused("connections", err)
			return
		}
		for i, q := range n.qps {
			must(connectQP(q, n.gid, n.qps[1-i].Num(), steadily))
		}
		g.list = append(g.list, n)
		g.Counts["connections"]++
	}
}

// refused counts a refusal because of a limit; any other error is a problem.
func (g *greed) refused(what string, err error) {
	if !errors.Is(err, ib.ErrLimit) && !cut(err) {
		g.Problems = append(g.Problems, fmt.Sprintf("%s: %v", what, err))
	}
}

// want is a kind of limited objects.
type want struct {
	what string
	make func(n *tenant) error
}

// wants lists the objects with a limit for a user. The last ones fill the heap.
var wants = []want{
	{"cq_entries", func(n *tenant) error {
		_, err := n.dev.CreateCQ(ib.CQInit{Entries: 4096})
		return err
	}},
	{"large QPs", func(n *tenant) error {
		_, err := n.pd.CreateQP(ib.QPInit{Type: ib.RC, SendCQ: n.cq, RecvCQ: n.cq,
			Cap: ib.QPCap{MaxSendWR: 512, MaxSendSGE: 16, MaxInline: 256}})
		return err
	}},
	{"pinned", func(n *tenant) error {
		buf, err := client.Alloc(1 << 20)
		if err != nil {
			return err
		}
		defer client.Free(buf) // the registration keeps the memory
		_, err = n.pd.RegMR(ib.MRInit{Buf: buf, Access: rights})
		return err
	}},
	{"mrs", func(n *tenant) error { _, err := n.pd.RegMR(ib.MRInit{Buf: n.buf, Access: rights}); return err }},
	{"cqs", func(n *tenant) error { _, err := n.dev.CreateCQ(ib.CQInit{Entries: 4}); return err }},
	{"pds", func(n *tenant) error { _, err := n.dev.AllocPD(); return err }},
	{"srqs", func(n *tenant) error {
		_, err := n.pd.CreateSRQ(ib.SRQInit{SRQAttr: ib.SRQAttr{MaxWR: 1, MaxSGE: 1}})
		return err
	}},
	{"ahs", func(n *tenant) error { _, err := n.pd.CreateAH(ib.AHAttr{DGID: n.gid, Port: 1}); return err }},
	{"xrcds", func(n *tenant) error { _, err := n.dev.AllocXRCD(); return err }},
	{"cm_ids", func(n *tenant) error {
		cm, err := n.dev.OpenCM()
		if err == nil {
			for err == nil {
				_, err = cm.CreateID(ib.CMIDInit{})
			}
		}
		return err
	}},
	{"channels", func(n *tenant) error { _, err := n.dev.CreateChannel(); return err }},
	{"qps", func(n *tenant) error { return n.addQPs(1) }},
	{"heap", func(n *tenant) error { _, err := n.pd.AllocMW(ib.MWType2); return err }},
}

// fill creates as many objects of a kind as all connections together may have.
func (g *greed) fill(w want) {
	open := slices.Clone(g.list)
	for i := 0; len(open) > 0; i++ {
		at := i % len(open)
		if err := w.make(open[at]); err != nil {
			g.refused(w.what, err)
			open = slices.Delete(open, at, at+1)
			continue
		}
		if g.Counts[w.what]++; w.what == "large QPs" && g.Counts[w.what] == 20 { // leave room for small ones
			return
		}
	}
}

// press requests more objects of every kind, for ever.
func (g *greed) press(n *tenant) {
	for {
		for _, w := range wants {
			_ = w.make(n)
		}
	}
}

// burn sends as much as possible between two QPs of its own.
func (g *greed) burn() {
	n := g.list[0]
	wr := []ib.SendWR{{Opcode: ib.WRWrite, SGL: n.sge(0, 4096), RemoteAddr: n.mr.Addr(), RKey: n.mr.RKey()}}
	for {
		for _, q := range n.qps[:2] {
			_, _ = q.PostSend(wr) // fails most of the time, as the queue is full
		}
	}
}

// startGreedy starts a greedy child, waits until it holds all it can get, and gives it the lowest priority then.
func startGreedy(t testing.TB, d *daemon) (c *child, took report) {
	t.Helper()
	require.Root(t) // the child is another user
	d.admitAll(t)
	c = startChild(t, "greedy", job{Socket: d.socket})
	c.hear(&took)
	c.standBack()
	return c, took
}

// admitAll lets all users reach the daemon's socket, whose mode admits them: the test's directories are its user's.
func (d *daemon) admitAll(t testing.TB) {
	t.Helper()
	for dir := d.dir; dir != os.TempDir() && len(dir) > 1; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// TestGreedy checks that a user which holds all that it may, and goes on requesting more, does
// not affect another user: its connections stay, its data arrives, and it can create more objects.
func TestGreedy(t *testing.T) {
	a, b := startDaemon(t, narrow...), startDaemon(t)
	far, near := startSteady(t, a, b), startSteady(t, a, a)
	before := a.settled()
	c, took := startGreedy(t, a)
	t.Log(took.Counts)
	for _, p := range took.Problems {
		t.Error(p)
	}
	for what, least := range map[string]int{"connections": 30, "mrs": 100, "cqs": 20, "pds": 20, "srqs": 50, "ahs": 150,
		"xrcds":    50,
		"channels": 10, "qps": 10, "heap": 100, "half-open": 30} {
		if took.Counts[what] < least {
			t.Errorf("it got %d of %s, want %d at least: the limits are not reached one by one", took.Counts[what],
				what, least)
		}
	}
	for range require.Rounds(2, 5) {
		far.goesOn(20)
		near.goesOn(20)
		n, err := newTenant(a.socket, shape{size: piece, qps: 4, srq: true})
		if err != nil {
			t.Fatalf("another user gets nothing: %v", err)
		}
		n.close()
		byAddress(t, b, a)
		byAddress(t, a, b)
		a.get("/v1/status")
	}
	var here string
	c.tell("are you there?")
	c.hear(&here)
	c.kill()
	a.forgets(c.pid)
	far.goesOn(5)
	near.goesOn(5)
	a.returnsTo(before)
}

// spin is the role of a child that keeps all processors busy without using the daemon.
func spin(c *parent) {
	for range runtime.NumCPU() {
		go func() {
			for n := uint64(0); ; n++ {
			}
		}()
	}
	c.tell("spins")
	select {}
}

// BenchmarkBesideGreedy measures a user's throughput, and the 99th percentile of the time of a
// 64-byte WRITE, in three situations: alone, beside a program that keeps the processors busy, and
// beside a greedy user. The greedy user keeps the processors busy, too, so the difference between
// the last two is due to the daemon. "ratio" and "p99-ratio" compare greedy with busy.
func BenchmarkBesideGreedy(b *testing.B) {
	near, far := startDaemon(b, narrow...), startDaemon(b)
	from, to := newStreamPair(b, near, far)
	greedy, _ := startGreedy(b, near)
	busy := startChild(b, "spin", job{})
	busy.standBack()
	var spins string
	busy.hear(&spins)
	signal := func(c *child, s syscall.Signal) {
		if err := c.cmd.Process.Signal(s); err != nil {
			b.Fatal(err)
		}
	}
	signal(greedy, syscall.SIGSTOP)
	signal(busy, syscall.SIGSTOP)
	beside := []struct {
		what     string
		c        *child
		rate, us []float64
	}{{"alone", nil, nil, nil}, {"busy", busy, nil, nil}, {"greedy", greedy, nil, nil}}
	b.SetBytes(int64(len(beside)) * slicePairs * sliceMessages * piece)
	for b.Loop() {
		for i := range len(beside) * slicePairs {
			x := &beside[i%len(beside)]
			if x.c != nil {
				signal(x.c, syscall.SIGCONT)
			}
			x.rate, x.us = append(x.rate, stream(b, from, to)), append(x.us, p99(b, from, to))
			if x.c != nil {
				signal(x.c, syscall.SIGSTOP)
			}
		}
	}
	for _, x := range beside {
		b.ReportMetric(median(x.rate)/1e6, x.what+"-MB/s")
		b.ReportMetric(median(x.us), x.what+"-p99-us")
	}
	b.ReportMetric(median(beside[2].rate)/median(beside[1].rate), "ratio")
	b.ReportMetric(median(beside[2].us)/median(beside[1].us), "p99-ratio")
}

// newStreamPair returns two clients with one QP each, connected to each other.
func newStreamPair(b *testing.B, near, far *daemon) (from, to *tenant) {
	b.Helper()
	var ends [2]*tenant
	for i, d := range []*daemon{near, far} {
		n, err := newTenant(d.socket, shape{size: piece, qps: 1})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(n.close)
		ends[i] = n
	}
	for i, n := range ends {
		if err := n.connect(ends[1-i].card(), steadily); err != nil {
			b.Fatal(err)
		}
	}
	return ends[0], ends[1]
}

// p99 returns the 99th percentile of the microseconds that a small WRITE takes, polled.
func p99(b *testing.B, from, to *tenant) float64 {
	b.Helper()
	wr := []ib.SendWR{{Opcode: ib.WRWrite, Flags: ib.SendSignaled, SGL: from.sge(0, 64), RemoteAddr: to.mr.Addr(),
		RKey: to.mr.RKey()}}
	took := make([]float64, 1000)
	var wc [1]ib.WC
	for i := range took {
		start := time.Now()
		if _, err := from.qps[0].PostSend(wr); err != nil {
			b.Fatal(err)
		}
		for got := 0; got == 0; {
			var err error
			if got, err = from.cq.Poll(wc[:]); err != nil || got > 0 && wc[0].Err() != nil {
				b.Fatal(errors.Join(err, wc[0].Err()))
			}
		}
		took[i] = float64(time.Since(start).Nanoseconds()) / 1e3
	}
	slices.Sort(took)
	return took[len(took)*99/100]
}
