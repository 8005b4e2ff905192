//go:build linux

package dropin

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goroce/goroce/tests/require"
)

// TestConnectionsScale: many connections, one after the other and all at once, also when packets of the connection
// managers are lost. All are made, and nothing of them is left. 10,000 in a row take a minute and a half of both
// processors where a page fault is dear, so most runs make fewer.
func TestConnectionsScale(t *testing.T) {
	repeats(t, true)
	besides(t)
	installed(t, "cmtime")
	program := compile(t, "../rxe/testdata/cmtool.c", "-lrdmacm", "-libverbs")
	h := newHost(t, nil)
	before := h.daemon.descriptors(t)

	row := rounds(1000, 1000, 10_000)
	limit := time.Duration(row) * patience / 1000
	t.Run("in a row", func(t *testing.T) {
		n := fmt.Sprint(row)
		server := h.run(t, program, "tcp", "serve", "7174", n)
		h.awaitListener(t, server)
		client := h.run(t, program, "tcp", "churn", h.addr.String(), "7174", n)
		for _, p := range []*process{client, server} {
			if out, err := p.waitFor(t, limit); err != nil {
				t.Fatalf("%q: %v\n%s", p.cmd.Args, err, out)
			}
		}
	})
	// An event that comes while the one before it is taken wakes its client, too.
	t.Run("in a row, in Go", func(t *testing.T) { h.churnGo(t, row, func() {}) })
	for _, loss := range []string{"", "0.05"} {
		t.Run("at once, loss "+loss, func(t *testing.T) {
			if loss != "" { // QP 1 is the connection managers'
				h.start(t, goroced, "fault", "add", "drop", "--qp", "1", "-p", loss, "--seed", "1", "--admin",
					h.dir+"/a").ok(t)
			}
			const n = "1000"
			server := h.run(t, "cmtime", "-b", h.addr.String(), "-c", n)
			h.awaitListener(t, server)
			out := h.run(t, "cmtime", "-s", h.addr.String(), "-c", n).ok(t)
			if !strings.Contains(out, "\ndestroy ") {
				t.Errorf("cmtime, want a row of destroy, says\n%s", out)
			}
			server.mustRun(t)
			_, _ = server.signal(t, syscall.SIGTERM)
		})
	}
	require.Until(t, "the daemon has nothing of the programs", func() bool {
		return h.idle(t) && h.daemon.descriptors(t) <= before
	})
}
