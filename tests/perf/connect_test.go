package perf

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/rdmacm"
)

// connect returns how many connections a second come and go by rdma_cm, with so
// many dialling at a time: REQ, REP, RTU, DREQ, DREP, and the QPs of both ends.
func (w *wire) connect(b *testing.B, dialers int) float64 {
	b.Helper()
	near, far := openCM(b, w.near), openCM(b, w.far)
	defer near.Close()
	defer far.Close()
	l, err := far.Listen(b.Context(), w.b.Addr4.String()+":7471", rdmacm.ListenConfig{})
	must(b, err)
	go serve(l)

	start := time.Now()
	done := make([]int, dialers)
	var dialing sync.WaitGroup
	for i := range dialers {
		dialing.Go(func() {
			for time.Since(start) < duration {
				if err := comeAndGo(b.Context(), near, l.Addr().String()); err != nil {
					b.Error(err)
					return
				}
				done[i]++
			}
		})
	}
	dialing.Wait()
	total := 0
	for _, n := range done {
		total += n
	}
	return float64(total) / time.Since(start).Seconds()
}

func openCM(b *testing.B, e *end) *rdmacm.CM {
	b.Helper()
	cm, err := rdmacm.Open(e.dev, rdmacm.Options{})
	must(b, err)
	return cm
}

func comeAndGo(ctx context.Context, cm *rdmacm.CM, addr string) error {
	c, err := cm.Dial(ctx, addr, rdmacm.Config{})
	if err != nil {
		return err
	}
	return errors.Join(c.Disconnect(ctx), c.Close())
}

// serve accepts until the listener is closed, and closes what its peers end.
func serve(l *rdmacm.Listener) {
	for {
		c, err := l.Accept(context.Background())
		if errors.Is(err, ib.ErrClosed) {
			return
		}
		if err == nil {
			go func() {
				<-c.Done()
				_ = c.Close()
			}()
		}
	}
}
