package daemon

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/daemon/client"
	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
)

// TestDaemonKilled kills a daemon while its clients wait in all possible calls. All calls
// must return; a new daemon takes over the socket. Requests of peers at another daemon fail
// after their retries.
func TestDaemonKilled(t *testing.T) {
	other := startDaemon(t)
	peer, err := newTenant(other.socket, shape{size: piece, qps: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer peer.close()
	dir, addr := t.TempDir(), linktest.Loopback().String()
	for range *killDaemons {
		d := startDaemonAt(t, dir, addr)
		n, err := newTenant(d.socket, shape{size: piece, qps: 1})
		if err != nil {
			d.kill()
			t.Fatal(err)
		}
		meet(t, n, peer)
		hearsOfDeath(t, d, n)
		nobodyAnswers(t, n, peer)
		n.close()
	}
}

// meet connects new QPs, and transfers data.
func meet(t *testing.T, n, peer *tenant) {
	t.Helper()
	peer.qps = nil
	err := errors.Join(peer.addQPs(1), peer.connect(n.card(), soon), n.connect(peer.card(), steadily))
	if err != nil {
		t.Fatal(err)
	}
	fill(n.buf, 7)
	write(t, n, peer)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var wc [1]ib.WC
	if _, err := n.next(ctx, wc[:]); err != nil || wc[0].Err() != nil {
		t.Fatal(err, wc[0].Err())
	}
	if err := check(peer.buf, 7); err != nil {
		t.Fatal(err)
	}
}

// write posts a WRITE of all memory to all of the peer's.
func write(t *testing.T, from, to *tenant) {
	t.Helper()
	_, err := from.qps[0].PostSend([]ib.SendWR{{Opcode: ib.WRWrite, Flags: ib.SendSignaled, SGL: from.sge(0, piece),
		RemoteAddr: to.mr.Addr(), RKey: to.mr.RKey()}})
	if err != nil {
		t.Fatal(err)
	}
}

// hearsOfDeath kills the daemon while a client waits, and checks that the client's calls return.
func hearsOfDeath(t *testing.T, d *daemon, n *tenant) {
	t.Helper()
	type end struct {
		of  string
		err error
		at  time.Time
	}
	ends := make(chan end, 8)
	wait := func(what string, f func() error) {
		go func() {
			err := f()
			ends <- end{what, err, time.Now()}
		}()
	}
	d.standStill() // so that it does not answer the verb
	wait("a completion", func() error { _, err := ib.WaitOne(context.Background(), n.cq); return err })
	wait("an event", func() error { _, err := n.dev.NextEvent(context.Background()); return err })
	wait("a verb", func() error { _, err := n.dev.AllocPD(); return err })
	wait("polling", func() error {
		for wc := make([]ib.WC, 1); ; {
			if _, err := n.cq.Poll(wc); err != nil {
				return err
			}
		}
	})
	select {
	case e := <-ends:
		t.Errorf("%s ended while the daemon stood still: %v", e.of, e.err)
		ends <- e
	default:
	}
	killed := time.Now()
	d.kill()
	for range 4 {
		select {
		case e := <-ends:
			if !errors.Is(e.err, client.ErrGone) {
				t.Errorf("%s ended with %v, want %v", e.of, e.err, client.ErrGone)
			}
			t.Logf("%s ended %v after the daemon was killed", e.of, e.at.Sub(killed))
		case <-time.After(patience):
			t.Fatal("somebody still waits for a daemon that is gone")
		}
	}
	_, post := n.qps[0].PostSend(nil)
	_, recv := n.qps[0].PostRecv(nil)
	_, redial := client.Dial(t.Context(), client.Options{Socket: d.socket})
	for i, err := range []error{post, recv, n.cq.Arm(false)} {
		if !errors.Is(err, client.ErrGone) {
			t.Errorf("verb %d: %v, want %v", i, err, client.ErrGone)
		}
	}
	if !errors.Is(redial, syscall.ECONNREFUSED) {
		t.Errorf("dial what has ended: %v, want %v", redial, syscall.ECONNREFUSED)
	}
	if err := errors.Join(n.qps[0].Close(), n.cq.Close()); err != nil {
		t.Errorf("closing what is gone: %v", err)
	}
}

// nobodyAnswers posts a WRITE of a peer to a client of a dead daemon, which must fail.
func nobodyAnswers(t *testing.T, n, peer *tenant) {
	t.Helper()
	write(t, peer, n)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var wc [1]ib.WC
	if _, err := peer.next(ctx, wc[:]); err != nil || wc[0].Status != ib.WCRetryExcErr {
		t.Errorf("a peer hears %v, %v; want that its retries are exceeded", err, wc[0].Status)
	}
}

// TestMixedGone ends connections whose requests name memory of a process and of a memfd
// together: the worker may still read both while the session ends.
func TestMixedGone(t *testing.T) {
	if !reachable() {
		require.Missing(t, "the daemon may not read other processes of its user: kernel.yama.ptrace_scope is not 0")
	}
	a, b := startDaemon(t), startDaemon(t)
	others := startSteady(t, a, b)
	before := a.settled()
	rounds := 30
	if require.Full() {
		rounds = 1000
	}
	for range rounds {
		mixedGone(t, a, b)
	}
	others.goesOn(10)
	a.returnsTo(before)
}

func mixedGone(t *testing.T, a, b *daemon) {
	t.Helper()
	const qps = 4
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	target, err := newTenant(b.socket, shape{size: piece, qps: qps})
	check(err)
	defer target.close()
	n, err := newTenant(a.socket, shape{size: piece, process: true, qps: qps, sges: 2})
	check(err)
	mapped, err := client.Alloc(piece)
	check(err)
	behind, err := n.pd.RegMR(ib.MRInit{Buf: mapped, Access: rights})
	check(err)
	check(errors.Join(target.connect(n.card(), steadily), n.connect(target.card(), steadily)))
	sgl := append(n.sge(0, 64), ib.SGE{Addr: behind.Addr(), Length: piece - 64, LKey: behind.LKey()})
	for i := range qps * depth {
		_, err := n.qps[i%qps].PostSend([]ib.SendWR{{Opcode: ib.WRWrite, Flags: ib.SendSignaled, SGL: sgl,
			RemoteAddr: target.mr.Addr(), RKey: target.mr.RKey()}})
		check(err)
	}
	var wc [1]ib.WC
	_, err = n.next(t.Context(), wc[:])
	check(err)
	// Discard pages all the time: reading them takes longer, as the kernel must allocate them again.
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for range 20 {
			_ = unix.Madvise(mapped, unix.MADV_REMOVE)
		}
	}()
	n.close()
	<-ended
	check(client.Free(mapped))
}

// TestClientStopped stops a client with full queues and unread events. The daemon and
// other clients must go on meanwhile, and the client when it is continued.
func TestClientStopped(t *testing.T) {
	a, b := startDaemon(t), startDaemon(t)
	others := startSteady(t, a, b)
	n, err := newTenant(b.socket, shape{size: floodMemory})
	if err != nil {
		t.Fatal(err)
	}
	defer n.close()
	j := job{Socket: a.socket, Seed: newSeed(t), QPs: 3, Window: depth, Patient: true}
	c := startChild(t, "flood", j)
	g := aim(t, n, c, j)
	for range 3 {
		g.hears(100)
		if err := c.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		others.goesOn(100)
		if a.objectsOf(c.pid) == 0 {
			t.Error("a client that stands still has lost its objects")
		}
		if err := c.cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
	}
	g.hears(100)
	c.kill()
	a.forgets(c.pid)
}
