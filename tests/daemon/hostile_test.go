package daemon

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/daemon/client"
	"github.com/goroce/goroce/tests/require"
)

// small are limits that an attacker reaches.
var small = []string{
	"limits.user.connections=40", "limits.connection.qps=20", "limits.connection.mrs=20", "limits.connection.mws=20",
	"limits.connection.cq_entries=4096", "limits.connection.pds=10", "limits.connection.srqs=10",
	"limits.connection.ahs=10",
	"limits.connection.xrcds=10", "limits.connection.channels=10", "limits.connection.pinned=16MiB",
}

// TestHostile runs each attack on a daemon, beside two steady clients of it. The daemon must
// survive, and hold nothing of the attacker afterwards.
func TestHostile(t *testing.T) {
	seed := newSeed(t)
	a, b := startDaemon(t, small...), startDaemon(t)
	startSteady(t, a, b)
	others := startSteady(t, a, a)
	for i, c := range []struct {
		attack string
		rounds int
		want   []string // keys of report.Counts that must not be 0
	}{
		{"requests", require.Rounds(600, 20000), []string{"done", "refused"}},
		{"descriptors", require.Rounds(100, 1200), []string{"refused", "taken"}},
		{"rings", require.Rounds(600, 80000), []string{"connections", "QPs failed"}},
		{"torn", require.Rounds(200, 8000), []string{"QPs failed"}},
		{"storm", require.Rounds(300, 4000), []string{"QPs failed"}},
		{"limits", require.Rounds(2, 8), []string{"limits"}},
		{"connections", require.Rounds(10, 40), []string{"refused", "taken"}},
		{"silence", require.Rounds(3, 12), []string{"waits"}},
		{"pages", require.Rounds(300, 16000), []string{"written"}},
	} {
		t.Run(c.attack, func(t *testing.T) {
			if c.attack == "pages" && !reachable() {
				require.Missing(t,
					"the daemon may not read other processes of its user: kernel.yama.ptrace_scope is not 0")
			}
			a.lend(t)
			before := a.settled()
			child := startChild(t, "hostile", job{Socket: a.socket, Seed: seed + uint64(i), Attack: c.attack,
				Rounds: c.rounds, Want: c.want})
			var r report
			child.hear(&r)
			others.goesOn(5)
			child.kill()
			a.forgets(child.pid)
			others.goesOn(5)
			a.returnsTo(before)
			for _, p := range r.Problems {
				t.Error(p)
			}
			for _, w := range c.want {
				if r.Counts[w] == 0 {
					t.Errorf("the attack tries too little: %v, want some of each", r.Counts)
				}
			}
			t.Log(fmt.Sprint(r.Counts))
		})
	}
}

// TestNoDescriptors opens connections until the daemon has no descriptors, and more: first
// as clients, which are told the reason of a refusal, and then without sending anything.
// Existing clients go on; when others have left, new ones can connect.
func TestNoDescriptors(t *testing.T) {
	a, b := startDaemon(t), startDaemon(t)
	others := startSteady(t, a, b)
	before := a.settled()
	few := unix.Rlimit{Cur: 80, Max: 80}
	if err := unix.Prlimit(a.cmd.Process.Pid, unix.RLIMIT_NOFILE, &few, nil); err != nil {
		t.Fatal(err)
	}
	var list []io.Closer
	for {
		d, err := client.Dial(t.Context(), client.Options{Socket: a.socket})
		if err != nil {
			if !errors.Is(err, ib.ErrLimit) || !strings.Contains(err.Error(), "LimitNOFILE=") {
				t.Errorf("when there are no descriptors, who connects hears %v, want %v and %q", err, ib.ErrLimit,
					"LimitNOFILE=")
			}
			break
		}
		list = append(list, d)
	}
	for range 100 {
		c, err := net.Dial("unixpacket", a.socket)
		if err != nil {
			break // the listener's queue is full, too
		}
		list = append(list, c)
	}
	others.goesOn(100)
	for _, c := range list {
		c.Close()
	}
	// First attempts may still be refused: closed connections are before them in the queue.
	require.Until(t, "there is room for a client", func() bool {
		d, err := client.Dial(t.Context(), client.Options{Socket: a.socket})
		if err != nil {
			if !errors.Is(err, ib.ErrLimit) {
				t.Fatal(err)
			}
			return false
		}
		return d.Close() == nil
	})
	a.returnsTo(before)
	n, err := newTenant(a.socket, shape{size: piece, qps: 1})
	if err != nil {
		t.Fatal(err)
	}
	n.close()
	a.returnsTo(before)
}
