package device_test

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/tests/require"
)

// TestCloseBusyShards closes a device while all its shards exchange messages with the other
// device and with each other.
func TestCloseBusyShards(t *testing.T) {
	for round := range require.Rounds(3, 10) {
		w := newLiveShards(t, 4, 0, 1<<16)
		self := *w
		self.b = w.a
		cqsA, cqsB := w.a.sendCQs(t), w.b.sendCQs(t)
		var workers sync.WaitGroup
		started := make(chan struct{}, 16)
		for i := range cqsA {
			for _, q := range []ib.QP{
				w.connectOn(cqsA[i], cqsB[i], cqsB[i], nil),
				self.connectOn(cqsA[i], cqsA[(i+1)%4], cqsA[i], nil),
			} {
				workers.Go(func() {
					wr := ib.SendWR{Opcode: ib.WRWrite, SGL: w.a.sge(0, 8192), RemoteAddr: w.a.mr.Addr(),
						RKey: w.a.mr.RKey()}
					wcs := make([]ib.WC, 16)
					for n := 0; ; n++ {
						if _, err := q.PostSend([]ib.SendWR{wr}); errors.Is(err, ib.ErrClosed) {
							return
						}
						_, _ = cqsA[i].Poll(wcs)
						if n == 20 {
							started <- struct{}{}
						}
					}
				})
			}
		}
		for range 2 * len(cqsA) {
			<-started
		}
		closed := make(chan error, 1)
		go func() { closed <- w.a.dev.Close() }()
		select {
		case err := <-closed:
			must(t, err)
		case <-time.After(60 * time.Second):
			t.Fatalf("round %d: Close did not return within a minute", round)
		}
		workers.Wait()
		must(t, w.b.dev.Close())
	}
}

// TestQPsComeAndGo makes, uses and closes QPs on all shards at once.
func TestQPsComeAndGo(t *testing.T) {
	const shards, rounds = 4, 50
	w := newLiveShards(t, shards, 0, 1<<16)
	cqsA, cqsB := w.a.sendCQs(t), w.b.sendCQs(t)
	var all sync.WaitGroup
	for i := range shards {
		all.Go(func() {
			for range rounds {
				a, b := *w.a, *w.b
				a.cq, b.cq = cqsA[i], cqsB[(i+1)%shards]
				if err := pass(&a, &b, 4096*i); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}

// pass connects two hosts, writes 4096 bytes at off into a region that it registers for
// this purpose, and closes everything.
func pass(a, b *host, off int) error {
	w := &world{a: a, b: b}
	cap := ib.QPCap{MaxSendWR: 4, MaxSendSGE: 1}
	mr, err := b.pd.RegMR(ib.MRInit{Buf: b.buf[off : off+4096], Access: ib.LocalWrite | ib.RemoteWrite})
	if err != nil {
		return err
	}
	for _, h := range []*host{a, b} {
		if h.qp, err = h.pd.CreateQP(ib.QPInit{Type: ib.RC, SendCQ: h.cq, RecvCQ: h.cq, Cap: cap,
			SigAll: true}); err != nil {
			return err
		}
	}
	for _, x := range []struct {
		h    *host
		peer *host
	}{{a, b}, {b, a}} {
		if err := w.up(x.h, x.peer); err != nil {
			return err
		}
	}
	wr := ib.SendWR{Opcode: ib.WRWrite, SGL: a.sge(off, 4096), RemoteAddr: mr.Addr(), RKey: mr.RKey()}
	if _, err := a.qp.PostSend([]ib.SendWR{wr}); err != nil {
		return err
	}
	var wcs [1]ib.WC
	for end := time.Now().Add(60 * time.Second); ; runtime.Gosched() {
		n, err := a.cq.Poll(wcs[:])
		switch {
		case err != nil:
			return err
		case n == 1 && wcs[0].Err() != nil:
			return wcs[0].Err()
		case n == 1:
			return errors.Join(a.qp.Close(), b.qp.Close(), mr.Close())
		case time.Now().After(end):
			return fmt.Errorf("no completion on QP %#x", uint32(a.qp.Num()))
		}
	}
}

// up takes h's QP to RTS with its peer's.
func (w *world) up(h, peer *host) error {
	attr := ib.QPAttr{Port: 1, Access: ib.QPAccessMask, AH: ib.AHAttr{DGID: peer.gid()}, PathMTU: ib.MTU1024,
		DestQPN:         peer.qp.Num(),
		MaxDestRdAtomic: 1, MinRNRTimer: 12, MaxRdAtomic: 1, Timeout: liveTimeout, RetryCnt: 7, RNRRetry: 7}
	return ib.ModifyTo(h.qp, attr, ib.StateInit, ib.StateRTR, ib.StateRTS)
}
