package daemon

import (
	"context"
	"errors"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/daemon/client"
	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
	"github.com/goroce/goroce/tests/uffd"
)

// TestStuck has a client send, in one request, a page under userfaultfd that nobody resolves,
// and memory that the daemon has mapped. Other clients must go on. The daemon drops the client,
// and keeps the memory mapped until the page is resolved, or the client ends: the worker that
// waits for the page reads the mapped memory next.
func TestStuck(t *testing.T) {
	if !reachable() {
		require.Missing(t, "the daemon may not read other processes of its user: kernel.yama.ptrace_scope is not 0")
	}
	a, b := startDaemon(t), startDaemon(t)
	others := startSteady(t, a, b)
	target, err := newTenant(b.socket, shape{size: piece})
	if err != nil {
		t.Fatal(err)
	}
	defer target.close()
	for _, resolved := range []bool{true, false} {
		before := a.settled()
		c := startChild(t, "stuck", job{Socket: a.socket})
		var refused string
		if c.hear(&refused); refused != "" {
			require.Missing(t, uffd.Needs, refused)
		}
		var peer card
		c.hear(&peer)
		target.qps = nil
		if err := errors.Join(target.addQPs(1), target.connect(peer, steadily)); err != nil {
			t.Fatal(err)
		}
		c.tell(target.card())
		var heard string
		c.hear(&heard) // the daemon's access to the page has begun
		others.goesOn(100)
		if c.hear(&heard); heard != client.ErrGone.Error() {
			t.Errorf("a client that sends a page that nobody resolves gets %q, want %q", heard, client.ErrGone)
		}
		a.forgets(c.pid)
		if now := a.usage(); now.goroutines <= before.goroutines || now.memfds <= before.memfds {
			t.Errorf("no worker waits for the page, or what it reads next is not mapped: %+v, want more than %+v",
				now, before)
		}
		others.goesOn(100)
		if resolved {
			c.tell("resolve")
			c.hear(&heard)
		} else {
			c.kill()
		}
		a.returnsTo(before)
		c.kill()
		if err := target.qps[0].Close(); err != nil {
			t.Error(err)
		}
	}
}

// stuck is the role of TestStuck's client.
func stuck(c *parent) {
	n, err := newTenant(c.Socket, shape{size: piece, process: true, qps: 1, sges: 2})
	must(err)
	mapped, err := client.Alloc(piece)
	must(err)
	behind, err := n.pd.RegMR(ib.MRInit{Buf: mapped, Access: rights})
	must(err)
	fault, err := uffd.Hang(n.buf)
	if err != nil {
		c.tell(err.Error())
		return
	}
	c.tell("")
	c.tell(n.card())
	var peer card
	c.hear(&peer)
	must(n.connect(peer, steadily))
	sgl := append(n.sge(0, piece/2), ib.SGE{Addr: behind.Addr(), Length: piece / 2, LKey: behind.LKey()})
	_, err = n.qps[0].PostSend([]ib.SendWR{{Opcode: ib.WRWrite, Flags: ib.SendSignaled, SGL: sgl, RemoteAddr: peer.Addr,
		RKey: peer.Key}})
	must(err)
	must(fault.Wait())
	c.tell("it waits")
	var wc [1]ib.WC
	if _, err = n.next(context.Background(), wc[:]); errors.Is(err, client.ErrGone) {
		err = client.ErrGone
	}
	c.tell(err.Error())
	var resolve string
	c.hear(&resolve)
	must(fault.Resolve(n.buf))
	c.tell("done")
	c.hear(&resolve) // wait until the test kills this process
}

// TestEndsBesideStuck checks that SIGTERM ends the daemon while it reads memory that blocks for
// ever, both before and after it has dropped the client.
func TestEndsBesideStuck(t *testing.T) {
	if !reachable() {
		require.Missing(t, "the daemon may not read other processes of its user: kernel.yama.ptrace_scope is not 0")
	}
	for _, dropped := range []bool{false, true} {
		a := startDaemonAt(t, t.TempDir(), linktest.Loopback().String())
		c := startChild(t, "stuck", job{Socket: a.socket})
		var refused, heard string
		if c.hear(&refused); refused != "" {
			a.stop()
			require.Missing(t, uffd.Needs, refused)
		}
		var peer card
		c.hear(&peer)
		c.tell(peer) // connected to itself: nothing has to arrive
		c.hear(&heard)
		if dropped {
			c.hear(&heard)
		}
		a.stop()
		c.kill()
	}
}
