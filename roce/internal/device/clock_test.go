package device_test

import (
	"sync"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/tests/require"
)

// TestTimeGoesOn: the time of a shard never goes back, whether its own goroutine, a polling
// application, a posting application or a verb drives it, and however long a turn takes: the
// timestamps of a CQ are in order, and the device's clock is not behind them.
func TestTimeGoesOn(t *testing.T) {
	const size, depth = 1 << 16, 32
	rounds := require.Rounds(200, 1000)
	w := newLive(t, 2*size)
	w.b = &host{dev: w.a.dev, pd: w.a.pd, cq: w.a.cq, buf: w.a.buf, mr: w.a.mr}
	w.connectTo(w.a.gid(), w.a.gid(), ib.MTU1024, nil)
	uc := w.newQP(w.a, ib.QPInit{Type: ib.UC}) // requests of UC complete when they were sent
	attr := ib.QPAttr{Port: 1, AH: ib.AHAttr{DGID: w.a.gid()}, PathMTU: ib.MTU1024, DestQPN: uc.Num()}
	must(t, ib.ModifyTo(uc, attr, ib.StateInit, ib.StateRTR, ib.StateRTS))
	stop, verbs := make(chan struct{}), sync.WaitGroup{}
	defer verbs.Wait()
	defer close(stop)
	verbs.Go(func() {
		for tick := time.NewTicker(50 * time.Microsecond); ; {
			select {
			case <-tick.C:
				if _, err := w.b.qp.Query(); err != nil {
					t.Error(err)
				}
				// An input that completes nothing, with the time of the verb.
				if err := w.b.qp.Modify(ib.QPAttr{State: ib.StateRTS, MinRNRTimer: 12},
					ib.AttrState|ib.AttrMinRNRTimer); err != nil {
					t.Error(err)
				}
			case <-stop:
				return
			}
		}
	})
	var last ib.Instant
	var wcs [8]ib.WC
	posted, done := 0, 0
	for limit := time.Now().Add(time.Minute); done < rounds*depth; {
		if time.Now().After(limit) {
			t.Fatalf("no completion within a minute after %d of %d", done, rounds*depth)
		}
		for ; posted < rounds*depth && posted-done < depth; posted++ {
			wr := ib.SendWR{Opcode: ib.WRWrite, Flags: ib.SendSignaled, SGL: w.a.sge(0, size),
				RemoteAddr: w.a.mr.Addr() + size, RKey: w.a.mr.RKey()}
			q := w.a.qp
			if posted%4 == 0 {
				q, wr.SGL[0].Length = uc, 8
			}
			_, err := q.PostSend([]ib.SendWR{wr})
			must(t, err)
		}
		n, err := w.a.cq.Poll(wcs[:])
		must(t, err)
		for _, wc := range wcs[:n] {
			if wc.Err() != nil || wc.Timestamp < last {
				t.Fatalf("request %d completes at %d, %v; want no earlier than the one before, at %d", done,
					wc.Timestamp, wc.Status, last)
			}
			last = wc.Timestamp
			done++
		}
		if n > 0 {
			limit = time.Now().Add(time.Minute)
		}
		if now, err := w.a.dev.Clock(); err != nil || now < last {
			t.Fatalf("the clock is %d, %v; want no earlier than the latest completion, %d", now, err, last)
		}
	}
}
