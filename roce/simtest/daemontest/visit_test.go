package daemontest_test

import (
	"bytes"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/rdmacm"
	"github.com/goroce/goroce/roce/simtest"
	"github.com/goroce/goroce/roce/simtest/daemontest"
)

// record is a log that is kept.
type record struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (r *record) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(b)
}

func (r *record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

// TestProcessGone: the log has one line of a process that has used queue pairs, when the last of its connections has
// ended: for how long it was there, what it has sent, and why its first queue pair has failed. One that has only asked
// gets none.
func TestProcessGone(t *testing.T) {
	simtest.Run(t, simtest.Config{}, func(t *testing.T, n *simtest.Net) {
		var log record
		o := options
		o.Log = slog.New(slog.NewTextHandler(&log, nil))
		a, b := daemontest.Start(t, n.Hosts[0], options), daemontest.Start(t, n.Hosts[1], o)
		dev := b.Client(t)
		must(t, dev.Close())
		first, second := b.Client(t), b.Client(t)
		cm, err := rdmacm.Open(first, rdmacm.Options{})
		must(t, err)
		time.Sleep(time.Second)
		x, y := connectOf(t, n, a.CM(t), cm, rdmacm.Config{Cap: ib.QPCap{MaxSendWR: 1, MaxRecvWR: 1}})
		ping(t, x, y)
		_, err = y.QP().PostSend([]ib.SendWR{{Opcode: ib.WRWrite, Flags: ib.SendSignaled, RKey: 0x701}})
		must(t, err)
		_, err = ib.WaitOne(t.Context(), y.SendCQ())
		if err == nil {
			t.Fatal("a WRITE by a key that nobody has was carried out")
		}
		uid := uint32(os.Getuid())
		before := b.Server().UserBytes()[uid]
		must(t, y.Close())
		after := b.Server().UserBytes()[uid]
		if before.Sent == 0 || after.Sent < before.Sent || after.Rcvd < before.Rcvd {
			t.Errorf("got %+v of the user, and %+v when its queue pair is closed, want no less", before, after)
		}
		must(t, cm.Close())
		must(t, first.Close())
		if got := log.String(); strings.Contains(got, "gone") {
			t.Errorf("got %q while the process has a connection, want it not gone", got)
		}
		must(t, second.Close())
		time.Sleep(time.Second)
		want := regexp.MustCompile(`(?m)\A.*msg="queue pair has failed".*\n.* level=INFO msg="process gone" pid=\d+ ` +
			`comm=\S+ uid=\d+ for=1\S*s connections=2 qps=1 sent_bytes=\d\d+ rcvd_bytes=\d\d+ failed="RDMA WRITE: .*"\n\z`)
		if got := log.String(); !want.MatchString(got) {
			t.Errorf("got the log\n%swant %v", got, want)
		}
	})
}
